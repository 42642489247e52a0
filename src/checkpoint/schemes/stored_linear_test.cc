// Tests which tensors are found for a layer, and the errors for invalid ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/scheme.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeSafetensors;
using testing::TemporaryFolder;
using testing::TestTensor;
using testing::WriteFile;

constexpr const char* kModelOptFp8 = R"({"quant_method": "modelopt", "quant_algo": "FP8"})";
constexpr const char* kModelOptNvfp4 =
    R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["out"]})";
constexpr const char* kBlock =
    R"({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})";
constexpr const char* kPerTensor = R"({"quant_method": "fp8", "activation_scheme": "static"})";
constexpr const char* kRows = R"({"quant_method": "compressed-tensors", "config_groups": {"g": {
    "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
    "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true}}}})";
constexpr const char* kCompressedNvfp4 =
    R"({"quant_method": "compressed-tensors", "config_groups": {"g": {
    "targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group",
                                       "group_size": 16},
    "input_activations": {"num_bits": 4, "type": "float", "strategy": "tensor_group",
                          "group_size": 16, "dynamic": "local"}}}})";
constexpr const char* kGptOss = R"({"quant_method": "mxfp4", "modules_to_not_convert": [
    "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]})";
constexpr const char* kMxfp4 = R"({"quant_method": "quark", "global_quant_config": {
    "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}})";

std::string F32(std::initializer_list<float> values) {
  std::string data;
  for (const float value : values) data.append(reinterpret_cast<const char*>(&value), 4);
  return data;
}
std::string BF16(std::initializer_list<uint16_t> values) {
  std::string data;
  for (const uint16_t value : values) data.append(reinterpret_cast<const char*>(&value), 2);
  return data;
}

class StoredLinearTest : public ::testing::Test {
 protected:
  void Write(std::vector<TestTensor> tensors) {
    for (TestTensor& tensor : tensors) {
      if (!tensor.data.empty()) continue;
      int64_t bytes = BitsPerElement(*ParseElementType(tensor.dtype)) / 8;
      for (const int64_t size : tensor.shape) bytes *= size;
      tensor.data.assign(static_cast<size_t>(bytes), '\x38');  // 1 in E4M3
    }
    checkpoint_.reset();
    WriteFile(folder_.path() / "model.safetensors", MakeSafetensors(tensors));
    auto opened = Checkpoint::Open(folder_.path());
    ASSERT_TRUE(opened) << opened.error().message;
    checkpoint_ = std::make_unique<Checkpoint>(*std::move(opened));
  }

  static std::shared_ptr<const QuantizationScheme> Scheme(const std::string& block) {
    const auto config =
        json::Parse(R"({"dtype": "bfloat16", "quantization_config": )" + block + "}");
    EXPECT_TRUE(config) << block;
    const auto scheme = ParseScheme(*config);
    EXPECT_TRUE(scheme) << scheme.error().message;
    return *scheme;
  }

  Result<StoredLinear> Find(const std::string& block, int64_t rows, int64_t cols,
                            const std::string& module = "m") {
    auto found = Scheme(block)->Find(*checkpoint_, module, rows, cols);
    if (found) {
      if (const Status status = CheckScales(*found); !status)
        return tl::unexpected<Error>(status.error());
    }
    return found;
  }
  std::string Failure(const std::string& block, int64_t rows, int64_t cols) {
    const auto found = Find(block, rows, cols);
    return found ? "found" : found.error().message;
  }
  std::vector<float> Row(const StoredLinear& linear, int64_t row) {
    std::vector<float> values(static_cast<size_t>(linear.matrix.cols));
    DecodeStoredRow(linear.matrix, row, values.data());
    return values;
  }

  TemporaryFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(StoredLinearTest, ExpertsOfGptOssAreBlocksAndScales) {
  // Two experts of 2 x 32: codes, and power-of-two scales.
  Write({{"e.experts.down_proj_blocks",
          "U8",
          {2, 2, 1, 16},
          std::string(32, '\x42') + std::string(32, '\x24')},
         {"e.experts.down_proj_scales", "U8", {2, 2, 1}, "\x7F\x80\x81\x82"}});
  const auto scheme = Scheme(kGptOss);
  // The blocks are stored by rows, even if unquantized experts are transposed.
  const auto expert =
      scheme->FindFusedExpert(*checkpoint_, "e.experts.down_proj", 1, 2, 2, 32, true);
  ASSERT_TRUE(expert) << expert.error().message;
  ASSERT_TRUE(*expert);
  EXPECT_EQ(Row(**expert, 0)[0], 8);
  EXPECT_EQ(Row(**expert, 0)[1], 4);
  EXPECT_EQ(Row(**expert, 1)[31], 8);
  EXPECT_FALSE((*expert)->matrix.transposed);
  const auto failure = [&](int64_t rows, int64_t cols) {
    const auto found =
        scheme->FindFusedExpert(*checkpoint_, "e.experts.down_proj", 0, 2, rows, cols, true);
    return found ? "found" : found.error().message;
  };
  EXPECT_THAT(failure(3, 32), AllOf(HasSubstr("down_proj_blocks"), HasSubstr("[2, 2, 1, 16]")));
  EXPECT_THAT(failure(2, 40), HasSubstr("whole groups of 32"));
  Write({{"e.experts.down_proj_blocks", "U8", {2, 2, 1, 16}}});
  EXPECT_THAT(failure(2, 32), HasSubstr("e.experts.down_proj_scales"));
  EXPECT_EQ(scheme->PlannedFormat("model.layers.0.mlp.experts.3.down_proj").type,
            ElementType::kF4E2M1);
  EXPECT_EQ(scheme->PlannedFormat("model.layers.0.self_attn.q_proj").type, ElementType::kBF16);
}

TEST_F(StoredLinearTest, ScalarsComeInAllShapesAndTypes) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1}}) {
    Write({{"m.weight", "F8_E4M3", {2, 2}},
           {"m.weight_scale", "F32", shape, F32({0.5f})},
           {"m.input_scale", "BF16", shape, BF16({0x4000})}});
    const auto found = Find(kModelOptFp8, 2, 2);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_THAT(Row(*found, 1), ElementsAre(0.5f, 0.5f));
    EXPECT_EQ(found->input_scale, 2.0f);
    EXPECT_EQ(found->activations.kind, ActivationFormat::Kind::kFp8Static);
    EXPECT_EQ(found->tensors.size(), 3u);
  }
}

TEST_F(StoredLinearTest, DecidesByWhatIsStored) {
  Write({{"m.weight", "BF16", {2, 2}, BF16({0x3F80, 0x4000, 0xBF80, 0})}});
  auto found = Find(kModelOptFp8, 2, 2);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(Row(*found, 0), ElementsAre(1, 2));
  EXPECT_EQ(found->activations.kind, ActivationFormat::Kind::kNone);
  EXPECT_THAT(found->surprise, HasSubstr("plain numbers although"));
  // A router is never quantized, so an unquantized one does not contradict the configuration.
  Write({{"model.layers.0.mlp.gate.weight", "BF16", {2, 2}}});
  found = Find(kModelOptFp8, 2, 2, "model.layers.0.mlp.gate");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->surprise, nullptr);
  // The layer is quantized although the configuration excludes it.
  Write({{"out.weight", "U8", {2, 8}},
         {"out.weight_scale", "F8_E4M3", {2, 1}},
         {"out.weight_scale_2", "F32", {}, F32({2})},
         {"out.input_scale", "F32", {}, F32({1})}});
  found = Find(kModelOptNvfp4, 2, 16, "out");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(found->surprise, HasSubstr("quantized although"));
  // The low four bits are the first code: 0x38 is 8 (-0), then 3 (1.5); the scale is 1, the second
  // scale 2.
  EXPECT_EQ(Row(*found, 0)[0], 0);
  EXPECT_EQ(Row(*found, 0)[1], 3);
}

TEST_F(StoredLinearTest, GlobalScalesOfCompressedTensorsAreDivisors) {
  Write({{"m.weight_packed", "U8", {2, 8}},
         {"m.weight_scale", "F8_E4M3", {2, 1}},
         {"m.weight_global_scale", "F32", {1}, F32({4})},
         {"m.input_global_scale", "F32", {1}, F32({8})}});
  const auto found = Find(kCompressedNvfp4, 2, 16);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(Row(*found, 1)[1], 1.5f / 4);
  EXPECT_EQ(found->input_scale, 0.125f);
}

TEST_F(StoredLinearTest, BlocksAtTheEdgeArePartial) {
  std::string scales;
  for (int i = 0; i < 6; ++i) scales += F32({static_cast<float>(i + 1)});
  Write({{"m.weight", "F8_E4M3", {130, 320}}, {"m.weight_scale_inv", "F32", {2, 3}, scales}});
  const auto found = Find(kBlock, 130, 320);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(Row(*found, 127)[255], 2);
  EXPECT_EQ(Row(*found, 128)[256], 6);  // weight_scale_inv multiplies, despite its name
  EXPECT_EQ(found->activations.group_size, 128);
  // Blocks span all columns; the scales are stored without the dimension of columns.
  Write({{"m.weight", "F8_E4M3", {130, 64}}, {"m.weight_scale_inv", "F32", {2}, F32({1, 2})}});
  EXPECT_TRUE(Find(kBlock, 130, 64));
}

TEST_F(StoredLinearTest, PerTensorScalesUnderTheBlocksName) {
  Write({{"m.weight", "F8_E4M3", {2, 2}},
         {"m.weight_scale_inv", "F32", {}, F32({3})},
         {"m.activation_scale", "F32", {}, F32({5})}});
  const auto found = Find(kPerTensor, 2, 2);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(Row(*found, 0), ElementsAre(3, 3));
  EXPECT_EQ(found->input_scale, 5.0f);
}

TEST_F(StoredLinearTest, FaultsNameTheTensorWhatWasExpectedAndWhatWasFound) {
  const TestTensor weight{"m.weight", "F8_E4M3", {2, 2}};
  const TestTensor scale{"m.weight_scale", "F32", {}, F32({1})};
  const TestTensor input{"m.input_scale", "F32", {}, F32({1})};
  const auto scale_of = [&](float value) {
    return TestTensor{"m.weight_scale", "F32", {}, F32({value})};
  };
  const struct {
    const char* block;
    int64_t rows, cols;
    std::vector<TestTensor> tensors;
    std::vector<const char*> named;
  } kCases[] = {
      {kModelOptFp8, 2, 2, {scale, input}, {"'m.weight' of shape [2, 2] is missing"}},
      {kModelOptFp8, 2, 3, {weight, scale, input}, {"m.weight", "[2, 2]", "[2, 3]"}},
      {kModelOptFp8, 2, 2, {weight, input}, {"'m.weight_scale'", "is missing"}},
      {kModelOptFp8, 2, 2, {weight, scale}, {"'m.input_scale'", "is missing"}},
      {kModelOptFp8, 2, 2, {{"m.weight", "U8", {2, 2}}, scale, input}, {"type U8", "F8_E4M3"}},
      {kModelOptFp8, 2, 2, {{"m.weight", "F8_E5M2", {2, 2}}, scale, input}, {"F8_E5M2"}},
      {kModelOptFp8,
       2,
       2,
       {weight, {"m.weight_scale", "F32", {2}, F32({1, 1})}, input},
       {"m.weight_scale", "shape [2]"}},
      {kModelOptFp8, 2, 2, {weight, {"m.weight_scale", "F64", {}}, input}, {"type F64"}},
      {kModelOptFp8, 2, 2, {weight, scale_of(0), input}, {"m.weight_scale", "0"}},
      {kModelOptFp8, 2, 2, {weight, scale_of(-1), input}, {"m.weight_scale", "-1"}},
      {kModelOptFp8, 2, 2, {weight, scale_of(INFINITY), input}, {"m.weight_scale", "inf"}},
      {kModelOptFp8, 2, 2, {weight, scale_of(NAN), input}, {"m.weight_scale", "nan"}},
      {kModelOptFp8,
       2,
       2,
       {weight, scale, {"m.input_scale", "F32", {}, F32({NAN})}},
       {"m.input_scale", "nan"}},
      {kModelOptFp8,
       2,
       2,
       {weight, scale, {"m.input_scale", "F32", {3}, F32({1, 1, 1})}},
       {"m.input_scale", "[3]", "one number"}},
      {kPerTensor,
       2,
       2,
       {weight, scale, {"m.weight_scale_inv", "F32", {}, F32({1})}, input},
       {"m.weight_scale", "m.weight_scale_inv", "same scale"}},
      {kRows, 2, 2, {weight, scale}, {"m.weight_scale", "shape []", "[2, 1]"}},
      {kRows,
       3,
       2,
       {{"m.weight", "F8_E4M3", {3, 2}},
        {"m.weight_scale", "BF16", {3, 1}, BF16({0x3F80, 0x7FC0, 1})}},
       {"m.weight_scale", "nan", "element 1"}},
      {kBlock,
       256,
       128,
       {{"m.weight", "F8_E4M3", {256, 128}}, {"m.weight_scale_inv", "F32", {1, 2}, F32({1, 1})}},
       {"found"}},  // dimensions of size 1 are ignored
      {kBlock,
       256,
       256,
       {{"m.weight", "F8_E4M3", {256, 256}}, {"m.weight_scale_inv", "F32", {2}, F32({1, 1})}},
       {"m.weight_scale_inv", "[2]", "[2, 2]"}},
      {kModelOptNvfp4, 2, 24, {{"m.weight", "U8", {2, 12}}}, {"24 inputs", "group size 16"}},
      {kModelOptNvfp4, 2, 16, {{"m.weight", "U8", {2, 16}}}, {"[2, 16]", "[2, 8]"}},
      {kModelOptNvfp4,
       2,
       16,
       {{"m.weight", "U8", {2, 8}}, {"m.weight_scale", "U8", {2, 1}}},
       {"m.weight_scale", "type U8", "F8_E4M3"}},
      {kModelOptNvfp4,
       2,
       16,
       {{"m.weight", "U8", {2, 8}}, {"m.weight_scale", "F8_E4M3", {2, 1}}, input},
       {"'m.weight_scale_2'", "is missing"}},
      {kModelOptNvfp4,
       2,
       16,
       {{"m.weight", "U8", {2, 8}},
        {"m.weight_scale", "F8_E4M3", {2, 1}, "\x38\x7f"},
        {"m.weight_scale_2", "F32", {}, F32({1})},
        input},
       {"m.weight_scale", "NaN", "element 1"}},
      {kModelOptNvfp4,
       2,
       16,
       {{"m.weight", "U8", {2, 8}},
        {"m.weight_scale", "F8_E4M3", {2, 1}, "\x38\xb8"},
        {"m.weight_scale_2", "F32", {}, F32({1})},
        input},
       {"m.weight_scale", "below 0"}},
      {kModelOptNvfp4,
       2,
       16,
       {{"m.weight", "U8", {2, 8}},
        {"m.weight_scale", "F8_E4M3", {2, 1}, std::string("\x38\0", 2)},
        {"m.weight_scale_2", "F32", {}, F32({1})},
        input},
       {"found"}},  // a group of zeros has the scale 0
      {kMxfp4,
       2,
       32,
       {{"m.weight", "U8", {2, 16}}, {"m.weight_scale", "U8", {2, 1}, "\x7f\xff"}},
       {"m.weight_scale", "NaN"}},
      {kMxfp4,
       2,
       32,
       {{"m.weight", "U8", {2, 16}}, {"m.weight_scale", "F8_E8M0", {2, 1}}},
       {"found"}},
      {kMxfp4,
       2,
       64,
       {{"m.weight", "U8", {2, 32}}, {"m.weight_scale", "U8", {2, 1}}},
       {"[2, 1]", "[2, 2]"}},
  };
  for (const auto& test : kCases) {
    Write(test.tensors);
    const std::string message = Failure(test.block, test.rows, test.cols);
    for (const char* named : test.named) EXPECT_THAT(message, HasSubstr(named));
  }
}

TEST_F(StoredLinearTest, ExpertsOfOneTensor) {
  std::string data;
  for (int i = 0; i < 12; ++i) data += static_cast<char>(i % 2 == 0 ? 0x38 : 0x40);
  Write({{"e.gate_up_proj", "F8_E4M3", {2, 2, 3}, data},  // [experts, in, out]
         {"e.gate_up_proj_weight_scale", "F32", {}, F32({2})},
         {"e.gate_up_proj_input_scale", "F32", {}, F32({3})}});
  const auto scheme = Scheme(kModelOptFp8);
  auto expert = scheme->FindFusedExpert(*checkpoint_, "e.gate_up_proj", 1, 2, 3, 2, true);
  ASSERT_TRUE(expert && *expert) << expert.error().message;
  EXPECT_THAT(Row(**expert, 0), ElementsAre(2, 4));
  EXPECT_THAT(Row(**expert, 1), ElementsAre(4, 2));
  EXPECT_EQ((*expert)->input_scale, 3.0f);
  EXPECT_FALSE(*scheme->FindFusedExpert(*checkpoint_, "e.down_proj", 0, 2, 2, 3, true));
  // Without `transposed`, the same tensor has a wrong shape.
  expert = scheme->FindFusedExpert(*checkpoint_, "e.gate_up_proj", 1, 2, 3, 2, false);
  ASSERT_FALSE(expert);
  EXPECT_THAT(expert.error().message, AllOf(HasSubstr("[2, 2, 3]"), HasSubstr("[2, 3, 2]")));
  // A scale per expert.
  Write({{"e.gate_up_proj", "F8_E4M3", {2, 2, 3}, data},
         {"e.gate_up_proj_weight_scale", "F32", {2}, F32({2, 5})},
         {"e.gate_up_proj_input_scale", "F32", {2}, F32({3, 7})}});
  expert = scheme->FindFusedExpert(*checkpoint_, "e.gate_up_proj", 1, 2, 3, 2, true);
  ASSERT_TRUE(expert && *expert) << expert.error().message;
  EXPECT_THAT(Row(**expert, 0), ElementsAre(5, 10));
  EXPECT_EQ((*expert)->input_scale, 7.0f);
}

TEST_F(StoredLinearTest, KvScalesUnderAllNames) {
  const std::string a = "model.layers.0.self_attn";
  const auto scheme = PlainScheme(ElementType::kBF16);
  const struct {
    const char *k, *v;
  } kNames[] = {{".k_proj.k_scale", ".v_proj.v_scale"},
                {".k_scale", ".v_scale"},
                {".k_proj.output_scale", ".v_proj.output_scale"},
                {".qkv_proj.k_scale", ".qkv_proj.v_scale"},
                {".k_cache.scale", ".v_cache.scale"},
                {".attn.k_scale", ".attn.v_scale"}};
  for (const auto& names : kNames) {
    Write({{a + names.k, "F32", {}, F32({0.02f})}, {a + names.v, "BF16", {1}, BF16({0x4070})}});
    const auto scales = scheme->FindKvScales(*checkpoint_, a);
    ASSERT_TRUE(scales) << scales.error().message;
    EXPECT_EQ(scales->k, 0.02f) << names.k;
    EXPECT_EQ(scales->v, 3.75f) << names.k;
    EXPECT_TRUE(scales->stored);
    EXPECT_EQ(scales->tensors.size(), 2u);
  }
  Write({{a + ".kv_scale", "F32", {}, F32({0.5f})}});
  EXPECT_EQ(scheme->FindKvScales(*checkpoint_, a)->v, 0.5f);
  Write({{a + ".k_scale", "F32", {}, F32({0.5f})}});
  EXPECT_EQ(scheme->FindKvScales(*checkpoint_, a)->v, 0.5f);  // a single scale applies to both
  EXPECT_FALSE(scheme->FindKvScales(*checkpoint_, "model.layers.1.self_attn")->stored);
  for (const auto& bad : {F32({0}), F32({NAN}), F32({-2})}) {
    Write({{a + ".k_scale", "F32", {}, bad}});
    EXPECT_FALSE(scheme->FindKvScales(*checkpoint_, a));
  }
  Write({{a + ".k_scale", "F32", {2}, F32({1, 1})}});
  EXPECT_THAT(scheme->FindKvScales(*checkpoint_, a).error().message, HasSubstr("shape [2]"));
  Write({{a + ".k_scale", "F32", {}, F32({1})}, {a + ".k_proj.k_scale", "F32", {}, F32({2})}});
  EXPECT_THAT(scheme->FindKvScales(*checkpoint_, a).error().message, HasSubstr("same cache"));
}

TEST_F(StoredLinearTest, KnowsWhatIsSuperfluous) {
  Write({{"model.layers.0.self_attn.q_scale", "F32", {}},
         {"model.layers.0.self_attn.prob_output_scale", "F32", {}},
         {"m.weight_zero_point", "I8", {2}, std::string(2, '\0')},
         {"n.weight_zero_point", "I8", {2}, std::string("\0\1", 2)},
         {"m.pre_quant_scale", "F32", {}},
         {"m.output_scale", "F32", {}}});
  const auto scheme = Scheme(kModelOptFp8);
  const auto is_superfluous = [&](const char* name) {
    return scheme->IsSuperfluous(*checkpoint_, name);
  };
  EXPECT_TRUE(is_superfluous("model.layers.0.self_attn.q_scale"));
  EXPECT_TRUE(is_superfluous("model.layers.0.self_attn.prob_output_scale"));
  EXPECT_TRUE(is_superfluous("m.weight_zero_point"));
  EXPECT_FALSE(is_superfluous("n.weight_zero_point"));
  EXPECT_FALSE(is_superfluous("m.pre_quant_scale"));
  EXPECT_FALSE(is_superfluous("m.output_scale"));
}

TEST_F(StoredLinearTest, NamesOfModelsWithImagesAreCanonical) {
  Write({{"language_model.model.layers.0.mlp.up_proj.weight", "BF16", {1, 2}},
         {"model.language_model.layers.0.mlp.down_proj.weight", "BF16", {1, 2}},
         {"language_model.lm_head.weight", "BF16", {1, 2}},
         {"vision_model.x", "BF16", {1}}});
  EXPECT_NE(checkpoint_->Find("model.layers.0.mlp.up_proj.weight"), nullptr);
  EXPECT_NE(checkpoint_->Find("model.layers.0.mlp.down_proj.weight"), nullptr);
  EXPECT_NE(checkpoint_->Find("lm_head.weight"), nullptr);
  EXPECT_NE(checkpoint_->Find("vision_model.x"), nullptr);
  WriteFile(folder_.path() / "model.safetensors",
            MakeSafetensors({{"language_model.lm_head.weight", "U8", {1}, "1"},
                             {"lm_head.weight", "U8", {1}, "1"}}));
  const auto twice = Checkpoint::Open(folder_.path());
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr("two names of the same tensor"));
}

}  // namespace
}  // namespace sluice
