// Checks every recorded case of tests/data/chat_templates against the output of jinja2 in
// transformers' environment.
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "base/source_path_testing.h"
#include "chat/chat_template.h"
#include "chat/render_tool.h"

namespace sluice {
namespace {

const std::string kFolder = SourcePath("tests/data/chat_templates/");

RenderOptions FixedClock() {
  RenderOptions options;
  options.now = ParseCivilTime("2025-07-26T12:34:56").value();
  return options;
}

// Checks one row {"input" or "variables", "expected" or "error"} against the output of `compiled`.
void CheckRow(const Result<ChatTemplate>& compiled, const json::Value& variables,
              const json::Value& row, const std::string& title) {
  const Result<std::string> text = [&]() -> Result<std::string> {
    RETURN_IF_ERROR(compiled);
    return compiled->Render(variables, FixedClock());
  }();
  if (const json::Value* expected = row.Find("expected")) {
    ASSERT_TRUE(text.has_value()) << title << ": " << text.error().message;
    EXPECT_EQ(*text, expected->as_string()) << title;
    return;
  }
  const json::Value* error = row.Find("error");
  ASSERT_NE(error, nullptr) << title;
  ASSERT_FALSE(text.has_value()) << title << " should fail with " << json::Write(*error)
                                 << " but gave " << *text;
  if (error->Find("type")->as_string() == "TemplateError") {
    EXPECT_EQ(text.error().message, error->Find("message")->as_string()) << title;
  }
}

TEST(ChatTemplateCases, Recorded) {
  std::map<std::string, Result<ChatTemplate>> templates;
  std::ifstream file(std::string(kFolder) + "cases.jsonl");
  std::string line;
  int count = 0;
  while (std::getline(file, line)) {
    const json::Value row = json::Parse(line).value();
    const std::string name = row.Find("template")->as_string();
    if (!templates.contains(name)) {
      templates.emplace(
          name, ChatTemplate::Compile(ReadFile(kFolder + ("templates/" + name + ".jinja")).value(),
                                      name));
    }
    const json::Value& input = *row.Find("input");
    json::Value variables{json::Value::Object{}};
    for (const char* key : {"messages", "tools", "documents", "add_generation_prompt"}) {
      const json::Value* value = input.Find(key);
      variables.Set(key, value == nullptr ? json::Value() : *value);
    }
    if (const json::Value* kwargs = input.Find("kwargs")) {
      for (const auto& [key, value] : kwargs->as_object()) variables.Set(key, value);
    }
    CheckRow(templates.at(name), variables, row, name + " / " + row.Find("conv")->as_string());
    ++count;
  }
  EXPECT_EQ(count, 414);
}

TEST(ChatTemplateCases, Snippets) {
  std::ifstream file(std::string(kFolder) + "cases_extra.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  const json::Value first = json::Parse(line).value();
  const json::Value& variables = *first.Find("variables");
  int count = 0;
  while (std::getline(file, line)) {
    const json::Value row = json::Parse(line).value();
    const std::string source = row.Find("template")->as_string();
    CheckRow(ChatTemplate::Compile(source), variables, row, source);
    ++count;
  }
  EXPECT_GT(count, 400);
}

}  // namespace
}  // namespace sluice
