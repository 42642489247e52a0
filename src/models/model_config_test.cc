#include "models/model_config.h"

#include "checkpoint/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>

#include "base/json_testing.h"
#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/scheme.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Json;
using testing::TemporaryFolder;
using testing::WriteFile;

// A valid Llama configuration with `changes` (a JSON object) applied; null removes a field.
json::Value With(std::string_view changes = "{}") {
  json::Value config = Json(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": [2, 3]})");
  const json::Value overlay = Json(changes);
  for (const auto& [key, value] : overlay.as_object()) config.Set(key, value);
  return config;
}

ModelConfig Parse(std::string_view changes = "{}") {
  auto config = ParseModelConfig(With(changes));
  EXPECT_TRUE(config) << changes << (config ? "" : config.error().message);
  return config ? *std::move(config) : ModelConfig{};
}

Error Failure(std::string_view changes) {
  auto config = ParseModelConfig(With(changes));
  EXPECT_FALSE(config) << changes;
  return config ? Error{} : std::move(config).error();
}

TEST(ModelConfigTest, NormsOfAnotherKindAreRefused) {
  Parse(R"({"normalization_function": "rmsnorm", "norm_type": "RMS_norm"})");
  EXPECT_THAT(Failure(R"({"norm_type": "layernorm"})").message,
              AllOf(HasSubstr("norm_type 'layernorm'"), HasSubstr("supported is rmsnorm")));
}

TEST(ModelConfigTest, TokensThatSeeThoseBehindThemAreRefused) {
  Parse(R"({"is_causal": true})");
  EXPECT_THAT(Failure(R"({"is_causal": false})").message, HasSubstr("is_causal false"));
}

TEST(ModelConfigTest, ReadsAllFields) {
  const ModelConfig config = Parse(
      R"({"tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true, "head_dim": 64})");
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_EQ(config.hidden_size, 256);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_DOUBLE_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_DOUBLE_EQ(config.rope.theta, 500000);
  EXPECT_FALSE(config.rope.scaling);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_TRUE(config.mlp_bias);
  EXPECT_EQ(config.dtype, ElementType::kBF16);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2, 3));
}

TEST(ModelConfigTest, AbsentFieldsHaveTheLibrarysDefaults) {
  const ModelConfig config = Parse(
      R"({"num_key_value_heads": null, "rms_norm_eps": null, "torch_dtype": null, "eos_token_id": null,
                                       "bos_token_id": null, "architectures": null, "hidden_act": null})");
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.num_key_value_heads, 8);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_DOUBLE_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.dtype, ElementType::kF32);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.bos_token_id);
  EXPECT_TRUE(config.eos_token_ids.empty());
}

TEST(ModelConfigTest, Qwen3HasItsOwnHeadSize) {
  EXPECT_EQ(Parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"})").head_dim,
            128);
  EXPECT_EQ(Parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64,
                      "use_sliding_window": false, "sliding_window": null, "layer_types": ["full_attention", "full_attention"]})")
                .head_dim,
            64);
}

TEST(ModelConfigTest, ReadsTypesInEverySpelling) {
  EXPECT_EQ(Parse(R"({"torch_dtype": "float16"})").dtype, ElementType::kF16);
  EXPECT_EQ(Parse(R"({"torch_dtype": "torch.float32"})").dtype, ElementType::kF32);
  EXPECT_EQ(Parse(R"({"torch_dtype": "float16", "dtype": "bfloat16"})").dtype, ElementType::kBF16);
  EXPECT_THAT(Failure(R"({"dtype": "int8"})").message,
              AllOf(HasSubstr("int8"), HasSubstr("bfloat16")));
}

TEST(ModelConfigTest, ReadsTokenIds) {
  EXPECT_THAT(Parse(R"({"eos_token_id": 5})").eos_token_ids, ElementsAre(5));
  EXPECT_EQ(Parse(R"({"bos_token_id": [7]})").bos_token_id, 7);
}

constexpr const char* kLlama3Block =
    R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4096)";

void ExpectLlama3(const std::string& changes, double theta) {
  const ModelConfig config = Parse(changes);
  ASSERT_TRUE(config.rope.scaling) << changes;
  EXPECT_DOUBLE_EQ(config.rope.theta, theta) << changes;
  EXPECT_DOUBLE_EQ(config.rope.scaling->factor, 8);
  EXPECT_DOUBLE_EQ(config.rope.scaling->low_freq_factor, 1);
  EXPECT_DOUBLE_EQ(config.rope.scaling->high_freq_factor, 4);
  EXPECT_EQ(config.rope.scaling->original_max_position_embeddings, 4096);
}

TEST(ModelConfigTest, ReadsRopeInEverySpelling) {
  const std::string block = kLlama3Block;
  ExpectLlama3(R"({"rope_scaling": {)" + block + "}}", 500000);
  // Uses the older key for the type.
  std::string older = block;
  older.replace(0, 11, "\"type\"");
  ExpectLlama3(R"({"rope_scaling": {)" + older + "}}", 500000);
  // The format of transformers 5.
  ExpectLlama3(R"({"rope_theta": null, "rope_parameters": {"rope_theta": 10000.0, )" + block + "}}",
               10000);
  // The format of ModelOpt: the inner theta takes precedence.
  ExpectLlama3(R"({"rope_scaling": {"rope_theta": 10000.0, )" + block + "}}", 10000);
  ExpectLlama3(R"({"rope_theta": null, "rope_scaling": {"rope_theta": 10000, )" + block + "}}",
               10000);
  // RoPE is not scaled.
  EXPECT_FALSE(Parse(R"({"rope_scaling": {"rope_type": "default"}})").rope.scaling);
  EXPECT_FALSE(
      Parse(
          R"({"rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})")
          .rope.scaling);
  EXPECT_FALSE(Parse(R"({"rope_parameters": {"rope_theta": 1e6}})").rope.scaling);
}

TEST(ModelConfigTest, ReadsRopeOfEveryKind) {
  const auto scaled = [](const std::string& block) {
    return Parse(R"({"max_position_embeddings": 40960, "rope_scaling": {)" + block + "}}");
  };
  const ModelConfig linear = scaled(R"("rope_type": "linear", "factor": 2.5)");
  EXPECT_EQ(linear.rope.scaling->kind, RopeKind::kLinear);
  EXPECT_EQ(linear.max_position_embeddings, 102400);
  const ModelConfig dynamic = scaled(R"("type": "dynamic", "factor": 2)");
  EXPECT_EQ(dynamic.rope.scaling->kind, RopeKind::kDynamic);
  EXPECT_EQ(dynamic.max_position_embeddings, 81920);
  // The length is a multiple of the original number of positions.
  const ModelConfig yarn =
      scaled(R"("rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768)");
  EXPECT_EQ(yarn.rope.scaling->kind, RopeKind::kYarn);
  EXPECT_EQ(yarn.max_position_embeddings, 131072);
  EXPECT_NEAR(yarn.rope.scaling->attention_factor, 1.1386294361, 1e-9);
  EXPECT_NEAR(
      yarn.spec.layers[0].attention.softmax_scale() * std::sqrt(static_cast<double>(yarn.head_dim)),
      1.1386294361 * 1.1386294361, 1e-6);
  EXPECT_EQ(scaled(R"("rope_type": "yarn", "original_max_position_embeddings": 10240)")
                .rope.scaling->factor,
            4)
      << "the ratio where it is not given";
  EXPECT_EQ(scaled(R"("rope_type": "yarn", "factor": 4, "attention_factor": 1)")
                .spec.layers[0]
                .attention.scale,
            std::nullopt);
  EXPECT_EQ(
      Parse(R"({"rope_scaling": {)" + std::string(kLlama3Block) + "}}").max_position_embeddings,
      131072)
      << "llama3's is within them";
}

// An error message that states a number from config.json names the field that contains it.
TEST(ModelConfigTest, PositionsSayWhereTheyComeFrom) {
  EXPECT_EQ(PositionsText(Parse()), "max_position_embeddings (131072) in the model's config.json");
  EXPECT_EQ(PositionsText(Parse(R"({"max_position_embeddings": 2048, "rope_scaling": {
      "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 128}})")),
            "the 512 positions that the rope scaling of the model's config.json gives: yarn factor "
            "4 x original_max_position_embeddings 128");
  EXPECT_EQ(PositionsText(Parse(R"({"max_position_embeddings": 2048, "rope_scaling": {
      "rope_type": "linear", "factor": 2}})")),
            "the 4096 positions that the rope scaling of the model's config.json gives: linear "
            "factor 2 x max_position_embeddings 2048");
  EXPECT_EQ(
      PositionsText(Parse(R"({"max_position_embeddings": null})")),
      "the default of max_position_embeddings (2048), which is absent in the model's config.json");
  const auto roberta = ParseModelShape(Json(R"({"architectures": ["RobertaModel"],
      "max_position_embeddings": 514})"));
  ASSERT_TRUE(roberta) << roberta.error().message;
  EXPECT_EQ(PositionsText(*roberta),
            "the 512 usable positions (max_position_embeddings 514 in the model's config.json)");
}

TEST(ModelConfigTest, RefusesWhatScalingsDoNotMean) {
  const auto failure = [](const std::string& block) {
    return Failure(R"({"rope_scaling": {)" + block + "}}").message;
  };
  EXPECT_THAT(failure(R"("rope_type": "linear")"), HasSubstr("rope_scaling.factor is missing"));
  EXPECT_THAT(failure(R"("rope_type": "dynamic", "alpha": 1000)"), HasSubstr("alpha"));
  EXPECT_THAT(failure(R"("rope_type": "dynamic", "factor": 0.5)"),
              HasSubstr("rope_scaling.factor"));
  EXPECT_THAT(failure(R"("rope_type": "yarn", "factor": 2, "attn_factor": 0.8)"),
              HasSubstr("rope_scaling.attn_factor 0.8 is not supported"));
  EXPECT_THAT(failure(R"("rope_type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 32)"),
              HasSubstr("beta_fast"));
  EXPECT_THAT(
      Failure(R"({"rope_theta": 1, "rope_scaling": {"rope_type": "yarn", "factor": 2}})").message,
      HasSubstr("rope_theta 1 is too small"));
}

// Incomplete settings are read as in transformers.
TEST(ModelConfigTest, ReadsIncompleteRopes) {
  EXPECT_EQ(Parse(R"({"rope_theta": null})").rope.theta, 10000);
  EXPECT_EQ(Parse(R"({"rope_theta": "20000.0"})").rope.theta, 20000);
  EXPECT_EQ(Parse(R"({"rope_parameters": {"rope_theta": "2e4"}})").rope.theta, 20000);
  const ModelConfig untyped = Parse(R"({"rope_scaling": {"factor": 2.0}})");
  EXPECT_FALSE(untyped.rope.scaling);
  EXPECT_EQ(untyped.max_position_embeddings, 131072);
  EXPECT_EQ(Parse(R"({"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}})")
                .rotary_dim,
            32);
  EXPECT_EQ(Parse(R"({"partial_rotary_factor": 0.5})").rotary_dim, 32);
  const ModelConfig llama3 = Parse(R"({"max_position_embeddings": 4096, "rope_scaling": {
      "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}})");
  EXPECT_EQ(llama3.rope.scaling->original_max_position_embeddings, 4096);
  // The older block takes precedence, unless it is empty.
  const auto both = [](const char* older) {
    return Parse(fmt::format(R"({{"rope_scaling": {}, "rope_parameters": {{"rope_type": "linear",
                                  "factor": 3}}}})",
                             older))
        .rope.scaling->factor;
  };
  EXPECT_EQ(both(R"({"type": "linear", "factor": 2})"), 2);
  EXPECT_EQ(both("{}"), 3);
}

TEST(ModelConfigTest, ReadsActivationsUnderAllNames) {
  for (const char* name : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"}) {
    EXPECT_EQ(Parse(fmt::format(R"({{"hidden_act": "{}"}})", name)).activation,
              Activation::kGeluTanh);
  }
  EXPECT_EQ(Parse(R"({"hidden_act": "gelu"})").spec.layers[0].mlp.activation, Activation::kGelu);
}

TEST(ModelConfigTest, TheNameOfAnArchitectureMayBeInAnyCase) {
  EXPECT_EQ(Parse(R"({"architectures": ["LLaMAForCausalLM"]})").architecture, "LLaMAForCausalLM");
}

TEST(ModelConfigTest, RefusesRopeByName) {
  for (const char* type : {"mrope", "proportional"}) {
    const Error error =
        Failure(fmt::format(R"({{"rope_scaling": {{"rope_type": "{}", "factor": 2.0}}}})", type));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, AllOf(HasSubstr(type), HasSubstr("llama3"))) << type;
  }
  EXPECT_THAT(Failure(R"({"rope_theta": "fast"})").message,
              HasSubstr("rope_theta must be a number from 1"));
  EXPECT_THAT(Failure(R"({"rope_scaling": {"rope_type": "llama3"}})").message,
              HasSubstr("rope_scaling.factor is missing"));
  EXPECT_THAT(Failure(R"({"rope_scaling": {"rope_type": "llama3", "factor": 0}})").message,
              HasSubstr("rope_scaling.factor"));
  EXPECT_THAT(Failure(R"({"rope_scaling": {"rope_type": "linear", "factor": 2,
                                           "partial_rotary_factor": 0.5}})")
                  .message,
              HasSubstr("partial_rotary_factor 0.5 with rope_type linear"));
  EXPECT_THAT(Failure(R"({"rope_scaling": "llama3"})").message,
              HasSubstr("rope_scaling must be an object"));
  EXPECT_THAT(
      Failure(fmt::format(R"({{"rope_scaling": {{{}, "low_freq_factor": 8.0}}}})", kLlama3Block))
          .message,
      HasSubstr("high_freq_factor"));
}

TEST(ModelConfigTest, RefusesWhatItDoesNotImplementByName) {
  const struct {
    const char* changes;
    const char* name;
  } kCases[] = {
      {R"({"architectures": ["RwkvForCausalLM"], "model_type": "rwkv"})",
       "RwkvForCausalLM is not supported; supported are AXK1ForCausalLM, AfmoeForCausalLM"},
      {R"({"architectures": null, "model_type": "bloom"})", "bloom"},
      {R"({"model_type": "qwen3"})", "qwen3"},
      {R"({"hidden_act": "tanh"})", "hidden_act 'tanh'"},
      {R"({"hidden_act": "xielu"})", "hidden_act 'xielu'"},
      {R"({"use_sliding_window": true})", "use_sliding_window"},
      {R"({"layer_types": ["full_attention", "sliding_attention"]})", "sliding_attention"},
      {R"({"head_dim": 1})", "head_dim 1"},
      {R"({"head_dim": 514})", "head_dim 514"},
      {R"({"head_dim": 35})", "head_dim 35"},
      {R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}})",
       "W4A8_AWQ"},
      {R"({"compression_config": {"quant_method": "bitsandbytes"}})", "bitsandbytes"},
  };
  for (const auto& test : kCases) {
    const Error error = Failure(test.changes);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << test.changes;
    EXPECT_THAT(error.message, HasSubstr(test.name)) << test.changes;
  }
}

TEST(ModelConfigTest, BadNumbersNameTheField) {
  for (const char* field :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const char* value : {"0", "-1", "1.5", "\"8\"", "true", "[8]", "{}", "9223372036854775807",
                              "99999999999999999999", "1e308"}) {
      const Error error = Failure(fmt::format(R"({{"{}": {}}})", field, value));
      EXPECT_THAT(error.message, HasSubstr(field)) << value;
    }
  }
  for (const char* value : {"\"x\"", "-1", "1e308", "[]"}) {
    EXPECT_THAT(Failure(fmt::format(R"({{"rms_norm_eps": {}}})", value)).message,
                HasSubstr("rms_norm_eps"));
    EXPECT_THAT(Failure(fmt::format(R"({{"rope_theta": {}}})", value)).message,
                HasSubstr("rope_theta"));
    EXPECT_THAT(
        Failure(fmt::format(R"({{"eos_token_id": {}}})", value[0] == '[' ? "[\"x\"]" : value))
            .message,
        HasSubstr("eos_token_id"));
    EXPECT_THAT(Failure(fmt::format(R"({{"tie_word_embeddings": {}}})", value)).message,
                HasSubstr("tie_word_embeddings"));
  }
}

// Messages about a damaged file must not fill the terminal or move its cursor.
TEST(ModelConfigTest, LongAndUnprintableNamesAreShownShort) {
  const std::string bad = "x\x1b[2J\n" + std::string(100'000, 'y');
  for (const char* field : {"hidden_act", "dtype", "model_type"}) {
    const Error error = Failure(fmt::format("{{\"{}\": {}}}", field, json::Write(bad)));
    EXPECT_LT(error.message.size(), 400u) << field;
    EXPECT_NE(error.message.find("x\\u001b[2J\\nyy"), std::string::npos) << error.message;
  }
}

TEST(ModelConfigTest, ContradictionsAreNamed) {
  EXPECT_THAT(Failure(R"({"num_key_value_heads": 3})").message,
              AllOf(HasSubstr("num_key_value_heads"), HasSubstr("found 3")));
  // head_dim is 255 / 8.
  EXPECT_THAT(Failure(R"({"hidden_size": 255})").message, HasSubstr("head_dim 31"));
  EXPECT_THAT(Failure(R"({"eos_token_id": 512})").message,
              HasSubstr("eos_token_id 512 is outside of the vocabulary of 512"));
  EXPECT_THAT(Failure(R"({"bos_token_id": 600})").message, HasSubstr("bos_token_id"));
}

TEST(ModelConfigTest, HarmlessKeysArePassedOver) {
  Parse(
      R"({"pretraining_tp": 1, "use_cache": true, "initializer_range": 0.02, "attention_dropout": 0.0, "_name_or_path": "x",
            "transformers_version": "9", "pad_token_id": -1, "max_window_layers": 28, "sliding_window": null, "something_new": {"a": [1]}})");
}

TEST(ModelConfigTest, FilesNameThemselves) {
  const TemporaryFolder folder;
  EXPECT_THAT(LoadModelConfig(folder.path()).error().message, HasSubstr("has no config.json"));
  for (const char* text : {"", "{", "[]", "{\"a\":1}}", "\xff"}) {
    WriteFile(folder.path() / "config.json", text);
    const auto config = LoadModelConfig(folder.path());
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr("config.json"));
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidData);
  }
  WriteFile(folder.path() / "config.json", json::Write(With()));
  EXPECT_TRUE(LoadModelConfig(folder.path()));
  WriteFile(
      folder.path() / "hf_quant_config.json",
      R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"FP8","kv_cache_quant_algo":"FP8"}})");
  const auto quantized = LoadModelConfig(folder.path());
  ASSERT_TRUE(quantized) << quantized.error().message;
  EXPECT_EQ(quantized->scheme->Name(), "ModelOpt FP8");
  EXPECT_TRUE(quantized->scheme->WantsFp8KvCache());
}

TEST(ModelConfigTest, WhatAnOptionChangedIsNotBlamedOnTheFile) {
  const TemporaryFolder folder;
  WriteFile(folder.path() / "config.json", json::Write(With()));
  const auto config = LoadModelConfig(
      folder.path(), *json::Parse(R"({"rope_scaling":{"rope_type":"twisted","factor":2}})"));
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message,
              AllOf(HasSubstr("as --hf-overrides, --rope-scaling and --rope-theta change it"),
                    HasSubstr("twisted")));
}

TEST(GenerationConfigTest, ReadsDefaultsOfTheAuthors) {
  const auto config = ParseGenerationConfig(Json(
      R"({"bos_token_id": 1, "eos_token_id": [2, 3], "temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0, "do_sample": true,
          "repetition_penalty": 1.05, "max_new_tokens": 2048, "transformers_version": "4.57.3"})"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2, 3));
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_p, 0.9);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->repetition_penalty, 1.05);
  EXPECT_EQ(config->max_new_tokens, 2048);
}

TEST(GenerationConfigTest, BadValuesNameTheField) {
  for (const char* text : {R"({"temperature": "hot"})", R"({"top_p": 2})", R"({"top_k": 1.5})",
                           R"({"repetition_penalty": 0})", R"({"min_p": -1})",
                           R"({"max_new_tokens": 0})", R"({"eos_token_id": [1, "x"]})"}) {
    const auto config = ParseGenerationConfig(Json(text));
    ASSERT_FALSE(config) << text;
    EXPECT_FALSE(config.error().param.empty()) << text;
    EXPECT_THAT(text, HasSubstr(config.error().param));
  }
}

TEST(GenerationConfigTest, AnAbsentFileGivesDefaults) {
  const TemporaryFolder folder;
  const auto config = LoadGenerationConfig(folder.path());
  ASSERT_TRUE(config);
  EXPECT_TRUE(config->eos_token_ids.empty());
  EXPECT_FALSE(config->temperature);
  EXPECT_EQ(config->unreadable, "");
}

TEST(GenerationConfigTest, AFileThatIsNoObjectIsPassedOver) {
  const TemporaryFolder folder;
  for (const char* text : {"[]", "", "{\n \"top_k\": nul}", "\xff"}) {
    WriteFile(folder.path() / "generation_config.json", text);
    const auto config = LoadGenerationConfig(folder.path());
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_FALSE(config->top_k);
    EXPECT_THAT(config->unreadable, HasSubstr("generation_config.json")) << text;
  }
  WriteFile(folder.path() / "generation_config.json", R"({"top_k": "a"})");
  EXPECT_THAT(LoadGenerationConfig(folder.path()).error().message, HasSubstr("top_k"));
}

}  // namespace
}  // namespace sluice
