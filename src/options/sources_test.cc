// Environment variables, YAML files, and the precedence of all sources.
#include "options/sources.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace sluice::options {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SourcesTest : public ::testing::Test {
 protected:
  SourcesTest() {
    folder_ = std::filesystem::temp_directory_path() /
              ("sluice_sources_" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(folder_);
  }
  ~SourcesTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  static Result<Resolved> Read(const std::vector<std::string>& words,
                               const std::map<std::string, std::string>& environment = {}) {
    return Resolve(words, environment, kServe, Dialect::kSluice);
  }

  std::filesystem::path folder_;
};

TEST_F(SourcesTest, FlagOverEnvironmentOverYamlOverDefault) {
  const std::string file =
      Write("c.yaml", "max-num-seqs: 3\nblock_size: 4\nport: 5\nmodel: org/m\n");
  const auto resolved =
      Read({"--config", file, "--port", "9"}, {{"SLUICE_BLOCK_SIZE", "8"}, {"SLUICE_PORT", "7"}});
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_EQ(resolved->settings.Integer("max-num-seqs"), 3);
  EXPECT_EQ(resolved->settings.Integer("block-size"), 8);
  EXPECT_EQ(resolved->settings.Integer("port"), 9);
  EXPECT_EQ(resolved->settings.Integer("max-num-batched-tokens"), 2048);
  EXPECT_EQ(resolved->settings.Text("model"), "org/m");
  EXPECT_EQ(resolved->settings.given().front()->origin, file + ":4");
}

TEST_F(SourcesTest, YamlValues) {
  const std::string file =
      Write("c.yml",
            "no-enable-prefix-caching: true\n"
            "enable-chunked-prefill: false\n"
            "served-model-name: [a, b]\n"
            "kv-cache-memory-bytes: 1GiB\n"
            "compilation-config: '{\"mode\": 3}'\n"
            "override-generation-config:\n  temperature: 0.5\n  stop: [x, \"1\"]\n"
            "chat-template: null\n");
  const auto resolved = Read({"--config=" + file});
  ASSERT_TRUE(resolved) << resolved.error().message;
  EXPECT_FALSE(resolved->settings.Flag("enable-prefix-caching"));
  EXPECT_FALSE(resolved->settings.Flag("enable-chunked-prefill"));
  EXPECT_THAT(resolved->settings.List("served-model-name"), ElementsAre("a", "b"));
  EXPECT_EQ(resolved->settings.Integer("kv-cache-memory-bytes"), int64_t{1} << 30);
  EXPECT_EQ(resolved->settings.Text("compilation-config"), "{\"mode\": 3}");
  EXPECT_EQ(resolved->settings.Text("override-generation-config"),
            "{\"temperature\":0.5,\"stop\":[\"x\",\"1\"]}");
  EXPECT_FALSE(resolved->settings.Given("chat-template"));
}

TEST_F(SourcesTest, YamlErrorsNameTheLine) {
  const auto error = [&](const std::string& text) {
    const auto resolved = Read({"--config", Write("c.yaml", text)});
    EXPECT_FALSE(resolved.has_value()) << text;
    return resolved ? "" : resolved.error().message;
  };
  EXPECT_THAT(error("port: 1\nmax-modle-len: 5\n"),
              HasSubstr("c.yaml:2: unknown key 'max-modle-len', did you mean max-model-len?"));
  EXPECT_THAT(error("port: 1\n\nport: 2\n"), HasSubstr("c.yaml:3: 'port' is given twice"));
  EXPECT_THAT(error("port: x\n"), HasSubstr("c.yaml:1: port: expected a whole number"));
  EXPECT_THAT(error("port: [1\n"), HasSubstr("c.yaml:"));
  EXPECT_THAT(error("- port\n"), HasSubstr("expected a mapping"));
  EXPECT_THAT(error("port: 1\n---\nblock-size: 8\n"),
              HasSubstr("c.yaml:3: expected one document, found a second"));
  EXPECT_TRUE(Read({"--config", Write("c.yaml", "---\nport: 1\n...\n")}));
  EXPECT_TRUE(Read({"--config", Write("c.yaml", "# nothing\n")}));
  EXPECT_THAT(error("config: other.yaml\n"), HasSubstr("unknown key 'config'"));
  EXPECT_THAT(error("compilation-config: " + std::string(40, '[') + std::string(40, ']') + "\n"),
              HasSubstr("c.yaml:1: compilation-config: nested deeper than 32"));
}

// Each line of the file expands to ten times the previous one.
TEST_F(SourcesTest, YamlAliasesCannotFillTheMemory) {
  std::string text = "compilation-config:\n  a0: &a0 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string ten = fmt::format("*a{0}, *a{0}, *a{0}, *a{0}, *a{0}", i - 1);
    text += fmt::format("  a{0}: &a{0} [{1}, {1}]\n", i, ten);
  }
  const auto resolved = Read({"--config", Write("c.yaml", text)});
  ASSERT_FALSE(resolved);
  EXPECT_THAT(resolved.error().message, HasSubstr("more than 20000 values"));
}

TEST_F(SourcesTest, ConfigMustBeAReadableYamlFile) {
  EXPECT_THAT(Read({"--config", "/nowhere/c.yaml"}).error().message, HasSubstr("/nowhere/c.yaml"));
  EXPECT_THAT(Read({"--config", Write("c.txt", "port: 1")}).error().message, HasSubstr(".yaml"));
  EXPECT_EQ(Read({"--config", "/nowhere/c.yaml"}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(SourcesTest, EnvironmentErrorsNameTheVariable) {
  EXPECT_THAT(Read({}, {{"SLUICE_PORT", "x"}}).error().message, HasSubstr("SLUICE_PORT"));
  EXPECT_THAT(Read({}, {{"VLLM_API_KEY", "k"}})->settings.List("api-key"), ElementsAre("k"));
  EXPECT_THAT(
      Read({}, {{"VLLM_API_KEY", "k"}, {"SLUICE_API_KEY", "own"}})->settings.List("api-key"),
      ElementsAre("own"));
}

TEST(Table, EveryDefaultIsAValidValueAndNamesAreUnique) {
  std::set<std::string_view> names;
  for (const Option& option : Table()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_FALSE(option.help.empty()) << option.name;
    if (option.default_value.empty()) continue;
    const Settings settings;
    switch (option.type) {
      case Type::kFlag: settings.Flag(option.name); break;
      case Type::kInteger:
      case Type::kSize: settings.Integer(option.name); break;
      case Type::kNumber: settings.Number(option.name); break;
      case Type::kStrings: settings.List(option.name); break;
      default: settings.Text(option.name); break;
    }
  }
}

}  // namespace
}  // namespace sluice::options
