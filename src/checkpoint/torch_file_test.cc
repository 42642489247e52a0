#include "checkpoint/torch_file.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string Little(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

using NamedParts = std::vector<std::pair<std::string, std::string>>;

// Returns a zip archive of uncompressed parts; `method` only sets the header field.
std::string Zip(const NamedParts& parts, uint16_t method = 0) {
  std::string file, list;
  for (const auto& [name, content] : parts) {
    const auto at = static_cast<uint32_t>(file.size());
    const auto size = static_cast<uint32_t>(content.size());
    std::string common;
    for (const std::string& field : {Little<uint16_t>(20), Little<uint16_t>(0), Little(method),
                                     Little<uint32_t>(0), Little<uint32_t>(0), Little(size),
                                     Little(size), Little(static_cast<uint16_t>(name.size()))})
      common.append(field);
    // torch aligns numbers with an extra field of padding.
    file.append("PK\3\4").append(common).append(Little<uint16_t>(3)).append(name);
    file.append("pad").append(content);
    list.append("PK\1\2").append(Little<uint16_t>(20)).append(common);
    list.append(std::string(12, '\0')).append(Little(at)).append(name);
  }
  const auto begin = static_cast<uint32_t>(file.size());
  const auto count = static_cast<uint16_t>(parts.size());
  return file + list + "PK\5\6" + Little<uint32_t>(0) + Little(count) + Little(count) +
         Little(static_cast<uint32_t>(list.size())) + Little(begin) + Little<uint16_t>(0);
}

std::string Text(const std::string& text) {
  return "X" + Little(static_cast<uint32_t>(text.size())) + text;
}

std::string Number(int32_t number) {
  return "J" + Little(number);
}

struct Saved {
  std::string type = "FloatStorage";
  int32_t numbers = 6, offset = 0;
  std::vector<int32_t> shape = {2, 3}, strides = {3, 1};
};

std::string TupleOf(const std::vector<int32_t>& numbers) {
  std::string tuple = "(";
  for (const int32_t number : numbers) tuple += Number(number);
  return tuple + "t";
}

// Returns the pickle that torch.save writes for a tensor.
std::string PickleOf(const Saved& saved) {
  return "\x80\x02"
         "ctorch._utils\n_rebuild_tensor_v2\nq\x01((" +
         Text("storage") + "q\x02" + "ctorch\n" + saved.type + "\n" + Text("0") + Text("cpu") +
         Number(saved.numbers) + "tQ" + Number(saved.offset) + TupleOf(saved.shape) + "q\x05" +
         TupleOf(saved.strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR.";
}

std::string Floats(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += Little(value);
  return bytes;
}

const std::string kSix = Floats({1, 2, 3, 4, 5, 6});

std::string FileOf(const Saved& saved, const std::string& numbers = kSix) {
  return Zip({{"archive/data.pkl", PickleOf(saved)},
              {"archive/byteorder", "little"},
              {"archive/data/0", numbers},
              {"archive/version", "3\n"}});
}

std::string RefusalOf(const std::string& file, int64_t most = 100) {
  const auto tensor = ReadTorchTensor(file, most);
  EXPECT_FALSE(tensor);
  if (tensor) return "";
  EXPECT_EQ(tensor.error().code, ErrorCode::kInvalidArgument);
  return tensor.error().message;
}

TEST(TorchFileTest, ReadsTensorsOfThreeTypes) {
  auto tensor = ReadTorchTensor(FileOf({}), 6);
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_THAT(tensor->shape, ElementsAre(2, 3));
  EXPECT_THAT(tensor->values, ElementsAre(1, 2, 3, 4, 5, 6));

  std::string halves;
  for (const uint16_t bits : {0x3C00, 0xC000, 0x3555}) halves += Little(bits);
  tensor = ReadTorchTensor(
      FileOf({.type = "HalfStorage", .numbers = 3, .shape = {3}, .strides = {1}}, halves), 6);
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_THAT(tensor->values, ElementsAre(1, -2, 0.333251953125f));
  tensor = ReadTorchTensor(
      FileOf({.type = "BFloat16Storage", .numbers = 3, .shape = {3}, .strides = {1}}, halves), 6);
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_EQ(tensor->values[0], 0x1p-7f);
}

TEST(TorchFileTest, ReadsPartsOfLargerTensors) {
  auto tensor = ReadTorchTensor(FileOf({.offset = 1, .shape = {1, 2, 2}, .strides = {9, 3, 1}}), 6);
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_THAT(tensor->shape, ElementsAre(1, 2, 2));
  EXPECT_THAT(tensor->values, ElementsAre(2, 3, 5, 6));
  tensor = ReadTorchTensor(FileOf({.shape = {3, 2}, .strides = {1, 3}}), 6);
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_THAT(tensor->values, ElementsAre(1, 4, 2, 5, 3, 6)) << "transposed";
  tensor = ReadTorchTensor(FileOf({.shape = {0, 3}}), 6);
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_TRUE(tensor->values.empty());
}

TEST(TorchFileTest, RefusesWhatIsNoDenseTensor) {
  EXPECT_THAT(RefusalOf(""), HasSubstr("no zip archive"));
  EXPECT_THAT(RefusalOf("AAAA"), HasSubstr("no zip archive"));
  EXPECT_THAT(RefusalOf(FileOf({}) + "comment"), HasSubstr("cut off"));
  EXPECT_THAT(RefusalOf(Zip({{"archive/data.pkl", PickleOf({})}}, 8)), HasSubstr("compressed"));
  EXPECT_THAT(RefusalOf(Zip({{"archive/data/0", kSix}})), HasSubstr("no data.pkl"));
  EXPECT_THAT(RefusalOf(Zip({{"archive/data.pkl", PickleOf({})}})), HasSubstr("numbers"));
  EXPECT_THAT(RefusalOf(Zip({{"a/x", ""}, {"a/x", ""}})), HasSubstr("the same name"));
  EXPECT_THAT(RefusalOf(Zip({{"a/byteorder", "big"}})), HasSubstr("little-endian"));
  EXPECT_THAT(RefusalOf(FileOf({.type = "LongStorage"})), HasSubstr("torch.LongStorage"));
  // A pickle that would run a shell command if it were executed.
  const std::string evil = "cposix\nsystem\n(" + Text("id") + "tR.";
  EXPECT_THAT(RefusalOf(Zip({{"archive/data.pkl", evil}})), HasSubstr("posix.system"));
  EXPECT_THAT(RefusalOf(Zip({{"archive/data.pkl", "\x80\x04."}})), HasSubstr("version"));
  EXPECT_THAT(RefusalOf(Zip({{"archive/data.pkl", "}."}})), HasSubstr("0x7d"));
  EXPECT_THAT(RefusalOf(Zip({{"archive/data.pkl", std::string(5000, '(')}})),
              HasSubstr("more than one tensor"));
}

TEST(TorchFileTest, RefusesTensorsThatLeaveTheirNumbers) {
  EXPECT_THAT(RefusalOf(FileOf({.shape = {3, 3}})), HasSubstr("longer than its numbers"));
  EXPECT_THAT(RefusalOf(FileOf({.offset = 1})), HasSubstr("longer than its numbers"));
  EXPECT_THAT(RefusalOf(FileOf({.offset = -1})), HasSubstr("number of dimensions"));
  EXPECT_THAT(RefusalOf(FileOf({.strides = {-3, 1}})), HasSubstr("negative"));
  EXPECT_THAT(RefusalOf(FileOf({.numbers = 7})), HasSubstr("fewer numbers"));
  EXPECT_THAT(RefusalOf(FileOf({.shape = {2}})), HasSubstr("number of dimensions"));
  EXPECT_THAT(RefusalOf(FileOf({}), 5), HasSubstr("more than 5 numbers"));
  EXPECT_EQ(ReadTorchTensor(FileOf({}), 5).error().param, kTooManyValues);
  EXPECT_THAT(RefusalOf(FileOf({.shape = {2147483647, 2147483647}, .strides = {0, 0}})),
              HasSubstr("more than 100 numbers"));
}

TEST(TorchFileTest, EveryCutAndEveryByteIsAnAnswer) {
  const std::string file = FileOf({});
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(ReadTorchTensor(file.substr(0, size), 6)) << size;
  for (size_t at = 0; at < file.size(); ++at) {
    for (const char flipped : {'\x01', '\x80', '\xFF'}) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ flipped);
      const auto tensor = ReadTorchTensor(damaged, 6);
      if (tensor) {
        EXPECT_LE(tensor->values.size(), 6u);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
