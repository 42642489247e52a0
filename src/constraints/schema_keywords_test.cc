#include "constraints/schema_keywords.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "constraints/json_schema.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SchemaKeywordsTest, EveryRowSaysWhatHappens) {
  for (const SchemaKeyword& keyword : SchemaKeywords()) {
    SCOPED_TRACE(keyword.name);
    EXPECT_EQ(std::string_view(keyword.enforced).empty(),
              std::string_view(keyword.example).empty());
    EXPECT_EQ(std::string_view(keyword.not_enforced).empty(),
              std::string_view(keyword.refused_example).empty());
    if (keyword.example[0] != '\0') {
      const auto checked = CheckJsonSchema(json::Parse(keyword.example).value(), true);
      EXPECT_TRUE(checked) << checked.error().message;
    }
    if (keyword.refused_example[0] == '\0') continue;
    const json::Value refused = json::Parse(keyword.refused_example).value();
    const auto strict = CheckJsonSchema(refused, true);
    ASSERT_FALSE(strict);
    EXPECT_THAT(strict.error().message, HasSubstr("at #"));
    const auto lax = CheckJsonSchema(refused, false);
    EXPECT_EQ(lax.has_value(), !keyword.is_always_refused);
    if (lax) {
      EXPECT_THAT(lax->not_enforced, ::testing::Not(IsEmpty()));
    }
  }
}

}  // namespace
}  // namespace sluice
