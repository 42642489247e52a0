#include "checkpoint/safetensors.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using testing::MakeSafetensors;
using testing::SafetensorsBytes;
using testing::TemporaryFolder;
using testing::WriteFile;

Result<SafetensorsHeader> ParseHeader(const std::string& bytes) {
  return ParseSafetensorsHeader({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                                bytes.size());
}

std::string EightBytes() {
  return std::string(8, 'x');
}

TEST(SafetensorsTest, ReadsTensorsByOffset) {
  const auto header = ParseHeader(MakeSafetensors({{"b", "F32", {2, 1}, EightBytes()},
                                                   {"a", "BF16", {3}, "123456"},
                                                   {"s", "F32", {}, "1234"}}));
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "b");
  EXPECT_EQ(header->tensors[0].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(header->tensors[1].type, ElementType::kBF16);
  EXPECT_EQ(header->tensors[1].offset, header->tensors[0].offset + 8);
  EXPECT_TRUE(header->tensors[2].shape.empty());
  EXPECT_EQ(header->tensors[2].num_elements(), 1);
}

// Reads a pointer file, which a clone without Git LFS contains in place of each large file.
TEST(SafetensorsTest, NamesAPointerOfGitLfs) {
  EXPECT_THAT(ParseHeader("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
                  .error()
                  .message,
              HasSubstr("git lfs pull"));
}

TEST(SafetensorsTest, AcceptsWhatTheFormatAllows) {
  const struct {
    const char* name;
    std::string header, data;
  } kCases[] = {
      {"no tensors", "{}", ""},
      {"padding", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}   )", EightBytes()},
      {"metadata",
       R"({"__metadata__":{"format":"pt","x":"é"},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       EightBytes()},
      {"white space", "{ \"a\" :\n{\"shape\": [ 8 ],\t\"data_offsets\":[0,8], \"dtype\":\"U8\"}}",
       EightBytes()},
      {"empty tensor",
       R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       EightBytes()},
      {"empty tensor of huge shape",
       R"({"e":{"dtype":"F32","shape":[0,9223372036854775807,3],"data_offsets":[0,0]}})", ""},
      {"empty tensor at the end",
       R"({"e":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       EightBytes()},
      {"two elements a byte", R"({"a":{"dtype":"F4","shape":[2,8],"data_offsets":[0,8]}})",
       EightBytes()},
      {"escaped name", R"({"aé😀\n":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       EightBytes()},
      {"further key",
       R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"note":[{"x":1.5e3}]}})",
       EightBytes()},
  };
  for (const auto& test : kCases) {
    const auto header = ParseHeader(SafetensorsBytes(test.header, test.data));
    EXPECT_TRUE(header) << test.name << ": " << (header ? "" : header.error().message);
  }
}

TEST(SafetensorsTest, RefusesWhatBreaksARule) {
  const struct {
    std::string header, data;
    const char* message;
  } kCases[] = {
      {"", "", "too small"},
      {"[", "", "too small"},
      {"[]", "", "does not begin with '{'"},
      {" {}", "", "does not begin with '{'"},
      {"{}x", "", "after the value"},
      {"{\"a\"", "", "invalid JSON"},
      {R"({"a":1})", "", "'a': must be an object"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]})", EightBytes(), "invalid JSON"},
      {R"({"a":{"shape":[8],"data_offsets":[0,8]}})", EightBytes(), "no dtype"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,8]}})", EightBytes(), "no shape"},
      {R"({"a":{"dtype":"U8","shape":[8]}})", EightBytes(), "data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0]}})", EightBytes(), "data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}})", EightBytes(), "data_offsets"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})", EightBytes(),
       "duplicate key 'dtype'"},
      {R"({"a":{"dtype":"Q4","shape":[8],"data_offsets":[0,8]}})", EightBytes(), "Q4"},
      {R"({"a":{"dtype":8,"shape":[8],"data_offsets":[0,8]}})", EightBytes(),
       "dtype must be a string"},
      {R"({"a":{"dtype":"U8","shape":[8.0],"data_offsets":[0,8]}})", EightBytes(), "found 8.0"},
      {R"({"a":{"dtype":"U8","shape":[8e0],"data_offsets":[0,8]}})", EightBytes(), "found 8.0"},
      {R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})", EightBytes(), "found -8"},
      {R"({"a":{"dtype":"U8","shape":[08],"data_offsets":[0,8]}})", EightBytes(), "not a number"},
      {R"({"a":{"dtype":"U8","shape":["8"],"data_offsets":[0,8]}})", EightBytes(), "found \"8\""},
      {R"({"a":{"dtype":"U8","shape":[[8]],"data_offsets":[0,8]}})", EightBytes(),
       "found an array"},
      {R"({"a":{"dtype":"U8","shape":8,"data_offsets":[0,8]}})", EightBytes(),
       "shape must be a list of integers"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,8]}})", EightBytes(),
       "found 18446744073709551616"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8]}})", EightBytes(),
       "found 18446744073709551615"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}})", EightBytes(),
       "overflows"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "",
       "overflows"},
      {R"({"a":{"dtype":"U8","shape":[2305843009213693953],"data_offsets":[0,8]}})", EightBytes(),
       "overflows"},
      {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "x", "whole number of bytes"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})", EightBytes(),
       "end before they begin"},
      {R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", EightBytes(), "only 8 bytes"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[18446744073709551608,18446744073709551615]}})",
       EightBytes(), "found 18446744073709551608"},
      {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,8]}})", EightBytes(), "takes 7 bytes"},
      {R"({"a":{"dtype":"F16","shape":[8],"data_offsets":[0,8]}})", EightBytes(), "takes 16 bytes"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", EightBytes(), "end at byte"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", EightBytes(), "gap"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       EightBytes(), "gap"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       EightBytes(), "overlaps"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       EightBytes(), "overlaps"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}})",
       EightBytes(), "duplicate key 'a'"},
      {R"({"e":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       EightBytes(), "overlaps"},
      {R"({"__metadata__":{"x":1}})", "", "'x' must be a string"},
      {R"({"__metadata__":[]})", "", "must be an object"},
      {R"({"__metadata__":{},"__metadata__":{}})", "", "duplicate key"},
      {"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", EightBytes(), "UTF-8"},
      {"{\"\xed\xa0\x80\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", EightBytes(),
       "UTF-8"},
      {R"({"\ud800":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", EightBytes(),
       "invalid JSON"},
      {R"({"\x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", EightBytes(), "invalid JSON"},
      {"{\"a\nb\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", EightBytes(),
       "invalid JSON"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],}})", EightBytes(), "invalid JSON"},
      {R"({"a":{"dtype":"U8","shape":[8,],"data_offsets":[0,8]}})", EightBytes(), "invalid JSON"},
      {R"({"a":{"x":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}})", "", "nested deeper"},
      {R"({"a":{"x":nul}})", "", "invalid JSON"},
  };
  for (const auto& test : kCases) {
    const auto header = ParseHeader(SafetensorsBytes(test.header, test.data));
    ASSERT_FALSE(header) << test.header;
    EXPECT_THAT(header.error().message, HasSubstr(test.message)) << test.header;
  }
}

TEST(SafetensorsTest, NamesTheTensor) {
  const auto header = ParseHeader(SafetensorsBytes(
      R"({"model.norm.weight":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", EightBytes()));
  ASSERT_FALSE(header);
  EXPECT_THAT(header.error().message, HasSubstr("tensor 'model.norm.weight'"));
}

TEST(SafetensorsTest, HeaderLengthIsNeverBelieved) {
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{100}, kMaxHeaderBytes,
                                kMaxHeaderBytes + 1, ~uint64_t{0}, ~uint64_t{0} - 8}) {
    std::string bytes = SafetensorsBytes("{}", "");
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
    EXPECT_FALSE(ParseHeader(bytes)) << length;
  }
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string bytes =
      MakeSafetensors({{"a", "F32", {2}, EightBytes()}, {"b", "BF16", {4}, EightBytes()}});
  ASSERT_TRUE(ParseHeader(bytes));
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(ParseHeader(bytes.substr(0, size))) << size;
  EXPECT_FALSE(ParseHeader(bytes + "x"));
}

TEST(SafetensorsTest, DeepNestingEndsEarly) {
  const std::string deep(1 << 20, '[');
  EXPECT_FALSE(ParseHeader(SafetensorsBytes("{\"a\":{\"x\":" + deep, "")));
  EXPECT_FALSE(ParseHeader(SafetensorsBytes("{\"a\":" + deep, "")));
}

// If a damaged file is accepted, its tensors must still cover it exactly.
TEST(SafetensorsTest, MutatedFilesAreRefusedOrConsistent) {
  const std::string valid = MakeSafetensors({{"model.a", "F32", {2, 3}, std::string(24, 'x')},
                                             {"model.b", "BF16", {4}, EightBytes()},
                                             {"s", "F32", {}, "1234"},
                                             {"e", "U8", {0}, ""}});
  ASSERT_TRUE(ParseHeader(valid));
  const std::string alphabet = "{}[]\",:0123456789eE+-.\\u \xff\x80\x01";
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int round = 0; round < 30000; ++round) {
    std::string bytes = valid;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0: bytes[at] = c; break;
        case 1: bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), c); break;
        case 2: bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at)); break;
        default: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      }
      if (bytes.empty()) bytes = "x";
    }
    const auto header = ParseHeader(bytes);
    if (!header) continue;
    ++accepted;
    uint64_t total = 0;
    for (const TensorInfo& tensor : header->tensors) {
      ASSERT_LE(tensor.offset + tensor.size_bytes, bytes.size());
      total += tensor.size_bytes;
      ASSERT_EQ(static_cast<uint64_t>(tensor.num_elements() * BitsPerElement(tensor.type)),
                tensor.size_bytes * 8);
    }
    ASSERT_LE(total, bytes.size());
  }
  EXPECT_GT(accepted, 100);  // changes of data and names are accepted
}

TEST(SafetensorsTest, FileErrorsNameTheFile) {
  const TemporaryFolder folder;
  WriteFile(folder.path() / "x.safetensors", "short");
  const auto file = SafetensorsFile::Open(folder.path() / "x.safetensors");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("x.safetensors"));
  EXPECT_THAT(file.error().message, HasSubstr("5 bytes"));
  EXPECT_EQ(SafetensorsFile::Open(folder.path() / "none").error().code, ErrorCode::kNotFound);
}

TEST(SafetensorsTest, GivesTheBytes) {
  const TemporaryFolder folder;
  WriteFile(folder.path() / "x.safetensors",
            MakeSafetensors({{"a", "U8", {3}, "abc"}, {"b", "U8", {2}, "de"}}));
  const auto file = SafetensorsFile::Open(folder.path() / "x.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  const auto bytes = file->Bytes(file->tensors()[1]);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "de");
}

}  // namespace
}  // namespace sluice
