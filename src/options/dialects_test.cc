// The command lines of vLLM and TensorRT-LLM.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/source_path_testing.h"
#include "options/dialect_notes.h"
#include "options/dialect_table.h"
#include "options/names.h"
#include "options/sources.h"

namespace sluice::options {
namespace {

using ::testing::HasSubstr;

Result<Resolved> Read(const std::vector<std::string>& words, Dialect dialect,
                      const std::map<std::string, std::string>& environment = {}) {
  return Resolve(words, environment, kServe, dialect);
}

std::string VllmError(const std::vector<std::string>& words) {
  const auto resolved = Read(words, Dialect::kVllm);
  EXPECT_FALSE(resolved.has_value());
  return resolved ? "" : resolved.error().message;
}

// Returns the text of the note about `what`; "" if there is none.
std::string NoteOn(const Settings& settings, std::string_view what) {
  for (const Note& note : settings.notes()) {
    if (note.what == what) return note.text;
  }
  return "";
}

json::Value VllmOptions() {
  const auto text = ReadFile(SourcePath("tests/data/options/vllm_serve.json"), 1 << 20);
  EXPECT_TRUE(text) << text.error().message;
  return *json::Parse(*text);
}

TEST(Vllm, EveryOptionOfItsServerIsKnownByAllItsNames) {
  const Names names(kServe, Dialect::kVllm);
  const json::Value options = VllmOptions();
  for (const json::Value& option : options.as_array()) {
    const std::string kind = option.Find("kind")->as_string();
    const Option* found = nullptr;
    for (const json::Value& name : option.Find("names")->as_array()) {
      const auto spelling = names.Lookup(name.as_string(), false);
      ASSERT_TRUE(spelling) << name.as_string();
      if (found == nullptr) found = spelling->option;
      EXPECT_EQ(spelling->option, found) << name.as_string();
      EXPECT_EQ(spelling->negated, name.as_string().starts_with("--no-"));
      std::string underscores = name.as_string();
      std::replace(underscores.begin() + 2, underscores.end(), '-', '_');
      EXPECT_TRUE(names.Lookup(underscores, false)) << underscores;
    }
    const bool takes_value = kind != "StoreTrue" && kind != "BooleanOptional";
    EXPECT_EQ(found->type != Type::kFlag, takes_value) << found->name;
    if (const json::Value* count = option.Find("nargs"); count && count->as_string() == "+") {
      EXPECT_EQ(found->type, Type::kStrings) << found->name;
    }
  }
}

TEST(Vllm, EveryChoiceIsTakenOrRefusedWithAReason) {
  const json::Value options = VllmOptions();
  for (const json::Value& option : options.as_array()) {
    const json::Value* choices = option.Find("choices");
    if (choices == nullptr) continue;
    const std::string flag = option.Find("names")->as_array()[0].as_string();
    for (const json::Value& choice : choices->as_array()) {
      if (!choice.is_string()) continue;
      const auto resolved = Read({"m", flag, choice.as_string()}, Dialect::kVllm);
      if (resolved) continue;
      EXPECT_EQ(resolved.error().code, ErrorCode::kUnsupported)
          << flag << " " << choice.as_string() << ": " << resolved.error().message;
    }
  }
}

TEST(Vllm, ASpellingMeansOneOption) {
  for (const Dialect dialect : {Dialect::kSluice, Dialect::kVllm, Dialect::kTrtllm}) {
    for (size_t bit = 0; bit < CommandNames().size(); ++bit) {
      std::map<std::string, std::string_view> seen;
      for (const Option& option : Table()) {
        if ((option.commands & (Commands{1} << bit)) == 0) continue;
        if ((option.dialects & DialectBit(dialect)) == 0) continue;
        const std::string flag = "--" + std::string(FlagName(option));
        const auto [place, fresh] = seen.emplace(flag, option.name);
        EXPECT_TRUE(fresh) << flag << " is " << option.name << " and " << place->second;
        EXPECT_EQ(Names(Commands{1} << bit, dialect).Lookup(flag, false)->option, &option) << flag;
      }
    }
  }
}

TEST(Vllm, CompilerSettingsInAllSpellings) {
  const auto text = [](const std::vector<std::string>& words) {
    const auto resolved = Read(words, Dialect::kVllm);
    EXPECT_TRUE(resolved) << resolved.error().message;
    return resolved ? resolved->settings.TextOr("compilation-config") : "";
  };
  EXPECT_EQ(text({"--compilation-config", "3"}), "{\"mode\":3}");
  EXPECT_EQ(text({"-cc", "{\"mode\":3}"}), "{\"mode\":3}");
  EXPECT_EQ(text({"-cc.mode=3"}), "{\"mode\":3}");
  EXPECT_EQ(text({"-cc.pass_config.enable_noop", "true"}),
            "{\"pass_config\":{\"enable_noop\":true}}");
  EXPECT_EQ(text({"-cc.custom_ops+", "+rms_norm", "-cc.custom_ops+=-quant_fp8,none"}),
            "{\"custom_ops\":[\"+rms_norm\",\"-quant_fp8\",\"none\"]}");
  EXPECT_EQ(text({"-O{\"level\":2}"}), "{\"level\":2}");
  EXPECT_EQ(text({"-O", "{\"level\":2}"}), "{\"level\":2}");
  EXPECT_EQ(text({"-O.level=2"}), "{\"level\":2}");
  // Dotted keys, taken together, replace the value of the whole option.
  EXPECT_EQ(text({"--compilation_config.cudagraph_mode", "FULL", "-cc", "{\"mode\":1}"}),
            "{\"cudagraph_mode\":\"FULL\"}");
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-O3"}, {"-O", "3"}, {"-O=3"}}) {
    EXPECT_EQ(Read(words, Dialect::kVllm)->settings.Text("optimization-level"), "3");
  }
  EXPECT_FALSE(Read({"-O7"}, Dialect::kVllm));
}

TEST(Vllm, CompilerKeysAreTold) {
  const auto resolved = Read(
      {"m", "-cc",
       R"({"full_cuda_graph":true,"pass_config":{"enable_noop":true,"odd":1},"custom_ops":[]})"},
      Dialect::kVllm);
  ASSERT_TRUE(resolved);
  const Settings& settings = resolved->settings;
  EXPECT_EQ(NoteOn(settings, "--compilation-config full_cuda_graph"), "--cuda-graphs");
  EXPECT_THAT(NoteOn(settings, "--compilation-config pass_config.enable_noop"),
              HasSubstr("now pass_config.eliminate_noops"));
  EXPECT_THAT(NoteOn(settings, "--compilation-config pass_config.odd"), HasSubstr("not a key"));
  EXPECT_NE(NoteOn(settings, "--compilation-config custom_ops"), "");
}

TEST(Vllm, SmallThingsOfItsParser) {
  EXPECT_EQ(Read({"-qfp8"}, Dialect::kVllm)->settings.Text("quantization"), "fp8");
  EXPECT_EQ(Read({"-q=fp8"}, Dialect::kVllm)->settings.Text("quantization"), "fp8");
  EXPECT_EQ(Read({"-tp", "4"}, Dialect::kVllm)->settings.Integer("tensor-parallel-size"), 4);
  EXPECT_TRUE(Read({"--hf-token", "--port", "1"}, Dialect::kVllm)->settings.Given("hf-token"));
  EXPECT_EQ(Read({"--enable-chunked-prefill=False"}, Dialect::kVllm)
                ->settings.Flag("enable-chunked-prefill"),
            false);
  EXPECT_TRUE(Read({"--runner", "generate", "--convert", "none", "--nnodes", "1", "--task",
                    "generate", "--hf-overrides", "{}"},
                   Dialect::kVllm));
  const auto twice = Read({"--port", "1", "--port", "2"}, Dialect::kVllm);
  EXPECT_EQ(twice->settings.Integer("port"), 2);
  EXPECT_THAT(NoteOn(twice->settings, "--port"), HasSubstr("more than once"));
}

TEST(Vllm, OddWordsAreErrorsAndNoMore) {
  std::string deep = "-cc";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  const auto nested = Read({deep, "1"}, Dialect::kVllm);
  ASSERT_FALSE(nested);
  EXPECT_THAT(nested.error().message, HasSubstr("at most 32 parts"));
  for (const char* word : {"-",
                           "--",
                           "--=x",
                           "---x",
                           "-O",
                           "-cc.",
                           "-cc.=1",
                           "-cc.a..b=1",
                           "-q=",
                           "-qq",
                           "--port=",
                           "--port.x",
                           "-.5",
                           "-5",
                           "=",
                           ".",
                           "",
                           "-O9",
                           "-O{",
                           "--no-port",
                           "--no-",
                           "-cc.a+",
                           "--compilation-config={\"a\":"}) {
    for (const Dialect dialect : {Dialect::kSluice, Dialect::kVllm, Dialect::kTrtllm}) {
      const auto resolved = Read({"m", word}, dialect);
      EXPECT_TRUE(resolved.has_value() || !resolved.error().message.empty()) << word;
    }
  }
}

TEST(Vllm, WhatCannotBeHadIsRefusedWithAReason) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--data-parallel-multi-port-external-lb"},
                                             {"--runner", "draft"},
                                             {"--hf-config-path", "c"},
                                             {"--middleware", "x.y"}}) {
    const auto resolved = Read(words, Dialect::kVllm);
    ASSERT_FALSE(resolved) << words[0];
    EXPECT_EQ(resolved.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(resolved.error().message, HasSubstr(words[0]));
  }
}

// Scripts match this text: the argument, and what is wrong with it.
TEST(Vllm, ErrorsNameTheArgument) {
  EXPECT_EQ(VllmError({"m", "--bogus-flag"}), "unrecognized arguments: --bogus-flag");
  EXPECT_EQ(VllmError({"m", "extra", "--pory=5", "--bogus", "x"}),
            "unrecognized arguments: --pory --bogus, did you mean --port?");
  EXPECT_THAT(VllmError({"--max-model-len", "abc"}),
              HasSubstr("--max-model-len: expected a whole number"));
  EXPECT_THAT(VllmError({"--gpu-memory-util", "x"}),
              HasSubstr("--gpu-memory-util: expected a number, found 'x'"));
  EXPECT_THAT(VllmError({"-tp", "x"}), HasSubstr("-tp: expected a whole number"));
  EXPECT_EQ(VllmError({"--dtype", "float99"}),
            "--dtype: expected auto, bfloat16, float32, float, half, float16, found 'float99'");
  EXPECT_THAT(VllmError({"--default-chat-template-kwargs", "{x"}),
              HasSubstr("--default-chat-template-kwargs: expected a JSON object"));
  EXPECT_EQ(VllmError({"--port"}), "--port: expected a value (integer)");
  EXPECT_EQ(VllmError({"--served-model-name", "--port", "1"}),
            "--served-model-name: expected a value (list)");
  EXPECT_THAT(VllmError({"--max", "5"}), HasSubstr("ambiguous option: --max could be --max-"));
}

// vLLM's parser accepts any number and fails later, with another exit code.
TEST(Vllm, ANumberOutOfRangeIsNoMistakeOfTheCommandLine) {
  EXPECT_EQ(Read({"--port", "99999"}, Dialect::kVllm).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(Read({"--port", "99999"}, Dialect::kTrtllm).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Read({"--port", "x"}, Dialect::kVllm).error().code, ErrorCode::kInvalidArgument);
}

TEST(Trtllm, DefaultsAreItsOwn) {
  EXPECT_EQ(Read({"m"}, Dialect::kTrtllm)->settings.Text("host"), "localhost");
  EXPECT_EQ(Read({"m"}, Dialect::kVllm)->settings.Text("host"), "0.0.0.0");
  EXPECT_EQ(Read({"m"}, Dialect::kTrtllm)->settings.Integer("port"), 8000);
}

class TrtllmYaml : public ::testing::Test {
 protected:
  TrtllmYaml() {
    folder_ = std::filesystem::temp_directory_path() /
              ("sluice_trtllm_" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(folder_);
  }
  ~TrtllmYaml() override { std::filesystem::remove_all(folder_); }

  Result<Resolved> With(const std::string& text, std::vector<std::string> words = {}) const {
    std::ofstream(folder_ / "c.yml") << text;
    words.insert(words.end(), {"--extra_llm_api_options", folder_ / "c.yml"});
    return Read(words, Dialect::kTrtllm);
  }
  std::string ErrorOf(const std::string& text) const {
    const auto resolved = With(text);
    EXPECT_FALSE(resolved) << text;
    return resolved ? "" : resolved.error().message;
  }

  std::filesystem::path folder_;
};

TEST_F(TrtllmYaml, KeysSetOptionsAndWinOverFlags) {
  const auto resolved = With(
      "kv_cache_config:\n  dtype: fp8\n  enable_block_reuse: false\n"
      "  free_gpu_memory_fraction: 0.5\n  tokens_per_block: 32\n  max_tokens: 100\n"
      "max_batch_size: 7\nenable_attention_dp: false\nattention_backend: TRTLLM\n"
      "cuda_graph_config:\n  enable_padding: true\n  max_batch_size: 1024\n",
      {"m", "--max_batch_size", "9", "--max_num_tokens", "2048", "--kv_cache_dtype", "auto"});
  ASSERT_TRUE(resolved) << resolved.error().message;
  const Settings& settings = resolved->settings;
  EXPECT_EQ(settings.Text("kv-cache-dtype"), "fp8");
  EXPECT_FALSE(settings.Flag("enable-prefix-caching"));
  EXPECT_EQ(settings.Number("gpu-memory-utilization"), 0.5);
  EXPECT_EQ(settings.Integer("block-size"), 32);
  EXPECT_EQ(settings.Integer("num-gpu-blocks-override"), 4);
  EXPECT_EQ(settings.Integer("max-num-seqs"), 7);
  EXPECT_EQ(settings.Integer("max-num-batched-tokens"), 2048);
  EXPECT_EQ(NoteOn(settings, "cuda_graph_config.enable_padding"), "--cudagraph-padding");
  EXPECT_TRUE(settings.Flag("cuda-graphs"));
  EXPECT_TRUE(settings.Flag("cudagraph-padding"));
  EXPECT_EQ(settings.Integer("max-cudagraph-capture-size"), 1024);
  EXPECT_EQ(NoteOn(settings, "kv_cache_config.dtype"), "--kv-cache-dtype");
}

TEST_F(TrtllmYaml, HostAndDiskCachesAreTiersOfTheCache) {
  const auto resolved = With(
      "kv_cache_config:\n  host_cache_size: 1610612736\n  disk_cache_size: 5000000\n"
      "  disk_cache_path: /kv\n");
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->settings.Number("kv-offloading-size"), 1.5) << "in GiB";
  EXPECT_EQ(resolved->settings.Integer("kv-offloading-disk-size"), 5000000);
  EXPECT_EQ(resolved->settings.Text("kv-offloading-path"), "/kv");
  EXPECT_THAT(ErrorOf("kv_cache_config:\n  host_cache_size: many\n"),
              HasSubstr("kv_cache_config.host_cache_size: expected a number of bytes"));
}

TEST_F(TrtllmYaml, MistakesNameTheirPath) {
  EXPECT_THAT(
      ErrorOf("kv_cache_config:\n  dtyp: fp8\n"),
      HasSubstr("unknown key 'kv_cache_config.dtyp', did you mean kv_cache_config.dtype or"));
  EXPECT_THAT(ErrorOf("max-num-seqs: 4\n"), HasSubstr("unknown key 'max-num-seqs'"));
  EXPECT_THAT(ErrorOf("kv_cache_config: 4\n"), HasSubstr("expected a mapping, found 4"));
  EXPECT_THAT(ErrorOf("max_batch_size: many\n"), HasSubstr("max_batch_size: expected a whole"));
  EXPECT_THAT(ErrorOf("kv_cache_config:\n  dtype: nvfp4\n"), HasSubstr("kv_cache_config.dtype"));
  EXPECT_THAT(ErrorOf("cuda_graph_config:\n  batch_sizes: [1, 2]\n  max_batch_size: 4\n"),
              HasSubstr("give only one of them"));
  EXPECT_THAT(ErrorOf("enable_lora: true\n"), HasSubstr("adapters"));
  const auto none = With("cuda_graph_config: null\nenable_lora: false\n");
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->settings.Flag("cuda-graphs"));
}

TEST(Trtllm, SetTakesTheSameKeys) {
  const auto resolved =
      Read({"m", "--set", "kv_cache_config.dtype=fp8", "max_batch_size=3"}, Dialect::kTrtllm);
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->settings.Text("kv-cache-dtype"), "fp8");
  EXPECT_EQ(resolved->settings.Integer("max-num-seqs"), 3);
  EXPECT_FALSE(Read({"m", "--set", "odd"}, Dialect::kTrtllm));
}

TEST(Trtllm, ErrorsNameTheArgument) {
  EXPECT_EQ(Read({"--max_batch_sizes", "1"}, Dialect::kTrtllm).error().message,
            "unrecognized arguments: --max_batch_sizes, did you mean --max-batch-size?");
  EXPECT_EQ(Read({"--port"}, Dialect::kTrtllm).error().message,
            "--port: expected a value (integer)");
}

TEST(Environment, VariablesOfOthers) {
  const auto resolved = Read({"m"}, Dialect::kVllm,
                             {{"VLLM_CPU_KVCACHE_SPACE", "2"},
                              {"VLLM_SERVER_DEV_MODE", "1"},
                              {"VLLM_USE_V1", "1"},
                              {"NCCL_DEBUG", "WARN"},
                              {"VLLM_BOGUS", "1"},
                              {"SLUICE_MAX_NUM_SEQ", "1"},
                              {"SLUICE_SEED", "1"},
                              {"SLUICE_CUBLASLT", "x"},
                              {"SLUICE_HIP_RUNTIME", "x"},
                              {"SLUICE_RCCL", "x"},
                              {"SLUICE_HIPBLASLT", "x"},
                              {"PATH", "x"}});
  ASSERT_TRUE(resolved) << resolved.error().message;
  const Settings& settings = resolved->settings;
  EXPECT_EQ(settings.Integer("kv-cache-memory-bytes"), int64_t{2} << 30);
  EXPECT_TRUE(settings.Flag("dev-mode"));
  EXPECT_NE(NoteOn(settings, "VLLM_USE_V1"), "");
  EXPECT_NE(NoteOn(settings, "NCCL_DEBUG"), "");
  EXPECT_THAT(NoteOn(settings, "VLLM_BOGUS"), HasSubstr("not a variable"));
  EXPECT_THAT(NoteOn(settings, "SLUICE_MAX_NUM_SEQ"),
              HasSubstr("not a variable of this program, did you mean SLUICE_MAX_NUM_SEQS"));
  EXPECT_EQ(NoteOn(settings, "SLUICE_SEED") + NoteOn(settings, "SLUICE_CUBLASLT") +
                NoteOn(settings, "SLUICE_HIP_RUNTIME") + NoteOn(settings, "SLUICE_RCCL") +
                NoteOn(settings, "SLUICE_HIPBLASLT"),
            "");
  EXPECT_EQ(NoteOn(settings, "PATH"), "");
  EXPECT_EQ(NoteOn(settings, "VLLM_SERVER_DEV_MODE"), "");
  EXPECT_FALSE(Read({"--fail-on-environ-validation"}, Dialect::kVllm, {{"VLLM_BOGUS", "1"}}));
}

// A variable with an effect must either set an option or be read when the program locates models.
TEST(Environment, WhatActsHasAnOption) {
  std::set<std::string_view> read;
  for (const Option& option : Table()) {
    std::string_view names = option.environment;
    while (!names.empty()) {
      const size_t end = std::min(names.find('|'), names.size());
      read.insert(names.substr(0, end));
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }
  for (const DialectKey& variable : Dialects().variables) {
    if (!variable.name.starts_with("VLLM_")) continue;
    EXPECT_EQ(read.contains(variable.name), variable.effect == Effect::kActs) << variable.name;
  }
  // A pattern in the table must not match a variable that an option reads, because the variable
  // would then be reported as having no effect.
  for (const std::string_view name : read) {
    const DialectKey* found = FindVariable(name);
    EXPECT_TRUE(!name.starts_with("VLLM_") || (found != nullptr && found->effect == Effect::kActs))
        << name;
  }
}

}  // namespace
}  // namespace sluice::options
