#include "options/models_file.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::options {
namespace {

using ::testing::HasSubstr;

Result<std::vector<ModelEntry>> ReadText(const std::string& text) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() /
      ("sluice_models_" +
       std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + ".yaml");
  std::ofstream(file) << text;
  auto entries = ReadModelsFile(file, kServe, Dialect::kSluice);
  std::filesystem::remove(file);
  return entries;
}

std::string ErrorOf(const std::string& text) {
  const auto entries = ReadText(text);
  return entries ? "none" : entries.error().message;
}

TEST(ModelsFile, EntriesWithTheirOptions) {
  const auto entries = ReadText(
      "models:\n"
      "- name: small\n"
      "  path: org/name\n"
      "- name: large\n"
      "  path: /models/large\n"
      "  pinned: yes\n"
      "  priority: -2\n"
      "  options:\n"
      "    max_model_len: 4k\n"
      "    no-enable-prefix-caching: true\n"
      "    api-key: ['007', b]\n"
      "    speculative-config.method: ngram\n");
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ(entries->front().name, "small");
  EXPECT_EQ(entries->front().path, "org/name");
  EXPECT_FALSE(entries->front().is_pinned);
  EXPECT_TRUE(entries->front().options.empty());
  const ModelEntry& large = entries->back();
  EXPECT_TRUE(large.is_pinned);
  EXPECT_EQ(large.priority, -2);
  EXPECT_THAT(large.place, HasSubstr(".yaml:4"));
  const Settings settings(large.options);
  EXPECT_EQ(settings.Integer("max-model-len"), 4000);
  EXPECT_FALSE(settings.Flag("enable-prefix-caching"));
  EXPECT_EQ(settings.List("api-key"), (std::vector<std::string>{"007", "b"}));
  EXPECT_EQ(settings.Text("speculative-config"), R"({"method":"ngram"})");
  EXPECT_THAT(large.options.front().origin, HasSubstr(".yaml:9"));
}

TEST(ModelsFile, FaultsAreNamedWithTheirLine) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("expected a list called models"));
  EXPECT_THAT(ErrorOf("models: 3\n"), HasSubstr("yaml:1: models: expected a list"));
  EXPECT_THAT(ErrorOf("- name: a\n"), HasSubstr("expected a mapping with the key models"));
  EXPECT_THAT(ErrorOf("models: []\n"), HasSubstr("the list is empty"));
  EXPECT_THAT(ErrorOf("models:\n- a\n"), HasSubstr("yaml:2: model 1: expected a mapping"));
  EXPECT_THAT(ErrorOf("models:\n- name: a\n"), HasSubstr("model 'a': path is missing"));
  EXPECT_THAT(ErrorOf("models:\n- name: [a]\n"), HasSubstr("name: expected a text"));
  EXPECT_THAT(ErrorOf("models:\n- name: a\n  path: b\n  name: c\n"), HasSubstr("given twice"));
  EXPECT_THAT(ErrorOf("models:\n- name: a\n  path: b\n  priority: high\n"),
              HasSubstr("yaml:4: model 'a': priority: expected a whole number"));
  EXPECT_THAT(ErrorOf("models:\n- name: a\n  path: b\n  options: [1]\n"),
              HasSubstr("options: expected a mapping"));
  EXPECT_THAT(ErrorOf("models:\n- name: a\n  path: b\n  options:\n    block-size: x\n"),
              HasSubstr("yaml:5: block-size"));
  EXPECT_THAT(ErrorOf("model:\n- name: a\n"), HasSubstr("did you mean models"));
  std::string many = "models:\n";
  for (size_t i = 0; i <= kMostModels; ++i)
    many += "- {name: m" + std::to_string(i) + ", path: p}\n";
  EXPECT_THAT(ErrorOf(many), HasSubstr("expected at most 256, found 257"));
}

// Options of one entry do not apply to the next.
TEST(ModelsFile, EntriesAreReadApart) {
  const auto entries = ReadText(
      "models:\n- {name: a, path: p, options: {block-size: 8}}\n"
      "- {name: b, path: p, options: {block-size: 16}}\n");
  ASSERT_TRUE(entries) << entries.error().message;
  EXPECT_EQ(Settings(entries->front().options).Integer("block-size"), 8);
  ASSERT_EQ(entries->back().options.size(), 1u);
  EXPECT_EQ(Settings(entries->back().options).Integer("block-size"), 16);
}

}  // namespace
}  // namespace sluice::options
