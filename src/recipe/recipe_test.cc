#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/source_path_testing.h"
#include "recipe/lint.h"
#include "recipe/recipe_document.h"
#include "recipe/shell_run.h"
#include "recipe/shell_script.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ScriptRun RunText(std::string_view text) {
  return RunScripts({ReadShellScript(text, 1)});
}

RecipeReport Lint(const std::string& name, std::string_view text,
                  std::vector<std::string> accelerators = {}) {
  LintOptions options;
  options.accelerators = std::move(accelerators);
  options.find_shape = [](const std::string&) { return std::nullopt; };
  auto report = LintRecipe(name, text, options);
  EXPECT_TRUE(report) << report.error().message;
  return report ? *std::move(report) : RecipeReport{};
}

RecipeReport LintFile(const std::string& name) {
  const auto text = ReadFile(std::filesystem::path(SourcePath("tests/data/recipes")) / name);
  EXPECT_TRUE(text);
  return Lint(name, *text);
}

// Returns a rule's findings as texts, each with its line number.
std::vector<std::string> Texts(const RecipeReport& report, std::string_view rule) {
  std::vector<std::string> texts;
  for (const Finding& finding : report.findings) {
    if (finding.rule == rule) texts.push_back(std::to_string(finding.line) + ": " + finding.text);
  }
  return texts;
}

TEST(ShellScript, WordsQuotesAndContinuedLines) {
  const ScriptRun run = RunText("a=1\nx --b \"$a 2\" 'c $a' d\\ e \\\n  --f=${a}g > out.txt &\n");
  ASSERT_EQ(run.ways.size(), 1u);
  ASSERT_EQ(run.ways[0].commands.size(), 1u);
  const RanCommand& command = run.ways[0].commands[0];
  EXPECT_THAT(command.words, ElementsAre("x", "--b", "1 2", "c $a", "d e", "--f=1g"));
  EXPECT_EQ(command.output_file, "out.txt");
  EXPECT_TRUE(command.background);
  EXPECT_EQ(command.line, 2);
}

TEST(ShellScript, EmptyUnquotedExpansionsVanishAndOthersSplit) {
  const ScriptRun run = RunText("e=\"\"\nl=\"1 2\"\nx $e \"$e\" $l\n");
  EXPECT_THAT(run.ways[0].commands[0].words, ElementsAre("x", "", "1", "2"));
}

TEST(ShellScript, TextsForVariablesThatAreNotSet) {
  const ScriptRun run = RunText("n=a/b\nx ${m:-$n} ${p:-8000} \"${q:=1 2}\" ${n:-c} ${r-}\n");
  EXPECT_THAT(run.ways[0].commands[0].words, ElementsAre("x", "a/b", "8000", "1 2", "a/b"));
  EXPECT_THAT(run.unset, IsEmpty());
}

TEST(ShellScript, EachWayThroughAnIf) {
  const ScriptRun run = RunText(
      "C=$(nvidia-smi)\nif [ \"$C\" = \"10.0\" ]; then\n  D=FP4\nelif [ \"$C\" = \"9.0\" ]; then\n"
      "  D=FP8\nelse\n  D=BF16\nfi\nserve m-$D\n");
  ASSERT_EQ(run.ways.size(), 3u);
  EXPECT_THAT(run.ways[0].commands.back().words, ElementsAre("serve", "m-FP4"));
  EXPECT_THAT(run.ways[1].commands.back().words, ElementsAre("serve", "m-FP8"));
  EXPECT_THAT(run.ways[2].commands.back().words, ElementsAre("serve", "m-BF16"));
  EXPECT_THAT(run.ways[2].conditions, ElementsAre(HasSubstr("not: "), HasSubstr("not: ")));
  EXPECT_THAT(run.unset, IsEmpty());
}

TEST(ShellScript, ExportedVariablesReachTheProgram) {
  const ScriptRun run = RunText("export A=1\nB=2\nexport B\nC=3 x\n");
  EXPECT_THAT(run.ways[0].commands[0].environment,
              ElementsAre(std::pair("A", "1"), std::pair("B", "2"), std::pair("C", "3")));
}

TEST(ShellScript, HereDocuments) {
  const ScriptRun run = RunText("cat <<EOF > a.yml\nk: $v\nEOF\ncat <<'END' > b.sh\n$w\nEND\nx\n");
  ASSERT_EQ(run.ways[0].commands.size(), 3u);
  const auto& first = run.ways[0].commands[0].here_documents;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].body, "k: $v\n");
  EXPECT_FALSE(first[0].quoted);
  EXPECT_EQ(first[0].line, 2);
  EXPECT_TRUE(run.ways[0].commands[1].here_documents[0].quoted);
  EXPECT_EQ(run.ways[0].commands[1].output_file, "b.sh");
}

TEST(ShellScript, UnfinishedTextDoesNotHurt) {
  for (const char* text : {"x 'a", "x \"a",        "x $(a",    "x ${a", "x $((1", "if",   "if [ a",
                           "fi",   "cat <<EOF\nb", "x \\",     "else",  "<",      "a <<", "$",
                           "for",  "for x",        "for x in", "\"\"",  "=a",     "a="}) {
    RunText(text);
  }
}

TEST(ShellRun, UnsetVariablesButThoseOfTheEnvironment) {
  const ScriptRun run = RunText("x $model $HF_TOKEN\n");
  ASSERT_EQ(run.unset.size(), 1u);
  EXPECT_EQ(run.unset[0].name, "model");
  EXPECT_THAT(ExpandedVariables("a ${b} '$c' \\$d $((e * f)) $1 $"),
              ElementsAre("b", "c", "e", "f"));
}

TEST(RecipeDocument, BlocksAndTheirKinds) {
  const RecipeDocument document = ParseRecipe(
      "r.md",
      "# T\n\n`run.sh`\n```\n# c\nvllm serve m\n```\n\n1. x:\n   ```bash\n   curl u\n   ```\n"
      "`c.yaml`\n```\na-b: 1\n```\n```shell\n|Tasks|\n```\n```\n{\"id\": 1}\n```\n"
      "```bash\n--max-num-seqs 4\n```\n```python\nx\n```\n");
  ASSERT_EQ(document.blocks.size(), 7u);
  EXPECT_EQ(document.blocks[0].kind, BlockKind::kShell);
  EXPECT_EQ(document.blocks[0].title, "run.sh");
  EXPECT_EQ(document.blocks[0].line, 5);
  EXPECT_EQ(document.blocks[1].text, "curl u\n");
  EXPECT_EQ(document.blocks[2].kind, BlockKind::kYaml);
  EXPECT_EQ(document.blocks[3].kind, BlockKind::kOther);
  EXPECT_EQ(document.blocks[4].kind, BlockKind::kOther);
  EXPECT_EQ(document.blocks[5].kind, BlockKind::kOptions);
  EXPECT_EQ(document.blocks[6].kind, BlockKind::kPython);
}

TEST(Lint, ACleanLaunchHasNoFindings) {
  const RecipeReport report =
      Lint("launch.sh",
           "vllm serve nvidia/Llama-3.1-8B-Instruct-FP8 --port 8000 --max-model-len 4096\n"
           "curl http://localhost:8000/v1/completions -d '{\"model\": "
           "\"nvidia/Llama-3.1-8B-Instruct-FP8\"}'\n");
  ASSERT_EQ(report.launches.size(), 1u);
  EXPECT_EQ(report.launches[0].model, "nvidia/Llama-3.1-8B-Instruct-FP8");
  ASSERT_TRUE(report.launches[0].stored);
  EXPECT_EQ(report.launches[0].max_model_len, 4096);
  EXPECT_THAT(report.findings, IsEmpty()) << FormatReport(report);
}

TEST(Lint, NamesAndPorts) {
  const RecipeReport report =
      Lint("x.sh",
           "vllm serve a/b/ --port 8080\ncurl http://localhost:8000/v1/completions -d "
           "'{\"model\": \"a/c\"}'\nvllm bench serve --model a/b --port 8080\n");
  EXPECT_THAT(Texts(report, "model-name"),
              ElementsAre(HasSubstr("2: curl asks for a/c, and no launch")));
  EXPECT_THAT(Texts(report, "port"), ElementsAre(HasSubstr("2: curl goes to port 8000")));
}

TEST(Lint, ServedNamesCount) {
  const RecipeReport report = Lint("x.sh",
                                   "vllm serve a/b --served-model-name c d\nlm_eval --model_args "
                                   "model=d,base_url=http://h:8000/v1/completions\n");
  EXPECT_THAT(Texts(report, "model-name"), IsEmpty());
}

TEST(Lint, EarlyExpansionOnlyWhereItHurts) {
  EXPECT_THAT(Texts(Lint("x.sh", "cat <<EOF > r.sh\nn=1\necho $n\nEOF\n"), "early-expansion"),
              ElementsAre(HasSubstr("expands n")));
  EXPECT_THAT(Texts(Lint("x.sh", "cat <<'EOF' > r.sh\nn=1\necho $n\nEOF\n"), "early-expansion"),
              IsEmpty());
  EXPECT_THAT(Texts(Lint("x.sh", "n=1\ncat <<EOF > r.yml\nk: $n\nEOF\n"), "early-expansion"),
              IsEmpty());
  EXPECT_THAT(Texts(Lint("x.sh", "cat <<EOF > r.sh\nn=1\necho \\$n\nEOF\n"), "early-expansion"),
              IsEmpty());
}

TEST(Lint, Contradictions) {
  const auto texts =
      Texts(Lint("x.sh",
                 "vllm serve meta/Llama-3.1-8B --max-num-seqs 512 --max-num-batched-tokens 256 "
                 "--max-model-len 1048576 --enable-prefix-caching --no-enable-prefix-caching\n"),
            "contradiction");
  EXPECT_THAT(texts, Contains(HasSubstr("256 tokens a step are fewer than 512 sequences")));
  EXPECT_THAT(texts, Contains(HasSubstr("longer than the 131072")));
  EXPECT_THAT(texts, Contains(HasSubstr("--enable-prefix-caching and --no-enable-prefix-caching")));
  EXPECT_THAT(Texts(Lint("x.sh",
                         "vllm serve meta/Llama-3.1-8B --no-enable-chunked-prefill "
                         "--max-model-len 9000 --max-num-batched-tokens 4096\n"),
                    "contradiction"),
              ElementsAre(HasSubstr("without chunked prefill")));
}

TEST(Lint, WrongOptionsAreToldAsTheProgramTellsThem) {
  EXPECT_THAT(Texts(Lint("x.sh", "vllm serve a/b --max-num-sequences 4\n"), "option"),
              ElementsAre(HasSubstr("max-num-sequences")));
}

TEST(Lint, MemoryOnAnAccelerator) {
  const std::string launch = "vllm serve meta-llama/Llama-3.3-70B-Instruct --max-model-len 8192\n";
  EXPECT_THAT(Texts(Lint("x.sh", launch, {"H200"}), "memory"),
              ElementsAre(HasSubstr("141.1 GB of weights and leaves no cache on one H200")));
  EXPECT_THAT(Texts(Lint("x.sh", launch, {"MI355"}), "memory"), IsEmpty());
  LintOptions options;
  options.accelerators = {"Z80"};
  EXPECT_THAT(LintRecipe("x.sh", launch, options).error().message, HasSubstr("found Z80"));
}

TEST(Lint, ComposeNeedsServices) {
  const std::string service = "image: i\n  command: [vllm, serve, a/b, --port, \"9000\"]\n";
  const RecipeReport bare = Lint("c.yaml", "web:\n  " + service);
  ASSERT_EQ(bare.launches.size(), 1u);
  EXPECT_EQ(bare.launches[0].model, "a/b");
  EXPECT_EQ(Texts(bare, "compose").size(), 1u);
  const RecipeReport whole =
      Lint("c.yaml", "services:\n  web:\n    image: i\n    command: vllm serve a/b\n");
  EXPECT_EQ(whole.launches.size(), 1u);
  EXPECT_THAT(Texts(whole, "compose"), IsEmpty());
  EXPECT_EQ(Texts(Lint("c.yaml", "a: [1\n"), "yaml").size(), 1u);
}

TEST(Lint, LaunchesInContainers) {
  const auto launch_of = [](const std::string& name, std::string_view text) {
    const RecipeReport report = Lint(name, text);
    EXPECT_EQ(report.launches.size(), 1u) << text << FormatReport(report);
    if (report.launches.size() != 1) return LaunchFacts{};
    EXPECT_THAT(report.launches[0].errors, IsEmpty());
    return report.launches[0];
  };
  LaunchFacts launch =
      launch_of("x.sh",
                "docker run --runtime nvidia -it --rm --gpus all -v ~/.cache:/root/.cache --env "
                "'VLLM_USE_V1=1' "
                "-p 8000:8000 --ipc=host vllm/vllm-openai:v0.33.0 --model a/b --max-num-seqs 7\n");
  EXPECT_EQ(launch.model, "a/b");
  EXPECT_EQ(launch.max_num_seqs, 7);
  EXPECT_EQ(launch.launch.environment.at("VLLM_USE_V1"), "1");
  launch = launch_of("x.sh",
                     "podman run -d --name s nvcr.io/nvidia/tensorrt-llm/release:1.0 "
                     "trtllm-serve a/b --max_batch_size 9\n");
  EXPECT_EQ(launch.launch.dialect, options::Dialect::kTrtllm);
  EXPECT_EQ(launch.max_num_seqs, 9);
  launch =
      launch_of("x.sh", "docker run --entrypoint bash i -c 'vllm serve a/b --max-num-seqs 5'\n");
  EXPECT_EQ(launch.max_num_seqs, 5);
  launch = launch_of("c.yaml",
                     "services:\n  web:\n    image: vllm/vllm-openai:latest\n"
                     "    environment: {VLLM_LOGGING_LEVEL: DEBUG}\n"
                     "    command: --model a/b --max-num-seqs 6\n");
  EXPECT_EQ(launch.model, "a/b");
  EXPECT_EQ(launch.max_num_seqs, 6);
  EXPECT_EQ(launch.launch.environment.at("VLLM_LOGGING_LEVEL"), "DEBUG");
  launch = launch_of("k.yaml",
                     "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n---\n"
                     "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n"
                     "      containers:\n"
                     "        - image: vllm/vllm-openai:latest\n"
                     "          env: [{name: HF_TOKEN, value: x}]\n"
                     "          command: [/bin/sh, -c]\n"
                     "          args: [\"vllm serve a/b --max-num-seqs 4\"]\n");
  EXPECT_EQ(launch.max_num_seqs, 4);
  EXPECT_EQ(launch.launch.line, 13);
  const RecipeReport none = Lint("x.sh", "docker run --rm ubuntu echo vllm serve\ndocker run\n");
  EXPECT_TRUE(none.launches.empty());
}

// Checks this project's own recipes, which are scripts with functions.
TEST(Lint, OwnRecipesPass) {
  size_t launches = 0;
  for (const auto& file : std::filesystem::directory_iterator(SourcePath("recipes"))) {
    const auto text = ReadFile(file.path());
    ASSERT_TRUE(text);
    const RecipeReport report = Lint(file.path().filename(), *text);
    for (const Finding& finding : report.findings)
      EXPECT_NE(finding.severity, Severity::kError) << file.path() << finding.line << finding.text;
    launches += report.launches.size();
  }
  EXPECT_GE(launches, 5u);
}

TEST(Lint, EveryErrorOfALaunch) {
  const RecipeReport report =
      Lint("x.sh",
           "vllm serve a/b --max-num-sequences 4 --port x --max-num-seqs 7 --tensor-paralel=2\n");
  EXPECT_THAT(Texts(report, "option"),
              ::testing::UnorderedElementsAre(HasSubstr("max-num-sequences"), HasSubstr("--port"),
                                              HasSubstr("tensor-paralel")));
}

TEST(Lint, DevicesAreCounted) {
  const std::string launch =
      "vllm serve meta-llama/Llama-3.3-70B-Instruct --max-model-len 8192 -tp 2 -pp 2";
  EXPECT_THAT(Texts(Lint("x.sh", launch + "\n", {"H200"}), "memory"), IsEmpty());
  const RecipeReport copies = Lint("x.sh", launch + " --data-parallel-size 2\n", {"H200"});
  ASSERT_EQ(copies.launches.size(), 1u);
  EXPECT_EQ(copies.launches[0].devices_each, 4);
  EXPECT_EQ(DevicesText(copies.launches[0], *FindAccelerator("H200")),
            "8 H200 (2 copies on 4 each)");
  EXPECT_THAT(FormatReport(copies), HasSubstr("on 4"));
  EXPECT_THAT(Texts(Lint("x.sh", launch + " --max-num-seqs 200\n", {"GB10"}), "memory"),
              Contains(HasSubstr("on 4 GB10")));
}

// A speculation method that this program does not support has no effect.
TEST(Lint, WhatDoesNotActIsNotSaidToAct) {
  LintOptions options;
  options.find_shape = [](const std::string&) { return std::nullopt; };
  options.find_idle = [](const options::Settings&, const options::Option& option) {
    return option.name == "speculative-config" ? "eagle3 is not here" : "";
  };
  const auto report = LintRecipe(
      "x.sh", R"(vllm serve a/b --speculative-config '{"method": "eagle3"}' --max-num-seqs 2)",
      options);
  ASSERT_TRUE(report);
  ASSERT_EQ(report->launches.size(), 1u);
  const std::vector<OptionFact>& facts = report->launches[0].options;
  ASSERT_EQ(facts.size(), 2u);
  for (const OptionFact& fact : facts) {
    const bool speculates = fact.given.starts_with("--speculative-config");
    EXPECT_EQ(fact.effect, speculates ? "no effect" : "acts") << fact.given;
    if (speculates) {
      EXPECT_EQ(fact.text, "eagle3 is not here");
    }
  }
}

// Some accepted values of an option have no effect.
TEST(Lint, AValueThatDoesNotActIsNotSaidToAct) {
  const auto effect = [](const std::string& mode) -> std::string {
    const RecipeReport report = Lint("x.sh", "vllm serve a/b --tokenizer-mode " + mode);
    if (report.launches.size() != 1 || report.launches[0].options.size() != 1) return "not found";
    return report.launches[0].options[0].effect;
  };
  EXPECT_EQ(effect("mistral"), "no effect");
  EXPECT_EQ(effect("deepseek_v4"), "acts");
}

TEST(Lint, ConfigFilesThatTheRecipeShows) {
  const RecipeReport report =
      Lint("r.md",
           "`c.yaml`\n```\nmax-num-seqs: 7\n```\n```bash\nvllm serve a/b --config c.yaml\n```\n");
  ASSERT_EQ(report.launches.size(), 1u);
  EXPECT_EQ(report.launches[0].max_num_seqs, 7)
      << ::testing::PrintToString(report.launches[0].errors);
  EXPECT_EQ(report.launches[0].options[0].given, "c.yaml:1 max-num-seqs 7");
}

TEST(Lint, OptionFilesAlone) {
  const RecipeReport vllm = Lint("c.yaml", "kv-cache-dtype: fp8\nmax-num-seqs: 7\n");
  ASSERT_EQ(vllm.launches.size(), 1u);
  EXPECT_EQ(vllm.launches[0].launch.program, "vllm serve");
  EXPECT_EQ(vllm.launches[0].max_num_seqs, 7) << ::testing::PrintToString(vllm.launches[0].errors);
  EXPECT_THAT(vllm.findings, IsEmpty()) << FormatReport(vllm);
  const RecipeReport trtllm =
      Lint("c.yml", "cuda_graph_config:\n  max_batch_size: 8\nkv_cache_config:\n  dtype: fp8\n");
  ASSERT_EQ(trtllm.launches.size(), 1u);
  EXPECT_EQ(trtllm.launches[0].launch.program, "trtllm-serve");
  EXPECT_THAT(trtllm.launches[0].errors, IsEmpty());
  EXPECT_THAT(Texts(Lint("c.yaml", "max-num-sequences: 7\n"), "option"),
              ElementsAre(HasSubstr("max-num-sequences")));
}

TEST(Lint, ClaimsThatAreRightStay) {
  const std::string recipe =
      "On one H200.\n```bash\nvllm serve nvidia/Llama-3.3-70B-Instruct-FP8 --kv-cache-dtype "
      "fp8\n```\n"
      "- Model: ~73 GB\n- Downloads ~70 GB\n- a 128K context requires 21-43 GB of KV cache\n"
      "- Single request: ~50 tok/s\n- 8 concurrent: 300-400 tok/s\n- Memory bandwidth 4800 GB/s\n"
      "- Need 100 GB free for model\n- KV Cache: 50 GB\n";
  EXPECT_THAT(Lint("r.md", recipe).findings, IsEmpty()) << FormatReport(Lint("r.md", recipe));
}

TEST(Lint, ClaimsThatAreWrongAreFound) {
  const std::string recipe =
      "On one H200.\n```bash\nvllm serve nvidia/Llama-3.3-70B-Instruct-FP8 --kv-cache-dtype "
      "fp8\n```\n"
      "- Model: ~35 GB\n- a 128K context requires 80-100 GB of KV cache\n"
      "- Single request: ~90 tok/s\n- 8 concurrent: 400-700 tok/s\n- Need 40 GB free for model\n"
      "- KV Cache: 90 GB\n";
  const RecipeReport report = Lint("r.md", recipe);
  EXPECT_THAT(Texts(report, "weights-size"),
              ElementsAre(HasSubstr("5: 35 GB is not"), HasSubstr("9: 40 GB is not")));
  EXPECT_THAT(Texts(report, "cache-size"), ElementsAre(HasSubstr("are 21.5 and 42.9 GB"),
                                                       HasSubstr("90 GB of cache do not fit")));
  EXPECT_THAT(Texts(report, "speed"),
              ElementsAre(HasSubstr("no 90 tok/s"), HasSubstr("upper part of 400-700")));
}

TEST(Lint, Recipe000) {
  const RecipeReport report = LintFile("000-vllm-llama33-70b-nvidia.md");
  ASSERT_EQ(report.launches.size(), 2u);
  EXPECT_EQ(report.launches[0].model, "nvidia/Llama-3.3-70B-Instruct-FP4");
  EXPECT_EQ(report.launches[1].model, "nvidia/Llama-3.3-70B-Instruct-FP8");
  EXPECT_EQ(Texts(report, "model-name").size(), 3u);
  EXPECT_THAT(Texts(report, "model-name"),
              Contains(HasSubstr("the launch serves nvidia/Llama-3.3-70B-Instruct-FP8")));
}

TEST(Lint, Recipe001) {
  const RecipeReport report = LintFile("001-trtllm-llama33-70b-nvidia.md");
  ASSERT_EQ(report.launches.size(), 1u);
  EXPECT_THAT(report.launches[0].errors, IsEmpty());
  EXPECT_EQ(report.launches[0].max_num_seqs, 1024);
  EXPECT_EQ(report.launches[0].stored->kv_element_bytes, 1);
  EXPECT_THAT(Texts(report, "early-expansion"), ElementsAre(HasSubstr("concurrency")));
}

TEST(Lint, Recipe002) {
  const RecipeReport report = LintFile("002-vllm-llama33-70b-dgx-spark.md");
  ASSERT_EQ(report.launches.size(), 1u);
  EXPECT_THAT(Texts(report, "weights-size"), Contains(HasSubstr("72.65 GB")));
  EXPECT_GE(Texts(report, "weights-size").size(), 7u);
  EXPECT_THAT(Texts(report, "cache-size"), Contains(HasSubstr("21.5 and 42.9 GB")));
  EXPECT_THAT(Texts(report, "speed"), Contains(HasSubstr("no 5-7 tok/s are possible")));
  EXPECT_EQ(Texts(report, "compose").size(), 1u);
  // Figures in the column of Qwen are not compared with the sizes of Llama.
  EXPECT_THAT(Texts(report, "weights-size"), Not(Contains(HasSubstr("30 GB is not"))));
}

TEST(Lint, Recipe003) {
  const RecipeReport report = LintFile("003-vllm-llama33-70b-amd-mi355.md");
  ASSERT_EQ(report.launches.size(), 2u);
  EXPECT_EQ(report.launches[0].model, "amd/Llama-3.3-70B-Instruct-FP8-KV");
  EXPECT_EQ(Texts(report, "unset-variable").size(), 2u);
  EXPECT_THAT(Texts(report, "short-bench"), ElementsAre(HasSubstr("320 prompts make 5 rounds")));
  EXPECT_EQ(Texts(report, "trailing-backslash").size(), 4u);
}

TEST(Lint, Recipe004) {
  const RecipeReport report = LintFile("004-vllm-llama4-scout-nvidia.md");
  ASSERT_EQ(report.launches.size(), 2u);
  EXPECT_THAT(report.launches[0].errors, IsEmpty());
  EXPECT_EQ(report.launches[0].max_model_len, 10240);
  EXPECT_EQ(Texts(report, "model-name").size(), 3u);
  EXPECT_THAT(Texts(report, "unlinked-model"),
              Contains(HasSubstr("is nvidia/Llama-4-Scout-17B-16E-Instruct-FP8 meant?")));
}

TEST(Lint, JsonHoldsWhatTheTextSays) {
  const json::Value report = ReportJson(LintFile("002-vllm-llama33-70b-dgx-spark.md"));
  const json::Value& launch = report.Find("launches")->as_array()[0];
  EXPECT_NEAR(launch.Find("memory")->Find("weight_bytes")->as_double(), 72.65e9, 0.01e9);
  EXPECT_EQ(
      launch.Find("memory")->Find("accelerators")->as_array()[0].Find("accelerator")->as_string(),
      "GB10");
  EXPECT_FALSE(report.Find("findings")->as_array().empty());
}

}  // namespace
}  // namespace sluice
