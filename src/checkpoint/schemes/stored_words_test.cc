// Tests which tensors form a layer whose integer codes share words, how they are decoded, and the
// errors for invalid ones.
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/scheme.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MakeSafetensors;
using testing::TemporaryFolder;
using testing::TestTensor;
using testing::WriteFile;

constexpr const char* kPackedBlock =
    R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {
    "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group",
    "group_size": 32, "symmetric": %s, "actorder": %s}}}})";
constexpr const char* kGptqBlock =
    R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": %s, "desc_act": %s,
        "checkpoint_format": "gptq"})";
constexpr const char* kAwqBlock =
    R"({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true})";

// Returns the text with each %s replaced.
std::string Filled(std::string text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) text.replace(text.find("%s"), 2, word);
  return text;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A weight of 8 outputs and 64 inputs in two groups of 32; formulas give each element's code, zero
// point and scale.
constexpr int64_t kOut = 8, kIn = 64, kGroupCount = 2;
uint32_t CodeOf(int64_t n, int64_t k) {
  return static_cast<uint32_t>((n * 5 + k * 3 + k / 16) % 16);
}
uint32_t ZeroOf(int64_t n, int64_t group) {
  return static_cast<uint32_t>((n * 3 + group * 7 + 1) % 16);
}
float ScaleOf(int64_t n, int64_t group) {
  return 0.25f * static_cast<float>(n + 1) + static_cast<float>(group);
}

using At = std::function<uint32_t(int64_t, int64_t)>;

// Returns 4-bit codes [rows, cols]. Eight consecutive codes of a row share a word, the first in the
// lowest bits.
std::string AlongCols(int64_t rows, int64_t cols, const At& at) {
  std::vector<uint32_t> words;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; c += 8) {
      uint32_t word = 0;
      for (int64_t i = 0; i < 8; ++i) word |= at(r, c + i) << (4 * i);
      words.push_back(word);
    }
  }
  return BytesOf(words);
}
// Like AlongCols, but eight consecutive codes of a column share a word.
std::string AlongRows(int64_t rows, int64_t cols, const At& at) {
  std::vector<uint32_t> words;
  for (int64_t r = 0; r < rows; r += 8) {
    for (int64_t c = 0; c < cols; ++c) {
      uint32_t word = 0;
      for (int64_t i = 0; i < 8; ++i) word |= at(r + i, c) << (4 * i);
      words.push_back(word);
    }
  }
  return BytesOf(words);
}
std::string Scales(bool transposed) {
  std::vector<float> scales;
  for (int64_t i = 0; i < kOut * kGroupCount; ++i) {
    scales.push_back(transposed ? ScaleOf(i % kOut, i / kOut)
                                : ScaleOf(i / kGroupCount, i % kGroupCount));
  }
  return BytesOf(scales);
}
// Returns the codes in the order of outputs in an AWQ word: element [0 2 4 6 1 3 5 7][place].
At Interleaved(const At& at) {
  return [at](int64_t r, int64_t c) {
    constexpr std::array<int64_t, 8> kOutputs = {0, 2, 4, 6, 1, 3, 5, 7};
    return at(r, c / 8 * 8 + kOutputs[static_cast<size_t>(c % 8)]);
  };
}

std::vector<TestTensor> PackedTensors() {
  return {{"m.weight_packed", "I32", {kOut, kIn / 8}, AlongCols(kOut, kIn, CodeOf)},
          {"m.weight_scale", "F32", {kOut, kGroupCount}, Scales(false)},
          {"m.weight_shape", "I64", {2}, BytesOf(std::vector<int64_t>{kOut, kIn})}};
}
TestTensor PackedZeros() {
  return {
      "m.weight_zero_point", "I32", {kOut / 8, kGroupCount}, AlongRows(kOut, kGroupCount, ZeroOf)};
}
// `less`: number that the format subtracts from every stored zero point.
std::vector<TestTensor> GptqTensors(const At& zero, uint32_t less) {
  return {{"m.qweight",
           "I32",
           {kIn / 8, kOut},
           AlongRows(kIn, kOut, [](int64_t k, int64_t n) { return CodeOf(n, k); })},
          {"m.qzeros",
           "I32",
           {kGroupCount, kOut / 8},
           AlongCols(kGroupCount, kOut,
                     [&](int64_t group, int64_t n) { return (zero(n, group) - less) & 15; })},
          {"m.scales", "F32", {kGroupCount, kOut}, Scales(true)}};
}
std::vector<TestTensor> AwqTensors() {
  return {{"m.qweight",
           "I32",
           {kIn, kOut / 8},
           AlongCols(kIn, kOut, Interleaved([](int64_t k, int64_t n) { return CodeOf(n, k); }))},
          {"m.qzeros",
           "I32",
           {kGroupCount, kOut / 8},
           AlongCols(kGroupCount, kOut,
                     Interleaved([](int64_t group, int64_t n) { return ZeroOf(n, group); }))},
          {"m.scales", "F32", {kGroupCount, kOut}, Scales(true)}};
}
TestTensor GroupIndex(const char* name, const std::function<int32_t(int64_t)>& group) {
  std::vector<int32_t> index;
  for (int64_t k = 0; k < kIn; ++k) index.push_back(group(k));
  return {name, "I32", {kIn}, BytesOf(index)};
}

class StoredWordsTest : public ::testing::Test {
 protected:
  Result<StoredLinear> Find(const std::string& block, const std::vector<TestTensor>& tensors,
                            int64_t cols = kIn) {
    checkpoint_.reset();
    WriteFile(folder_.path() / "model.safetensors", MakeSafetensors(tensors));
    auto opened = Checkpoint::Open(folder_.path());
    EXPECT_TRUE(opened) << opened.error().message;
    checkpoint_ = std::make_unique<Checkpoint>(*std::move(opened));
    const auto config = json::Parse(R"({"quantization_config": )" + block + "}");
    const auto scheme = ParseScheme(*config);
    EXPECT_TRUE(scheme) << scheme.error().message;
    return (*scheme)->Find(*checkpoint_, "m", kOut, cols);
  }
  std::string Failure(const std::string& block, const std::vector<TestTensor>& tensors,
                      int64_t cols = kIn) {
    const auto found = Find(block, tensors, cols);
    return found ? "found" : found.error().message;
  }
  void ExpectValues(const std::string& block, const std::vector<TestTensor>& tensors,
                    const At& zero, const std::function<int64_t(int64_t)>& group) {
    const auto found = Find(block, tensors);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->tensors.size(), tensors.size());
    std::vector<float> row(kIn);
    for (int64_t n = 0; n < kOut; ++n) {
      DecodeStoredRow(found->matrix, n, row.data());
      for (int64_t k = 0; k < kIn; ++k) {
        const auto number = static_cast<int>(CodeOf(n, k)) - static_cast<int>(zero(n, group(k)));
        ASSERT_EQ(row[static_cast<size_t>(k)], static_cast<float>(number) * ScaleOf(n, group(k)))
            << n << ", " << k;
      }
    }
  }

  TemporaryFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

uint32_t Eight(int64_t, int64_t) {
  return 8;
}
int64_t InOrder(int64_t k) {
  return k / 32;
}
int32_t Alternating(int64_t k) {
  return static_cast<int32_t>(k % 2);
}

TEST_F(StoredWordsTest, ValuesAreThoseOfTheDefinition) {
  auto packed = PackedTensors();
  ExpectValues(Filled(kPackedBlock, {"true", "null"}), packed, Eight, InOrder);
  packed.push_back(PackedZeros());
  ExpectValues(Filled(kPackedBlock, {"false", "\"weight\""}), packed, ZeroOf, InOrder);
  packed.push_back(GroupIndex("m.weight_g_idx", Alternating));
  ExpectValues(Filled(kPackedBlock, {"false", "\"group\""}), packed, ZeroOf, Alternating);
  auto gptq = GptqTensors(ZeroOf, 1);
  ExpectValues(Filled(kGptqBlock, {"false", "false"}), gptq, ZeroOf, InOrder);
  gptq.push_back(GroupIndex("m.g_idx", Alternating));
  ExpectValues(Filled(kGptqBlock, {"false", "true"}), gptq, ZeroOf, Alternating);
  std::string second = Filled(kGptqBlock, {"false", "false"});
  second.replace(second.find("\"gptq\"}"), 7, "\"gptq_v2\"}");
  ExpectValues(second, GptqTensors(ZeroOf, 0), ZeroOf, InOrder);
  ExpectValues(Filled(kGptqBlock, {"true", "false"}), GptqTensors(Eight, 1), Eight, InOrder);
  ExpectValues(kAwqBlock, AwqTensors(), ZeroOf, InOrder);
}

TEST_F(StoredWordsTest, AnIndexThatNobodySetIsPassedOver) {
  auto packed = PackedTensors();
  packed.push_back(GroupIndex("m.weight_g_idx", [](int64_t) { return -1; }));
  ExpectValues(Filled(kPackedBlock, {"true", "null"}), packed, Eight, InOrder);
}

TEST_F(StoredWordsTest, FaultsAreNamedWithWhatWasExpected) {
  const std::string gptq = Filled(kGptqBlock, {"false", "true"});
  const auto with = [](std::vector<TestTensor> tensors, const std::string& name,
                       const std::function<void(TestTensor&)>& change) {
    for (TestTensor& tensor : tensors) {
      if (tensor.name == name) change(tensor);
    }
    return tensors;
  };
  auto tensors = GptqTensors(ZeroOf, 1);
  EXPECT_THAT(Failure(gptq, tensors), AllOf(HasSubstr("'m.g_idx'"), HasSubstr("is missing")));
  tensors.push_back(GroupIndex("m.g_idx", [](int64_t k) { return k == 9 ? 2 : Alternating(k); }));
  EXPECT_THAT(Failure(gptq, tensors),
              AllOf(HasSubstr("'m.g_idx'"), HasSubstr("the group 2 for input 9"),
                    HasSubstr("groups from 0 to 1")));
  tensors.back() = GroupIndex("m.g_idx", [](int64_t k) { return k == 9 ? 0 : Alternating(k); });
  EXPECT_THAT(Failure(gptq, tensors),
              AllOf(HasSubstr("33 inputs in group 0"), HasSubstr("expected 32 inputs")));
  tensors.back() = GroupIndex("m.g_idx", Alternating);
  EXPECT_THAT(Failure(Filled(kGptqBlock, {"false", "false"}), tensors),
              AllOf(HasSubstr("'m.g_idx'"), HasSubstr("desc_act")));
  EXPECT_THAT(Failure(Filled(kGptqBlock, {"true", "true"}), tensors),
              AllOf(HasSubstr("'m.qzeros'"), HasSubstr("the zero point 1 for output 0, group 0"),
                    HasSubstr("sym to false")));
  EXPECT_THAT(Failure(gptq, with(tensors, "m.scales",
                                 [](auto& t) {
                                   t.shape = {kGroupCount, kOut / 2};
                                   t.data.resize(t.data.size() / 2);
                                 })),
              AllOf(HasSubstr("'m.scales'"), HasSubstr("shape [2, 4]"), HasSubstr("[2, 8]")));
  EXPECT_THAT(Failure(gptq, with(tensors, "m.qweight", [](auto& t) { t.dtype = "F32"; })),
              AllOf(HasSubstr("'m.qweight'"), HasSubstr("type F32"), HasSubstr("I32")));
  std::vector<TestTensor> fewer = tensors;
  std::erase_if(fewer, [](const TestTensor& t) { return t.name == "m.qzeros"; });
  EXPECT_THAT(Failure(gptq, fewer),
              AllOf(HasSubstr("'m.qzeros'"), HasSubstr("zero points"), HasSubstr("is missing")));
  EXPECT_THAT(Failure(gptq, tensors, 72),
              AllOf(HasSubstr("'m.qweight'"), HasSubstr("72 inputs"), HasSubstr("group size 32")));
  EXPECT_THAT(Failure(kAwqBlock, with(AwqTensors(), "m.qweight",
                                      [](auto& t) {
                                        t.shape = {kIn / 8, kOut};
                                      })),
              AllOf(HasSubstr("'m.qweight'"), HasSubstr("shape [8, 8]"), HasSubstr("[64, 1]")));
  EXPECT_THAT(Failure(Filled(kPackedBlock, {"false", "null"}), PackedTensors()),
              AllOf(HasSubstr("'m.weight_zero_point'"), HasSubstr("is missing")));
  EXPECT_THAT(Failure(Filled(kPackedBlock, {"true", "null"}),
                      with(PackedTensors(), "m.weight_shape",
                           [](auto& t) {
                             t.data = BytesOf(std::vector<int64_t>{8, 63});
                           })),
              AllOf(HasSubstr("'m.weight_shape'"), HasSubstr("[8, 63]"), HasSubstr("[8, 64]")));
}

// INT8: a word holds four codes; 128 is added to each.
int8_t Int8CodeOf(int64_t n, int64_t k) {
  return static_cast<int8_t>((n * 37 + k * 11) % 256 - 128);
}
std::string Bytes8(int64_t rows, int64_t cols, const std::function<int(int64_t, int64_t)>& at) {
  std::string bytes;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) bytes.push_back(static_cast<char>(at(r, c) + 128));
  }
  return bytes;
}
// qweight [in / 4, out]: a word holds four inputs.
std::string GptqWords8() {
  std::string bytes;
  for (int64_t k = 0; k < kIn; k += 4) {
    for (int64_t n = 0; n < kOut; ++n) {
      for (int64_t i = 0; i < 4; ++i)
        bytes.push_back(static_cast<char>(Int8CodeOf(n, k + i) + 128));
    }
  }
  return bytes;
}
std::vector<TestTensor> GptqTensors8(int zero) {
  return {{"m.qweight", "I32", {kIn / 4, kOut}, GptqWords8()},
          {"m.qzeros",
           "I32",
           {kGroupCount, kOut / 4},
           std::string(kGroupCount * kOut, static_cast<char>(zero))},
          {"m.scales", "F32", {kGroupCount, kOut}, Scales(true)}};
}
constexpr const char* kGptq8Block =
    R"({"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": true, "desc_act": %s,
        "checkpoint_format": "gptq"})";

TEST_F(StoredWordsTest, WordsOfInt8HaveAnOffset) {
  const auto expect = [&](const std::string& block, const std::vector<TestTensor>& tensors,
                          const std::function<int64_t(int64_t)>& group) {
    const auto found = Find(block, tensors);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->matrix.format.type, ElementType::kI8);
    EXPECT_EQ(found->tensors.size(), tensors.size());
    std::vector<float> row(kIn);
    for (int64_t n = 0; n < kOut; ++n) {
      DecodeStoredRow(found->matrix, n, row.data());
      for (int64_t k = 0; k < kIn; ++k)
        ASSERT_EQ(row[static_cast<size_t>(k)],
                  static_cast<float>(Int8CodeOf(n, k)) * ScaleOf(n, group(k)))
            << n << ", " << k;
    }
  };
  auto gptq = GptqTensors8(127);
  expect(Filled(kGptq8Block, {"false"}), gptq, InOrder);
  gptq.push_back(GroupIndex("m.g_idx", Alternating));
  expect(Filled(kGptq8Block, {"true"}), gptq, Alternating);
  std::string packed_block = Filled(kPackedBlock, {"true", "null"});
  packed_block.replace(packed_block.find("\"num_bits\": 4"), 13, "\"num_bits\": 8");
  const std::vector<TestTensor> packed = {
      {"m.weight_packed", "I32", {kOut, kIn / 4}, Bytes8(kOut, kIn, Int8CodeOf)},
      {"m.weight_scale", "F32", {kOut, kGroupCount}, Scales(false)},
      {"m.weight_shape", "I64", {2}, BytesOf(std::vector<int64_t>{kOut, kIn})}};
  expect(packed_block, packed, InOrder);
  EXPECT_THAT(
      Failure(Filled(kGptq8Block, {"false"}), GptqTensors8(100)),
      AllOf(HasSubstr("'m.qzeros'"), HasSubstr("the zero point 101"), HasSubstr("128 everywhere")));
}

// With "dynamic", some modules have their own settings. The tested module is one of them.
TEST_F(StoredWordsTest, DynamicSettingsAreThoseOfTheModule) {
  std::string block = Filled(kGptqBlock, {"true", "false"});
  block.insert(block.find("\"bits\""), R"("dynamic": {"-:other": {}, "+:^m$": {"bits": 8}}, )");
  const auto found = Find(block, GptqTensors8(127));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->matrix.format.type, ElementType::kI8);
}

// Inputs of static INT8 have a scale and a zero point.
TEST_F(StoredWordsTest, InputsMayHaveAZeroPoint) {
  constexpr const char* kStatic =
      R"({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"g": {
      "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
      "input_activations": {"num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": false,
                            "symmetric": false}}}})";
  std::vector<TestTensor> tensors = {
      {"m.weight", "I8", {kOut, kIn}, std::string(kOut * kIn, '\x05')},
      {"m.weight_scale", "F32", {kOut, 1}, BytesOf(std::vector<float>(kOut, 0.5f))},
      {"m.input_scale", "F32", {1}, BytesOf(std::vector<float>{0.25f})},
      {"m.input_zero_point", "I8", {1}, "\xEF"}};
  const auto found = Find(kStatic, tensors);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->activations.kind, ActivationFormat::Kind::kInt8Static);
  EXPECT_EQ(found->activations.zero_point, -17);
  EXPECT_EQ(found->input_scale, 0.25f);
  tensors.back() = {"m.input_zero_point", "I32", {1}, BytesOf(std::vector<int32_t>{200})};
  EXPECT_THAT(Failure(kStatic, tensors),
              AllOf(HasSubstr("'m.input_zero_point'"), HasSubstr("200")));
  tensors.pop_back();
  EXPECT_EQ(Find(kStatic, tensors)->activations.zero_point, 0);
}

}  // namespace
}  // namespace sluice
