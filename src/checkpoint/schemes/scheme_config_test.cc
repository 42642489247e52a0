// How quantization configurations of all tools are parsed, and which are refused.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json_testing.h"
#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/scheme.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Json;
using testing::TemporaryFolder;
using testing::WriteFile;
using Kind = ActivationFormat::Kind;
using Layout = DataFormat::ScaleLayout;

Result<std::shared_ptr<const QuantizationScheme>> Parse(const std::string& block) {
  return ParseScheme(Json(R"({"dtype": "bfloat16", "quantization_config": )" + block + "}"));
}

std::shared_ptr<const QuantizationScheme> Good(const std::string& block) {
  auto scheme = Parse(block);
  EXPECT_TRUE(scheme) << block << ": " << scheme.error().message;
  return scheme ? *scheme : PlainScheme(ElementType::kBF16);
}

std::string Refusal(const std::string& block) {
  const auto scheme = Parse(block);
  return scheme ? "accepted" : scheme.error().message;
}

constexpr const char* kUp = "model.layers.0.mlp.up_proj";

// Returns `text` with `from` replaced. REQUIRES: `from` occurs in it.
std::string With(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

const std::string kCompressedFp8 = R"({"quant_method": "compressed-tensors",
  "format": "float-quantized", "ignore": ["lm_head"], "kv_cache_scheme": null,
  "sparsity_config": {}, "transform_config": {}, "version": "0.14.0",
  "quantization_status": "compressed", "global_compression_ratio": 1.5,
  "config_groups": {"group_0": {"targets": ["Linear"], "output_activations": null,
    "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true,
                "dynamic": false, "group_size": null, "actorder": null},
    "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true,
                          "symmetric": true}}}})";

const std::string kQuarkFp8 = R"({"quant_method": "quark", "exclude": ["lm_head"],
  "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor",
      "is_dynamic": false, "symmetric": true, "scale_type": "float"},
    "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": false},
    "output_tensors": null, "bias": null},
  "layer_quant_config": {}, "layer_type_quant_config": {}, "algo_config": null,
  "export": {"kv_cache_group": [], "weight_format": "real_quantized", "pack_method": "reorder"}})";

const std::string kBlockFp8 = R"({"quant_method": "fp8", "fmt": "e4m3",
  "activation_scheme": "dynamic", "weight_block_size": [128, 128],
  "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]})";

const std::string kPacked = R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
  "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
    "input_activations": null, "weights": {"num_bits": 4, "type": "int", "strategy": "group",
      "symmetric": true, "dynamic": false, "group_size": 128, "actorder": null}}}})";

const std::string kGptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 128,
  "desc_act": false, "sym": true, "lm_head": false, "damp_percent": 0.1, "true_sequential": true,
  "checkpoint_format": "gptq", "meta": {"quantizer": ["gptqmodel:1.0"]}})";

const std::string kAwq = R"({"quant_method": "awq", "bits": 4, "group_size": 128,
  "zero_point": true, "version": "gemm", "modules_to_not_convert": null})";

TEST(SchemeConfigTest, UnderstandsEveryTool) {
  const struct {
    std::string block;
    const char *name, *method;
    ElementType type;
    Layout layout;
    Kind activations;
  } kCases[] = {
      {R"({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]})",
       "ModelOpt FP8", "modelopt", ElementType::kF8E4M3, Layout::kPerTensor, Kind::kFp8Static},
      {R"({"quant_method": "ModelOpt", "quant_algo": "fp8", "ignore": ["lm_head"]})",
       "ModelOpt FP8", "modelopt", ElementType::kF8E4M3, Layout::kPerTensor, Kind::kFp8Static},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16,
           "exclude_modules": ["lm_head"]})",
       "ModelOpt NVFP4", "modelopt_fp4", ElementType::kF4E2M1, Layout::kPerGroup, Kind::kNvfp4},
      {R"({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": ["lm_head"]})",
       "ModelOpt W4A16_NVFP4", "modelopt_fp4", ElementType::kF4E2M1, Layout::kPerGroup,
       Kind::kNone},
      {R"({"quant_method": "modelopt", "ignore": ["lm_head"], "config_groups": {"g": {
           "weights": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": false},
           "input_activations": {"num_bits": 4}, "targets": ["Linear"]}}})",
       "ModelOpt NVFP4", "modelopt_fp4", ElementType::kF4E2M1, Layout::kPerGroup, Kind::kNvfp4},
      {R"({"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN",
           "ignore": ["lm_head"]})",
       "ModelOpt FP8_PER_CHANNEL_PER_TOKEN", "modelopt", ElementType::kF8E4M3, Layout::kPerRow,
       Kind::kFp8PerToken},
      {R"({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO", "ignore": ["lm_head"]})",
       "ModelOpt FP8_PB_WO", "modelopt", ElementType::kF8E4M3, Layout::kPerBlock, Kind::kNone},
      {kQuarkFp8, "Quark FP8 per-tensor", "quark", ElementType::kF8E4M3, Layout::kPerTensor,
       Kind::kFp8Static},
      {kBlockFp8, "FP8 in blocks of 128x128", "fp8", ElementType::kF8E4M3, Layout::kPerBlock,
       Kind::kFp8PerGroup},
      {R"({"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]})",
       "FP8 per tensor", "fp8", ElementType::kF8E4M3, Layout::kPerTensor, Kind::kFp8Static},
      {R"({"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ["lm_head"]})",
       "FP8 per tensor", "fp8", ElementType::kF8E4M3, Layout::kPerTensor, Kind::kFp8PerToken},
      {kCompressedFp8, "compressed-tensors FP8 per-row", "compressed-tensors", ElementType::kF8E4M3,
       Layout::kPerRow, Kind::kFp8PerToken},
      {With(kCompressedFp8, R"("quant_method": "compressed-tensors",)", ""),
       "compressed-tensors FP8 per-row", "compressed-tensors", ElementType::kF8E4M3,
       Layout::kPerRow, Kind::kFp8PerToken},
      {With(kPacked, "128", "32"), "compressed-tensors INT4 in groups of 32 weight-only",
       "compressed-tensors", ElementType::kInt4, Layout::kPerGroup, Kind::kNone},
      {With(kPacked, R"("symmetric": true)", R"("symmetric": false)"),
       "compressed-tensors INT4 in groups of 128, asymmetric weight-only", "compressed-tensors",
       ElementType::kInt4, Layout::kPerGroup, Kind::kNone},
      {With(With(kPacked, R"("group")", R"("channel")"), R"("group_size": 128)",
            R"("group_size": null)"),
       "compressed-tensors INT4 per row weight-only", "compressed-tensors", ElementType::kInt4,
       Layout::kPerRow, Kind::kNone},
      {kGptq, "GPTQ INT4 in groups of 128", "gptq", ElementType::kInt4, Layout::kPerGroup,
       Kind::kNone},
      {With(With(kGptq, R"("sym": true)", R"("sym": false)"), R"("desc_act": false)",
            R"("desc_act": true)"),
       "GPTQ INT4 in groups of 128, asymmetric, inputs reordered", "gptq", ElementType::kInt4,
       Layout::kPerGroup, Kind::kNone},
      {With(kGptq, R"("bits": 4)", R"("bits": 8)"), "GPTQ INT8 in groups of 128", "gptq",
       ElementType::kI8, Layout::kPerGroup, Kind::kNone},
      {With(kPacked, R"("num_bits": 4)", R"("num_bits": 8)"),
       "compressed-tensors INT8 in groups of 128 weight-only", "compressed-tensors",
       ElementType::kI8, Layout::kPerGroup, Kind::kNone},
      {R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
           "modules_to_not_convert": ["lm_head"]})",
       "FP8 per row (fbgemm)", "fbgemm_fp8", ElementType::kF8E4M3, Layout::kPerRow,
       Kind::kFp8PerToken},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"W8A8": ["Linear"]},
           "ignore": ["lm_head"], "kv_cache_scheme": {"num_bits": 8, "type": "int",
           "strategy": "tensor", "symmetric": true, "dynamic": false}})",
       "compressed-tensors INT8", "compressed-tensors", ElementType::kI8, Layout::kPerRow,
       Kind::kInt8PerToken},
      {With(kGptq, "128", "-1"), "GPTQ INT4 per row", "gptq", ElementType::kInt4, Layout::kPerRow,
       Kind::kNone},
      {kAwq, "AWQ INT4 in groups of 128, asymmetric", "awq", ElementType::kInt4, Layout::kPerGroup,
       Kind::kNone},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.block);
    const auto scheme = Good(test.block);
    EXPECT_EQ(scheme->Name(), test.name);
    EXPECT_EQ(scheme->Method(), test.method);
    EXPECT_EQ(scheme->PlannedFormat(kUp).type, test.type);
    EXPECT_EQ(scheme->PlannedFormat(kUp).scale_layout, test.layout);
    EXPECT_EQ(scheme->PlannedActivations(kUp).kind, test.activations);
    EXPECT_FALSE(scheme->WantsFp8KvCache());
    for (const char* plain : {"lm_head", "model.embed_tokens", "model.layers.0.mlp.gate",
                              "model.layers.3.feed_forward.router"}) {
      EXPECT_EQ(scheme->PlannedFormat(plain), DataFormat{.type = ElementType::kBF16}) << plain;
      EXPECT_EQ(scheme->PlannedActivations(plain).kind, Kind::kNone) << plain;
    }
  }
}

// Experts in MXFP4; other weights in FP8 with scales that are powers of two, for which inputs are
// not rounded.
TEST(SchemeConfigTest, ExpertsOfDeepseekV4) {
  const auto scheme =
      Good(With(kBlockFp8, R"("fmt")", R"("scale_fmt": "ue8m0", "expert_dtype": "fp4", "fmt")"));
  EXPECT_EQ(scheme->Name(), "FP8 in blocks of 128x128, experts in MXFP4");
  EXPECT_EQ(scheme->PlannedFormat("model.layers.1.ffn.experts.3.w1"),
            (DataFormat{.type = ElementType::kF4E2M1,
                        .scale_layout = Layout::kPerGroup,
                        .scale_type = ElementType::kF8E8M0,
                        .group_size = 32}));
  for (const char* module : {"model.layers.1.ffn.shared_experts.w1", "model.layers.1.attn.wq_a"}) {
    EXPECT_EQ(scheme->PlannedFormat(module).type, ElementType::kF8E4M3) << module;
    EXPECT_EQ(scheme->PlannedFormat(module).scale_type, ElementType::kF8E8M0) << module;
    EXPECT_EQ(scheme->PlannedActivations(module).kind, Kind::kNone) << module;
  }
  for (const char* module : {"model.layers.1.ffn.gate", "model.layers.1.attn.compressor.wkv",
                             "model.layers.1.attn.indexer.weights_proj"})
    EXPECT_EQ(scheme->PlannedFormat(module).type, ElementType::kBF16) << module;
}

TEST(SchemeConfigTest, KvCachesInEverySpelling) {
  for (const char* block :
       {R"({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"})",
        R"({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": "FP8"})",
        R"({"quant_method": "modelopt", "quant_algo": null, "kv_cache_quant_algo": "FP8"})",
        R"({"quant_method": "modelopt", "quant_algo": "FP8",
            "kv_cache_scheme": {"dynamic": false, "num_bits": 8, "type": "float"}})",
        R"({"quant_method": "fp8", "kv_cache_scheme": "static"})"}) {
    EXPECT_TRUE(Good(block)->WantsFp8KvCache()) << block;
  }
  EXPECT_TRUE(Good(With(kCompressedFp8, R"("kv_cache_scheme": null)",
                        R"("kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": false,
                            "strategy": "tensor", "symmetric": true})"))
                  ->WantsFp8KvCache());
  EXPECT_TRUE(Good(With(kQuarkFp8, R"("kv_cache_group": [])",
                        R"("kv_cache_group": ["*k_proj", "*v_proj"])"))
                  ->WantsFp8KvCache());
  EXPECT_TRUE(
      Good(With(kQuarkFp8, R"("layer_quant_config": {})",
                R"("layer_quant_config": {"*k_proj": {"output_tensors": {"dtype": "fp8_e4m3"}}})"))
          ->WantsFp8KvCache());
  // An INT8 cache is ignored, not refused.
  EXPECT_FALSE(Good(R"({"quant_method": "modelopt", "quant_algo": "FP8",
                        "kv_cache_scheme": {"num_bits": 8, "type": "int"}})")
                   ->WantsFp8KvCache());
  for (const char* kv : {R"("NVFP4")", R"("INT8")", R"({"num_bits": 4, "type": "float"})",
                         R"({"num_bits": 8, "type": "float", "strategy": "attn_head"})", "7"}) {
    EXPECT_THAT(
        Refusal(fmt::format(
            R"({{"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {}}})", kv)),
        HasSubstr("kv_cache_scheme"))
        << kv;
  }
}

TEST(SchemeConfigTest, MoreSpecificSettingsWin) {
  const auto quark = Good(With(kQuarkFp8, R"("layer_quant_config": {})",
                               R"("layer_quant_config": {"*mlp.up_proj": {
      "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1,
                 "scale_format": "e8m0", "is_dynamic": false},
      "input_tensors": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "ch_axis": -1,
                        "is_dynamic": true, "scale_calculation_mode": "even"}}})"));
  EXPECT_EQ(quark->PlannedFormat(kUp).scale_type, ElementType::kF8E8M0);
  EXPECT_EQ(quark->PlannedActivations(kUp).kind, Kind::kMxfp4);
  EXPECT_EQ(quark->PlannedFormat("model.layers.0.mlp.down_proj").type, ElementType::kF8E4M3);

  const auto compressed = Good(With(kCompressedFp8, R"("config_groups": {)",
                                    R"("config_groups": {"group_1": {"targets": ["re:.*up_proj$"],
      "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}},)"));
  EXPECT_EQ(compressed->PlannedFormat(kUp).type, ElementType::kF4E2M1);
  EXPECT_EQ(compressed->PlannedFormat("model.layers.0.mlp.down_proj").type, ElementType::kF8E4M3);

  const auto mixed = Good(R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
      "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
                           "language_model.model.layers.0.mlp.down_proj": {"quant_algo": "FP8"}}})");
  EXPECT_EQ(mixed->PlannedFormat(kUp).type, ElementType::kF4E2M1);
  EXPECT_EQ(mixed->PlannedFormat("model.layers.0.mlp.down_proj").type, ElementType::kF8E4M3);
  EXPECT_EQ(mixed->PlannedFormat("model.layers.0.mlp.gate_proj").type, ElementType::kBF16);
}

TEST(SchemeConfigTest, RefusesByNameWhatWouldChangeTheNumbers) {
  const struct {
    std::string block;
    const char* named;
  } kCases[] = {
      {R"({"quant_method": "awq", "bits": 4})", "group_size is missing"},
      {With(kAwq, R"("bits": 4)", R"("bits": 8)"), "bits 8 is not supported, expected 4"},
      {With(kAwq, "gemm", "gemv"), "version \"gemv\""},
      {With(kAwq, R"("zero_point": true)", R"("zero_point": false)"), "zero_point"},
      {With(kAwq, "128", "16"), "group_size 16"},
      {With(kGptq, R"("bits": 4)", R"("bits": 2)"), "bits 2 is not supported, expected 4"},
      {With(kGptq, R"("bits": 4)", R"("bits": 3)"), "bits 3"},
      {With(With(kGptq, R"("bits": 4)", R"("bits": 8)"), R"("sym": true)", R"("sym": false)"),
       "sym false is not supported, expected true"},
      {With(kGptq, R"("checkpoint_format": "gptq")", R"("checkpoint_format": "marlin")"), "marlin"},
      {With(kGptq, R"("lm_head")", R"("dynamic": {"+:.*up_proj": {"bits": 3}}, "lm_head")"),
       "dynamic.+:.*up_proj"},
      {With(kGptq, R"("lm_head")", R"("dynamic": {"up_proj": {"rotation": 1}}, "lm_head")"),
       "rotation"},
      {With(kGptq, R"("lm_head")", R"("is_marlin_format": true, "lm_head")"), "is_marlin_format"},
      {With(With(kPacked, R"("num_bits": 4)", R"("num_bits": 8)"), "128", "100"),
       "8 bits of type int"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"W3A3": ["Linear"]}})", "W3A3"},
      {R"({"quant_method": "auto-round", "bits": 4})", "auto_gptq"},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", "--quantization"},
      {R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": -1})", "activation_scale_ub"},
      {With(kPacked, R"("num_bits": 4)", R"("num_bits": 2)"), "2 bits of type int"},
      {With(kPacked, R"("num_bits": 4)", R"("num_bits": 3)"), "3 bits of type int"},
      {With(kPacked, "128", "16"), "group of 16"},
      {With(kPacked, "pack-quantized", "int-quantized"), "format \"int-quantized\""},
      {With(kPacked, R"("actorder": null)", R"("actorder": "random")"), "actorder \"random\""},
      {With(kPacked, R"("input_activations": null)",
            R"("input_activations": {"num_bits": 8, "type": "int", "strategy": "token",
                                     "dynamic": true})"),
       "input_activations"},
      {R"({"quant_method": "mxfp4", "block_size": 16})", "block_size"},
      {R"({"bits": 4})", "names no quant_method"},
      {R"({"quant_method": ["fp8"], "config_groups": {}})", "quant_method must be a string"},
      {With(kQuarkFp8, R"("kv_cache_group": [])", R"("kv_cache_group": 3)"), "kv_cache_group"},
      {With(kQuarkFp8, R"("kv_cache_group": [])", R"("kv_cache_group": [3])"), "kv_cache_group"},
      {R"({"quant_method": "modelopt"})", "quant_algo is missing"},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4_SVD"})", "NVFP4_SVD"},
      {R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})", "W4A8_AWQ"},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32})", "group_size 32"},
      {R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"g": {
           "weights": {"num_bits": 8, "type": "float"}}}})",
       "config_groups describes FP8"},
      {R"({"quant_method": "modelopt", "quant_algo": "FP8", "has_zero_point": true})",
       "has_zero_point"},
      {R"({"quant_method": "modelopt", "quant_algo": "FP8", "pre_quant_scale": true})",
       "pre_quant_scale"},
      {R"({"quant_method": "modelopt", "quant_algo": "FP8", "rotation": "hadamard"})", "rotation"},
      {R"({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": 3})", "ignore"},
      {R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})", "quantized_layers"},
      {With(kBlockFp8, "[128, 128]", "[128]"), "weight_block_size"},
      {With(kBlockFp8, "[128, 128]", "[100, 128]"), "weight_block_size"},
      {With(kBlockFp8, "[128, 128]", "[0, 128]"), "weight_block_size"},
      {With(kBlockFp8, "dynamic", "static"), "activation_scheme"},
      {With(kBlockFp8, "dynamic", "sometimes"), "sometimes"},
      {With(kBlockFp8, "e4m3", "e5m2"), "e5m2"},
      {With(kBlockFp8, R"("fmt")", R"("scale_fmt": "ue4m0", "fmt")"), "ue4m0"},
      {With(kBlockFp8, R"("fmt")", R"("expert_dtype": "fp3", "fmt")"), "fp3"},
      {R"({"quant_method": "fp8", "expert_dtype": "fp4"})", "weight_block_size"},
      {With(kBlockFp8, R"("fmt")", R"("new_key": [1], "fmt")"), "new_key"},
      {With(kQuarkFp8, "real_quantized", "fake_quantized"), "fake_quantized"},
      {With(kQuarkFp8, R"("symmetric": true)", R"("symmetric": false)"), "symmetric"},
      {With(kQuarkFp8, "fp8_e4m3", "int4"), "int4"},
      {With(kQuarkFp8, R"("algo_config": null)", R"("algo_config": [{"name": "rotation"}])"),
       "rotation"},
      {With(kQuarkFp8, R"("bias": null)", R"("bias": {"dtype": "int8"})"), "bias"},
      {With(kQuarkFp8, R"("scale_type": "float")", R"("scale_type": "pof2")"), "pof2"},
      {With(kQuarkFp8, R"("exclude": ["lm_head"])", R"x("exclude": ["re:x{,3}"])x"), "x{,3}"},
      {With(kCompressedFp8, R"("symmetric": true)", R"("symmetric": false)"), "symmetric"},
      {With(kCompressedFp8, R"("actorder": null)", R"("actorder": "group")"), "actorder"},
      {With(kCompressedFp8, R"("num_bits": 8)", R"("num_bits": 4)"), "4 bits of type float"},
      {With(kCompressedFp8, R"("type": "float")", R"("type": "int")"), "input_activations"},
      {With(kCompressedFp8, R"("strategy": "token")", R"("strategy": "tensor")"),
       "input_activations"},
      {With(kCompressedFp8, "float-quantized", "pack-quantized"), "pack-quantized"},
      {With(kCompressedFp8, "float-quantized", "marlin-24"), "marlin-24"},
      {With(kCompressedFp8, R"("transform_config": {})", R"("transform_config": {"R1": {}})"),
       "transform_config"},
      {With(kCompressedFp8, R"("sparsity_config": {})",
            R"("sparsity_config": {"format": "sparse-24-bitmask"})"),
       "sparse-24-bitmask"},
      {With(kCompressedFp8, R"("output_activations": null)",
            R"("output_activations": {"num_bits": 8})"),
       "output_activations"},
      {With(kCompressedFp8, R"(["Linear"])", R"x(["re:(a)\\1"])x"), "targets"},
      {With(kCompressedFp8, R"(["Linear"])", "[]"), "targets"},
  };
  for (const auto& test : kCases)
    EXPECT_THAT(Refusal(test.block), HasSubstr(test.named)) << test.block;
}

TEST(SchemeConfigTest, BothFormsOfModelOptMustAgree) {
  const TemporaryFolder folder;
  const auto load = [&](const std::string& config, const std::string& sidecar) {
    WriteFile(folder.path() / "hf_quant_config.json", sidecar);
    return LoadScheme(folder.path(), Json(config));
  };
  const std::string kConfig =
      R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4",
          "kv_cache_scheme": {"num_bits": 8, "type": "float"}, "ignore": ["lm_head"]}})";
  const std::string kSidecar =
      R"({"producer": {"name": "modelopt", "version": "0.39.0"}, "quantization":
          {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
           "exclude_modules": ["lm_head", "lm_head"]}})";
  for (const std::string& config : {kConfig, std::string("{}")}) {
    const auto scheme = load(config, kSidecar);
    ASSERT_TRUE(scheme) << scheme.error().message;
    EXPECT_EQ((*scheme)->Name(), "ModelOpt NVFP4");
    EXPECT_TRUE((*scheme)->WantsFp8KvCache());
  }
  const auto refusal = [&](const std::string& sidecar) {
    const auto scheme = load(kConfig, sidecar);
    return scheme ? "accepted" : scheme.error().message;
  };
  EXPECT_THAT(refusal(With(kSidecar, "NVFP4", "FP8")),
              AllOf(HasSubstr("quant_algo is NVFP4"), HasSubstr("FP8 in the second")));
  EXPECT_THAT(refusal(With(kSidecar, R"("FP8")", "null")), HasSubstr("the KV cache is FP8"));
  EXPECT_EQ(refusal(With(kSidecar, R"("lm_head", "lm_head")", R"("lm_head", "other")")),
            "accepted");
  EXPECT_THAT(refusal(R"({"producer": {"name": "other"}})"), HasSubstr("remove the wrong one"));
  for (const char* text : {"", "[]", "{\"a\":"})
    EXPECT_THAT(refusal(text), HasSubstr("hf_quant_config.json"));
}

TEST(SchemeConfigTest, LooksInEveryPlace) {
  for (const char* text : {R"({"compression_config": {"quant_method": "fp8"}})",
                           R"({"text_config": {"quantization_config": {"quant_method": "fp8"}}})",
                           R"({"text_config": {"compression_config": {"quant_method": "fp8"}}})"}) {
    const auto scheme = ParseScheme(Json(text));
    ASSERT_TRUE(scheme) << scheme.error().message;
    EXPECT_EQ((*scheme)->Method(), "fp8") << text;
  }
  EXPECT_EQ((*ParseScheme(Json(R"({"torch_dtype": "float16"})")))->Name(), "F16");
  EXPECT_FALSE(ParseScheme(Json(R"({"quantization_config": 3})")));
}

// Mutated blocks (members removed, duplicated or of other types) give a scheme or an error.
TEST(SchemeConfigTest, MutatedConfigurationsAreReadOrRefused) {
  const std::vector<std::string> kBlocks = {
      kCompressedFp8, kQuarkFp8, kBlockFp8,
      R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["a*"],
          "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 16},
                                  "input_activations": {"num_bits": 4}, "targets": ["Linear"]}}})"};
  const std::vector<json::Value> kValues = {json::Value(),
                                            true,
                                            int64_t{-1},
                                            int64_t{1} << 62,
                                            0.5,
                                            "",
                                            "re:[",
                                            "*",
                                            json::Value(json::Value::Array{json::Value(), 3, "x"}),
                                            json::Value(json::Value::Object{{"num_bits", 8}})};
  uint32_t random = 1;
  const auto next = [&](size_t below) {
    random = random * 1664525 + 1013904223;
    return static_cast<size_t>(random >> 8) % below;
  };
  const std::function<void(json::Value&)> mutate = [&](json::Value& value) {
    if (value.is_object() && !value.as_object().empty() && next(4) != 0) {
      auto& members = value.as_object();
      const size_t at = next(members.size());
      const size_t what = next(8);
      if (what == 0) {
        members.erase(members.begin() + static_cast<ptrdiff_t>(at));
      } else if (what == 1) {
        members[at].first += "_";
      } else {
        mutate(members[at].second);
      }
      return;
    }
    value = kValues[next(kValues.size())];
  };
  size_t refused = 0;
  for (int round = 0; round < 4000; ++round) {
    json::Value block = Json(kBlocks[static_cast<size_t>(round) % kBlocks.size()]);
    for (size_t i = 0; i <= next(3); ++i) mutate(block);
    json::Value config{json::Value::Object{}};
    config.Set("quantization_config", block);
    const auto scheme = ParseScheme(config);
    if (scheme) {
      EXPECT_FALSE((*scheme)->Name().empty());
      (*scheme)->PlannedFormat(kUp);
    } else {
      EXPECT_FALSE(scheme.error().message.empty());
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_LT(refused, 4000u);
}

TEST(SchemeConfigTest, TheOptionIsAnAssertion) {
  const auto fp4 = Good(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})");
  EXPECT_TRUE(CheckQuantizationOption(*fp4, "modelopt_fp4"));
  EXPECT_TRUE(CheckQuantizationOption(*fp4, "modelopt"));
  EXPECT_TRUE(CheckQuantizationOption(*fp4, "ModelOpt_FP4"));
  EXPECT_FALSE(CheckQuantizationOption(*fp4, "fp8"));
  const auto fp8 = Good(R"({"quant_method": "modelopt", "quant_algo": "FP8"})");
  EXPECT_TRUE(CheckQuantizationOption(*fp8, "modelopt"));
  const auto status = CheckQuantizationOption(*fp8, "modelopt_fp4");
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr("modelopt_fp4"), HasSubstr("ModelOpt FP8")));
  EXPECT_TRUE(CheckQuantizationOption(*Good(kQuarkFp8), "quark"));
  EXPECT_TRUE(CheckQuantizationOption(*Good(kCompressedFp8), "compressed-tensors"));
  for (const char* word : {"gptq", "gptq_marlin", "awq", "awq_marlin", "compressed-tensors"}) {
    const std::string_view wanted = word;
    EXPECT_EQ(CheckQuantizationOption(*Good(kGptq), word).has_value(), wanted.starts_with("gptq"));
    EXPECT_EQ(CheckQuantizationOption(*Good(kAwq), word).has_value(), wanted.starts_with("awq"));
    EXPECT_EQ(CheckQuantizationOption(*Good(kPacked), word).has_value(),
              wanted.starts_with("compressed"));
  }
  EXPECT_THAT(CheckQuantizationOption(*PlainScheme(ElementType::kBF16), "fp8").error().message,
              HasSubstr("is not quantized (BF16)"));
}

}  // namespace
}  // namespace sluice
