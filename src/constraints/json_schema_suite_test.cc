// The official test suite of JSON Schema, draft 2020-12 (tests/data/json_schema): a schema accepted
// with `strict` has the meaning that JSON Schema defines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "base/file.h"
#include "base/source_path_testing.h"
#include "constraints/json_schema.h"
#include "constraints/vocabulary_testing.h"
#include "constraints/xgrammar_engine.h"

namespace sluice {
namespace {

using ::testing::IsEmpty;

struct SuiteCounts {
  int schemas = 0, accepted = 0, instances = 0, loose = 0, narrow = 0;
};

using SuiteTable = std::map<std::string, SuiteCounts>;

std::string Markdown(const SuiteTable& table) {
  std::string text =
      "# The test suite of JSON Schema\n\nThe test `JsonSchemaSuiteTest` generates this page (with "
      "`SLUICE_WRITE_DOCS=1`). It runs the official suite, draft 2020-12, with `strict: true`; "
      "each row is one file of the suite. A request with a schema that is not accepted fails with "
      "status 400. For each accepted schema, the test checks all instances of the suite: the "
      "constraint must not allow an invalid instance, and must allow every valid one. Instances "
      "are written compactly, with numbers as in RFC 8785 and properties in the order of the "
      "schema. [json-schema.md](json-schema.md) lists some defaults that differ from JSON "
      "Schema's; the test adds JSON Schema's own defaults to the schemas. In JSON Schema, `format` "
      "is only an annotation; the rows of `format` show how well the enforced formats match the "
      "suite.\n\n| file | schemas | accepted | instances | invalid, generated | valid, refused "
      "|\n|---|---|---|---|---|---|\n";
  for (const auto& [keyword, count] : table) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", keyword, count.schemas, count.accepted,
                        count.instances, count.loose, count.narrow);
  }
  return text;
}

class JsonSchemaSuiteTest : public ::testing::Test {
 protected:
  // Whether one text, or one of several equivalent texts, is allowed.
  static bool AllowsOne(const Constraint& constraint, const json::Value& texts) {
    if (texts.is_string()) return Allows(constraint, texts.as_string());
    return std::ranges::any_of(texts.as_array(), [&](const json::Value& text) {
      return Allows(constraint, text.as_string());
    });
  }
  static bool Allows(const Constraint& constraint, std::string_view text) {
    const auto matcher = constraint.NewMatcher();
    for (const char c : text) {
      if (!matcher->Advance(static_cast<unsigned char>(c))) return false;
    }
    return matcher->Advance(256);
  }

  // Validates the instances of all rows against their schemas.
  SuiteTable HoldAll(const std::filesystem::path& file) {
    std::istringstream lines(ReadFile(file, 1 << 24).value());
    SuiteTable table;
    std::string line;
    while (std::getline(lines, line)) Hold(json::Parse(line).value(), table);
    return table;
  }

 private:
  void Hold(const json::Value& row, SuiteTable& table) {
    const std::string& keyword = row.Find("keyword")->as_string();
    SCOPED_TRACE(keyword + ": " + row.Find("case")->as_string());
    SuiteCounts& count = table[keyword];
    ++count.schemas;
    const auto& valid = row.Find("valid")->as_array();
    const auto& invalid = row.Find("invalid")->as_array();
    const auto checked = CheckJsonSchema(*row.Find("schema"), /*strict=*/true);
    if (!checked) {
      // The schema was refused because it allows nothing, not because support is missing.
      if (checked.error().message != "no answer meets the schema") return;
      EXPECT_THAT(valid, IsEmpty());
      ++count.accepted;
      count.instances += static_cast<int>(invalid.size());
      return;
    }
    const std::string text = json::Write(checked->schema);
    const auto constraint = engine_->Compile({ConstraintKind::kJsonSchema, text});
    ASSERT_TRUE(constraint) << text << ": " << constraint.error().message;
    ++count.accepted;
    count.instances += static_cast<int>(valid.size() + invalid.size());
    const bool is_format = keyword.starts_with("format");
    for (const json::Value& instance : valid) {
      const bool is_allowed = AllowsOne(**constraint, instance);
      EXPECT_TRUE(is_allowed || is_format) << json::Write(instance) << " under " << text;
      if (!is_allowed) ++count.narrow;
    }
    for (const json::Value& instance : invalid) {
      const bool is_allowed = AllowsOne(**constraint, instance);
      EXPECT_TRUE(!is_allowed || is_format) << json::Write(instance) << " under " << text;
      if (is_allowed) ++count.loose;
    }
  }

  const std::unique_ptr<ConstraintEngine> engine_ = MakeXgrammarEngine(ByteVocabulary());
};

TEST_F(JsonSchemaSuiteTest, AcceptedSchemasAllowWhatIsValidAndNothingElse) {
  const SuiteTable table = HoldAll(SourcePath("tests/data/json_schema/suite.jsonl"));
  const std::string page = SourcePath("docs/json-schema-suite.md");
  if (std::getenv("SLUICE_WRITE_DOCS") != nullptr) std::ofstream(page) << Markdown(table);
  EXPECT_EQ(ReadFile(page, 1 << 20).value(), Markdown(table))
      << "run it with SLUICE_WRITE_DOCS=1 to write the page";
}

TEST_F(JsonSchemaSuiteTest, SoDoRandomSchemas) {
  const char* file = std::getenv("SLUICE_JSON_SCHEMA_CASES");
  const SuiteTable table =
      HoldAll(file != nullptr ? file : SourcePath("tests/data/json_schema/random.jsonl"));
  EXPECT_GT(table.at("random").accepted, table.at("random").schemas / 2);
}

}  // namespace
}  // namespace sluice
