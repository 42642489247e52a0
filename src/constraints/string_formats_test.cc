#include "constraints/string_formats.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "constraints/json_schema.h"
#include "constraints/vocabulary_testing.h"
#include "constraints/xgrammar_engine.h"

namespace sluice {
namespace {

// Returns the engine's constraint for strings with this value of a keyword.
std::shared_ptr<const Constraint> CompileString(const char* keyword, const std::string& value) {
  static const auto engine = MakeXgrammarEngine(ByteVocabulary());
  json::Value schema(json::Value::Object{});
  schema.Set("type", json::Value("string"));
  schema.Set(keyword, json::Value(value));
  const auto checked = CheckJsonSchema(schema, /*strict=*/true);
  EXPECT_TRUE(checked) << checked.error().message;
  auto constraint = engine->Compile({ConstraintKind::kJsonSchema, json::Write(checked->schema)});
  EXPECT_TRUE(constraint) << constraint.error().message;
  return *constraint;
}

// Whether the engine accepts the string `text` as an answer.
bool Accepts(const Constraint& constraint, const std::string& text) {
  const auto matcher = constraint.NewMatcher();
  for (const char c : "\"" + text + "\"") {
    if (!matcher->Advance(static_cast<unsigned char>(c))) return false;
  }
  return matcher->Advance(ByteVocabulary().end_tokens[0]);
}

bool AcceptsFormat(const std::string& format, const std::string& text) {
  return Accepts(*CompileString("format", format), text);
}

// Returns a random regex over "abc", at most `depth` deep.
std::string RandomPattern(std::mt19937& random, int depth) {
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int kind = depth == 0 ? 0 : draw(8);
  if (kind < 2) return std::string(1, "abc"[draw(3)]);
  const std::string first = RandomPattern(random, depth - 1);
  if (kind < 4) return first + RandomPattern(random, depth - 1);
  if (kind == 4) return "(" + first + "|" + RandomPattern(random, depth - 1) + ")";
  const char* const quantifiers[] = {"?", "*", "+", "{1,2}", "{0,2}", "{2}", "{1,}", "??"};
  return "(" + first + ")" + quantifiers[draw(8)];
}

TEST(StringFormatsTest, DatesAreDaysThatThereAre) {
  for (const char* date : {"2024-02-29", "2000-02-29", "1900-02-28", "0001-01-01", "9999-12-31",
                           "2023-04-30", "2023-11-30", "1010-10-10"})
    EXPECT_TRUE(AcceptsFormat("date", date)) << date;
  for (const char* date : {"2023-02-29", "1900-02-29", "0000-01-01", "2023-02-30", "2023-04-31",
                           "2023-11-31", "2023-13-01", "2023-00-10", "2023-01-00", "2023-1-01",
                           "2023-01-32", "02023-01-01", "0000-02-29"})
    EXPECT_FALSE(AcceptsFormat("date", date)) << date;
}

// Compares every day of four hundred years with the calendar.
TEST(StringFormatsTest, DatesFollowTheCalendar) {
  const std::regex pattern(*PatternOfFormat("date"));
  for (int year = 1; year <= 9999; year += year > 1600 && year < 2001 ? 1 : 37) {
    const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    const int days[] = {31, is_leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    for (int month = 1; month <= 12; ++month) {
      for (const int day : {1, 9, 28, 29, 30, 31}) {
        char text[24];
        std::snprintf(text, sizeof(text), "%04d-%02d-%02d", year, month, day);
        ASSERT_EQ(std::regex_match(text, pattern), day <= days[month - 1]) << text;
      }
    }
  }
}

// The regexes include repetitions at the ends of optional groups and of alternatives.
TEST(StringPatternTest, AcceptsWhatTheRegexAccepts) {
  std::mt19937 random(1);
  std::vector<std::string> patterns = {"(x[0-9]+)?b",      "((ab|b){1,2}|c)",   "a(b(c+)?)?",
                                       "[(?]{1,2}|a\\(?b", "(c|(c|c)(b){0,1})", "((a*b)?c){2}"};
  for (int i = 0; i < 150; ++i) patterns.push_back(RandomPattern(random, 3));
  int accepted = 0;
  for (const std::string& pattern : patterns) {
    const std::regex expected(pattern);
    const auto constraint = CompileString("pattern", "^(" + pattern + ")$");
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (int length = i % 7; length > 0; --length) text += "aabbccx1(?"[random() % 10];
      const bool matches = std::regex_match(text, expected);
      ASSERT_EQ(Accepts(*constraint, text), matches) << pattern << " for " << text;
      accepted += static_cast<int>(matches);
    }
  }
  EXPECT_GT(accepted, 300);
}

TEST(StringFormatsTest, TimesAreOfADay) {
  for (const char* time : {"00:00:00Z", "23:59:59.123456+02:30", "12:30:01-23:59"})
    EXPECT_TRUE(AcceptsFormat("time", time)) << time;
  for (const char* time : {"24:00:00Z", "23:60:00Z", "23:59:60Z", "1:00:00Z", "00:00:00",
                           "00:00:00.Z", "00:00:00+24:00", "01:44:2525Z"})
    EXPECT_FALSE(AcceptsFormat("time", time)) << time;
  EXPECT_TRUE(AcceptsFormat("date-time", "2024-02-29T12:00:00Z"));
  EXPECT_FALSE(AcceptsFormat("date-time", "2023-02-29T12:00:00Z"));
}

TEST(StringFormatsTest, AddressesAreReadAlikeByAll) {
  for (const char* address : {"0.0.0.0", "255.255.255.255", "192.168.1.10", "8.8.8.8"})
    EXPECT_TRUE(AcceptsFormat("ipv4", address)) << address;
  for (const char* address : {"256.1.1.1", "01.2.3.4", "1.2.3.004", "1.2.3", "1.2.3.4.5", "1..2.3",
                              "00.0.0.0", "1.2.3.300", ".1.2.3"})
    EXPECT_FALSE(AcceptsFormat("ipv4", address)) << address;
  for (const char* address :
       {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "fe80::1", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8",
        "::ffff:192.168.0.1", "1:2:3:4:5:6:1.2.3.4", "2001:DB8::8:800:200C:417A", "1::8"})
    EXPECT_TRUE(AcceptsFormat("ipv6", address)) << address;
  for (const char* address :
       {":", "1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", ":::", "12345::", "::1.2.3.04",
        "1:2:3:4:5:6:7:1.2.3.4", "1:2:3:4:5:6:7:8::", "g::"})
    EXPECT_FALSE(AcceptsFormat("ipv6", address)) << address;
}

}  // namespace
}  // namespace sluice
