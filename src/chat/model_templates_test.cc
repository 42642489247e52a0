#include "chat/model_templates.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace sluice {
namespace {

namespace fs = std::filesystem;

class ModelTemplatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("templates-" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  static std::string Text(const ChatTemplate* chat_template) {
    return chat_template == nullptr
               ? "none"
               : chat_template->Render(json::Value(json::Value::Object{})).value();
  }
  fs::path folder_;
};

TEST_F(ModelTemplatesTest, AModelWithoutTemplates) {
  const auto templates = ModelTemplates::Load(folder_, {}, "").value();
  EXPECT_TRUE(templates.empty());
  EXPECT_EQ(templates.Select(true), nullptr);
}

TEST_F(ModelTemplatesTest, TheSourcesInTheirOrder) {
  const json::Value config = json::Parse(R"({"chat_template": "config"})").value();
  EXPECT_EQ(Text(ModelTemplates::Load(folder_, config, "")->Select(false)), "config");
  Write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(Text(ModelTemplates::Load(folder_, config, "")->Select(false)), "json");
  Write("chat_template.jinja", "file");
  Write("additional_chat_templates/tool_use.jinja", "tools");
  const auto templates = ModelTemplates::Load(folder_, config, "").value();
  EXPECT_EQ(Text(templates.Select(false)), "file");
  EXPECT_EQ(Text(templates.Select(true)), "tools");
  EXPECT_EQ(Text(ModelTemplates::Load(folder_, config, "{{ 'given' }}")->Select(true)), "given");
  Write("own.jinja", "own");
  EXPECT_EQ(
      Text(ModelTemplates::Load(folder_, config, (folder_ / "own.jinja").string())->Select(true)),
      "own");
}

TEST_F(ModelTemplatesTest, BuiltInTemplates) {
  Write("config.json", R"({"architectures": ["DeepseekV4ForCausalLM"]})");
  EXPECT_EQ(ModelTemplates::Load(folder_, {}, "")->origin(), "built in: deepseek_v4");
  EXPECT_EQ(ModelTemplates::Load(folder_, {}, "", "hf")->origin(), "built in: deepseek_v4");
  EXPECT_EQ(ModelTemplates::Load(folder_, {}, "", "deepseek_v32")->origin(),
            "built in: deepseek_v32");
  EXPECT_EQ(ModelTemplates::Load(folder_, {}, "{{ 1 }}", "deepseek_v32")->origin(),
            "--chat-template");
  const json::Value config = json::Parse(R"({"chat_template": "config"})").value();
  EXPECT_EQ(ModelTemplates::Load(folder_, config, "")->origin(), "tokenizer_config.json");
  EXPECT_EQ(ModelTemplates::Load(folder_, config, "", "deepseek_v4")->origin(),
            "built in: deepseek_v4");
  Write("config.json", "{");
  EXPECT_TRUE(ModelTemplates::Load(folder_, {}, "")->empty());
}

// If the unreadable file were skipped, another template might be used silently.
TEST_F(ModelTemplatesTest, AFileThatCannotBeReadIsNotPassedOver) {
  const json::Value config = json::Parse(R"({"chat_template": "config"})").value();
  for (const char* name : {"chat_template.json", "chat_template.jinja"}) {
    fs::create_symlink("no_such_blob", folder_ / name);
    const auto templates = ModelTemplates::Load(folder_, config, "");
    ASSERT_FALSE(templates) << name;
    EXPECT_NE(templates.error().message.find(name), std::string::npos) << templates.error().message;
    fs::remove(folder_ / name);
  }
}

TEST_F(ModelTemplatesTest, ATemplateThatLinksOutOfTheFolderIsRefused) {
  const fs::path secret = fs::path(::testing::TempDir()) / "templates-secret";
  std::ofstream(secret) << "secret";
  fs::create_directories(folder_ / "additional_chat_templates");
  for (const char* name :
       {"chat_template.json", "chat_template.jinja", "additional_chat_templates/tool_use.jinja"}) {
    fs::create_symlink(secret, folder_ / name);
    const auto templates = ModelTemplates::Load(folder_, {}, "");
    ASSERT_FALSE(templates) << name;
    EXPECT_NE(templates.error().message.find(std::string(name) + " links to "), std::string::npos)
        << templates.error().message;
    fs::remove(folder_ / name);
  }
  EXPECT_EQ(Text(ModelTemplates::Load(folder_, {}, secret.string())->Select(false)), "secret")
      << "who starts the server may name any file";
  fs::remove(secret);
}

TEST_F(ModelTemplatesTest, AFolderThatCannotBeListedIsAnError) {
  Write("additional_chat_templates", "a file");
  const auto templates = ModelTemplates::Load(folder_, {}, "");
  ASSERT_FALSE(templates);
  EXPECT_NE(templates.error().message.find("additional_chat_templates: the folder cannot be"),
            std::string::npos)
      << templates.error().message;
}

TEST_F(ModelTemplatesTest, NamedTemplates) {
  const json::Value config =
      json::Parse(
          R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})")
          .value();
  const auto templates = ModelTemplates::Load(folder_, config, "").value();
  EXPECT_EQ(Text(templates.Select(false)), "plain");
  EXPECT_EQ(Text(templates.Select(true)), "tools");
  EXPECT_EQ(templates.Find("rag"), nullptr);
}

TEST_F(ModelTemplatesTest, Mistakes) {
  EXPECT_NE(ModelTemplates::Load(folder_, {}, "no_such.jinja")
                .error()
                .message.find("neither a file nor a template"),
            std::string::npos);
  EXPECT_FALSE(ModelTemplates::Load(folder_, json::Parse(R"({"chat_template": 5})").value(), "")
                   .has_value());
  EXPECT_FALSE(ModelTemplates::Load(
                   folder_, json::Parse(R"({"chat_template": [{"name": "x"}]})").value(), "")
                   .has_value());
  Write("chat_template.jinja", "\n{% if %}");
  const auto broken = ModelTemplates::Load(folder_, {}, "");
  ASSERT_FALSE(broken.has_value());
  EXPECT_NE(broken.error().message.find("line 2"), std::string::npos) << broken.error().message;
}

}  // namespace
}  // namespace sluice
