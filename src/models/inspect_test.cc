#include "models/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/checkpoint_testing.h"
#include "models/inspect_program.h"
#include "models/model_testing.h"

namespace sluice {
namespace {

using testing::DataFolder;
using ::testing::HasSubstr;

TEST(InspectTest, DescribesACheckpoint) {
  const auto report = InspectModel(DataFolder("llama-tied-bf16-sharded"));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->refusal) << *report->refusal;
  EXPECT_EQ(report->architecture, "LlamaForCausalLM");
  EXPECT_EQ(report->files.size(), 3u);
  ASSERT_EQ(report->groups.size(), 1u);
  EXPECT_EQ(report->groups[0].type, "BF16");
  EXPECT_EQ(report->groups[0].bytes, report->tensor_bytes);
  EXPECT_EQ(report->parameters * 2, report->tensor_bytes);
  EXPECT_TRUE(report->has_tokenizer);
  EXPECT_TRUE(report->has_chat_template);
  EXPECT_EQ(report->kv_bytes_per_token, 2 * 2 * 1 * 64 * 2);
  const std::string text = FormatText(*report);
  for (const char* part :
       {"LlamaForCausalLM", "can be served     yes", "tied to the embedding", "131072 tokens",
        "llama3 scaling by 32", "BF16", "KV per token", "512 B"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const json::Value value = ToJson(*report);
  EXPECT_TRUE(value.Find("supported")->as_bool());
  EXPECT_EQ(value.Find("config")->Find("head_dim")->as_integer(), 64);
  EXPECT_EQ(value.Find("memory")->Find("kv_bytes_per_token")->as_integer(), 512);
  EXPECT_TRUE(json::Parse(json::Write(value)));
}

TEST(InspectTest, DescribesQuantizedExperts) {
  const auto report = InspectModel(DataFolder("llama4-modelopt-nvfp4"));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->refusal) << *report->refusal;
  ASSERT_TRUE(report->memory);
  EXPECT_LT(report->memory->weight_bytes, report->tensor_bytes);  // the image tower is not loaded
  const std::string text = FormatText(*report);
  EXPECT_THAT(text, HasSubstr("4 of 64 in 4 layers, 1 a token and a shared one"));
  EXPECT_THAT(text, HasSubstr("NVFP4"));
  EXPECT_EQ(report->kv_bytes_per_token, 4 * 2 * 2 * 32);
}

TEST(InspectTest, DescribesWhatItRefuses) {
  const testing::TemporaryFolder folder;
  testing::WriteFile(folder.path() / "config.json",
                     R"({"architectures": ["GptBlockForCausalLM"], "model_type": "gpt_block",
                         "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}})");
  testing::WriteFile(folder.path() / "model.safetensors",
                     testing::MakeSafetensors({{"a.weight", "F8_E4M3", {2, 2}, "1234"},
                                               {"a.weight_scale_inv", "F32", {1, 1}, "1234"}}));
  const auto report = InspectModel(folder.path());
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_TRUE(report->refusal);
  EXPECT_EQ(report->architecture, "GptBlockForCausalLM");
  EXPECT_EQ(report->parameters, 4);
  EXPECT_EQ(report->groups.size(), 2u);
  EXPECT_FALSE(report->memory);
  EXPECT_THAT(FormatText(*report), HasSubstr("fp8 e4m3 in blocks"));
  EXPECT_FALSE(ToJson(*report).Find("supported")->as_bool());
}

TEST(InspectTest, NamesTheOperatorsThatAnUnknownArchitectureNeeds) {
  const testing::TemporaryFolder folder;
  testing::WriteFile(folder.path() / "config.json",
                     R"({"architectures": ["NewForConditionalGeneration"], "model_type": "new",
      "text_config": {"altup_num_inputs": 4, "n_group": 8, "hidden_act": "tanh", "alibi": false,
      "clip_qkv": null, "mamba_dt_rank": 128, "time_step_rank": 128, "head_dim": 1024,
      "layer_types": ["full_attention", "linear_attention", "linear_attention"],
      "rope_parameters": {"full_attention": {"rope_type": "proportional"}}}})");
  const auto report = InspectModel(folder.path());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->missing_operators,
              ::testing::ElementsAre("Mamba-1 state space layers (mamba_dt_rank)",
                                     "several residual streams (altup_num_inputs)",
                                     "another activation (hidden_act tanh)",
                                     "layers of kind linear_attention (layer_types)",
                                     "rope of another type (rope_parameters proportional)",
                                     "heads wider than 512 (head_dim)"));
  EXPECT_THAT(FormatText(*report),
              HasSubstr("it needs          Mamba-1 state space layers (mamba_dt_rank)\n"));
  EXPECT_EQ(ToJson(*report).Find("missing_operators")->as_array().size(), 6u);
}

// If no operator is missing, the report states that only a source file for the family is needed.
TEST(InspectTest, AnArchitectureOfKnownOperatorsNeedsNone) {
  const testing::TemporaryFolder folder;
  std::string config = *ReadFile(DataFolder("qwen3-bf16") / "config.json");
  const size_t at = config.find("Qwen3ForCausalLM");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 5, "Other");
  testing::WriteFile(folder.path() / "config.json", config);
  const auto report = InspectModel(folder.path());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->refusal.value_or(""), HasSubstr("OtherForCausalLM is not supported"));
  EXPECT_THAT(report->missing_operators, ::testing::IsEmpty());
  EXPECT_THAT(FormatText(*report), HasSubstr("it needs          a separate file"));
}

std::vector<std::string> MissingOperators(const std::string& config,
                                          const std::vector<testing::TestTensor>& tensors = {}) {
  const testing::TemporaryFolder folder;
  testing::WriteFile(folder.path() / "config.json", config);
  if (!tensors.empty())
    testing::WriteFile(folder.path() / "model.safetensors", testing::MakeSafetensors(tensors));
  const auto report = InspectModel(folder.path());
  EXPECT_TRUE(report) << report.error().message;
  return report ? report->missing_operators : std::vector<std::string>();
}

// The new modules cannot be seen in config.json, but in the names of tensors.
TEST(InspectTest, NamesTheModulesThatNoFamilyHas) {
  EXPECT_THAT(MissingOperators(R"({"architectures": ["NewForCausalLM"], "model_type": "new"})",
                               {{"model.layers.0.input_layernorm.weight", "U8", {1}, "1"},
                                {"model.layers.0.input_layernorm.bias", "U8", {1}, "1"},
                                {"model.layers.0.mlp.experts.3.down_proj.weight", "U8", {1}, "1"},
                                {"model.layers.0.mlp.c_new.weight", "U8", {1}, "1"},
                                {"model.layers.1.mlp.c_new.weight", "U8", {1}, "1"},
                                {"model.layers.1.self_attn.sinks", "U8", {1}, "1"}}),
              ::testing::ElementsAre("a module mlp.c_new (in its layers)"));
  EXPECT_THAT(MissingOperators(R"({"architectures": ["BloomForCausalLM"], "model_type": "bloom",
                "layer_norm_epsilon": 1e-5})"),
              ::testing::ElementsAre("ALiBi position biases (model_type bloom)"));
}

TEST(InspectTest, NamesTowersAndUnevenHeads) {
  EXPECT_THAT(
      MissingOperators(R"({"architectures": ["SomeVLForConditionalGeneration"],
                "model_type": "some_vl", "vision_config": {"hidden_size": 8}, "audio_config": {},
                "text_config": {"model_type": "qwen3", "head_dim": 128, "v_head_dim": 192}})"),
      ::testing::ElementsAre("values wider than keys (v_head_dim 192 beside head_dim 128)",
                             "an image tower (vision_config)", "an audio tower (audio_config)"));
  EXPECT_THAT(MissingOperators(R"({"architectures": ["SparseForCausalLM"], "model_type": "sparse",
                "sparse_block_size": 16, "rnn_units": 8, "hidden_act": "gelu"})"),
              ::testing::ElementsAre("block-sparse attention (sparse_block_size)",
                                     "recurrent layers (rnn_units)"));
  // The text part of this architecture is supported.
  EXPECT_THAT(MissingOperators(R"({"architectures": ["Gemma3ForConditionalGeneration"],
                "model_type": "gemma3", "vision_config": {},
                "text_config": {"hidden_activation": "tanh"}})"),
              ::testing::ElementsAre("another activation (hidden_activation tanh)"));
}

TEST(InspectTest, NamesWhatAnUnknownEncoderNeeds) {
  EXPECT_THAT(
      MissingOperators(R"({"architectures": ["MPNetModel"], "model_type": "mpnet",
                "hidden_act": "gelu", "layer_norm_eps": 1e-5, "relative_attention_num_buckets": 32})"),
      ::testing::ElementsAre("attention with relative positions (relative_attention_num_buckets)"));
  EXPECT_THAT(
      MissingOperators(R"({"architectures": ["JinaBertModel"], "model_type": "other",
                "type_vocab_size": 2, "hidden_act": "gelu", "position_embedding_type": "alibi"})"),
      ::testing::ElementsAre("unsupported kind of positions (position_embedding_type alibi)"));
}

TEST(InspectTest, ReadsTheNumbersThatPythonWritesAndJsonDoesNotKnow) {
  EXPECT_THAT(MissingOperators(R"({"architectures": ["JambaForCausalLM"], "mamba_dt_rank": 16,
                "time_step_limit": [0.0, Infinity], "note": "Infinity, \" NaN"})"),
              ::testing::ElementsAre("Mamba-1 state space layers (mamba_dt_rank)"));
}

TEST(InspectTest, TellsTheFirstMambaFromTheSecond) {
  EXPECT_THAT(MissingOperators(R"({"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2",
                "time_step_rank": 256, "num_heads": 128, "n_groups": 8, "state_size": 128})"),
              ::testing::ElementsAre("a decoder without attention layers (state_size)"));
  EXPECT_THAT(
      MissingOperators(R"({"architectures": ["FalconMambaForCausalLM"], "time_step_rank": 48})"),
      ::testing::ElementsAre("Mamba-1 state space layers (time_step_rank)"));
}

// The plan is made from the configuration and the headers of the existing files.
TEST(InspectTest, ACheckpointThatLacksFilesIsDescribed) {
  const testing::TemporaryFolder folder;
  for (const auto& entry :
       std::filesystem::directory_iterator(DataFolder("llama-tied-bf16-sharded"))) {
    std::filesystem::copy(entry.path(), folder.path() / entry.path().filename());
  }
  const auto whole = InspectModel(folder.path());
  ASSERT_TRUE(whole) << whole.error().message;
  const std::string lost = whole->files[1];
  std::filesystem::remove(folder.path() / lost);
  const auto report = InspectModel(folder.path(), 1, 2);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->missing_files, ::testing::ElementsAre(lost));
  EXPECT_EQ(report->files.size(), 2u);
  EXPECT_LT(report->tensor_bytes, whole->tensor_bytes);
  EXPECT_THAT(report->refusal.value_or(""), HasSubstr("shard " + lost + " is missing"));
  ASSERT_TRUE(report->memory);
  EXPECT_EQ(report->memory->weight_bytes, whole->memory->weight_bytes);
  EXPECT_EQ(report->ranks.size(), 2u);
  EXPECT_THAT(FormatText(*report), HasSubstr("missing: " + lost));
  EXPECT_EQ(ToJson(*report).Find("missing_files")->as_array().size(), 1u);
  EXPECT_TRUE(whole->missing_files.empty());
}

TEST(InspectTest, ATensorThatDoesNotFitIsTheRefusal) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy(DataFolder("qwen3-bf16") / "config.json", folder.path() / "config.json");
  testing::WriteFile(folder.path() / "model.safetensors",
                     testing::MakeSafetensors({{"a", "U8", {1}, "1"}}));
  const auto report = InspectModel(folder.path());
  ASSERT_TRUE(report);
  EXPECT_THAT(report->refusal.value_or(""), HasSubstr("model.embed_tokens.weight"));
}

TEST(InspectTest, AFolderWithoutWeightsIsDescribed) {
  const testing::TemporaryFolder folder;
  std::filesystem::copy(DataFolder("qwen3-bf16") / "config.json", folder.path() / "config.json");
  const auto report = InspectModel(folder.path());
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->memory);
  EXPECT_THAT(report->refusal.value_or(""), HasSubstr("model.safetensors"));
}

TEST(InspectTest, FoldersOfOtherFormatsAreNamed) {
  const testing::TemporaryFolder folder;
  testing::WriteFile(folder.path() / "model.gguf", "GGUF");
  EXPECT_THAT(InspectModel(folder.path()).error().message,
              HasSubstr("GGUF format is not supported"));
  testing::WriteFile(folder.path() / "adapter_config.json", "{}");
  EXPECT_THAT(InspectModel(folder.path()).error().message, HasSubstr("holds a LoRA adapter"));
}

TEST(InspectTest, DamagedFilesAreErrors) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(InspectModel(folder.path()).error().code, ErrorCode::kNotFound);
  std::filesystem::copy(DataFolder("qwen3-bf16") / "config.json", folder.path() / "config.json");
  testing::WriteFile(folder.path() / "model.safetensors", "short");
  EXPECT_THAT(InspectModel(folder.path()).error().message, HasSubstr("model.safetensors"));
}

// The operators' weight bytes add up to the bytes that a step of one token reads, except for norms
// and other vectors.
TEST(InspectProgramTest, CountsTheWeightsOfAStep) {
  for (const char* name :
       {"llama-bf16", "qwen3-modelopt-fp8", "tiny-qwen3-moe-w4a16", "tiny-gemma4-shared"}) {
    const auto config = LoadModelConfig(DataFolder(name));
    ASSERT_TRUE(config) << name;
    ModelOptions options;
    options.max_context = 64;
    const auto memory = PlanModel(*config, options, /*num_threads=*/1);
    ASSERT_TRUE(memory) << name;
    const auto program = ProgramJson(*config, options, RankPlace());
    ASSERT_TRUE(program) << name;
    int64_t bytes = 0;
    for (const json::Value& op : program->as_array())
      bytes += op.Find("weight_bytes")->as_integer();
    EXPECT_LE(bytes, memory->token_weight_bytes) << name;
    EXPECT_GE(bytes, memory->token_weight_bytes * 9 / 10) << name;
  }
}

TEST(InspectProgramTest, WritesLayersThatAreAlikeOnce) {
  auto config = LoadModelConfig(DataFolder("llama-bf16"));
  ASSERT_TRUE(config);
  config->spec.layers.assign(6, LayerSpec(config->spec.layers.front()));
  const auto text = ProgramText(*config, ModelOptions(), RankPlace());
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("layers 2 to 4: as layer 1"));
  EXPECT_THAT(*text, HasSubstr("\nAttend "));
  EXPECT_THAT(*text, HasSubstr("6 states"));
}

}  // namespace
}  // namespace sluice
