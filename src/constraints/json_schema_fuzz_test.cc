// Runs the fuzz target over mutated and random schemas, each within the limits of compiling.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "base/file.h"
#include "base/source_path_testing.h"
// The fuzz target itself, so that the test and the fuzzer run the same code.
#include "constraints/json_schema_fuzz.cc"  // NOLINT(bugprone-suspicious-include)

namespace sluice {
namespace {

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double SecondsOf(const std::string& schema) {
  const double begin = CpuSeconds();
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(schema.data()), schema.size());
  return CpuSeconds() - begin;
}

// A random schema, mostly of keywords that fit together; `budget` limits its size.
class RandomSchema {
 public:
  explicit RandomSchema(uint32_t seed) : random_(seed) {}

  std::string Make(int budget) {
    budget_ = budget;
    std::string schema = Schema(0);
    if (!schema.starts_with('{')) return schema;
    std::string definitions;
    for (int i = 0; i < 4; ++i)
      definitions += fmt::format("{}\"d{}\":{}", i > 0 ? "," : "", i, Schema(2));
    schema.pop_back();
    return schema + (schema.size() > 1 ? "," : "") + "\"$defs\":{" + definitions + "}}";
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  std::string Name() { return fmt::format("\"{}{}\"", "abcdxy"[Below(6)], Below(30)); }

  std::string Size() {
    const int sizes[] = {0, 1, 2, 7, 30, 300, 5000, 100000, 2147483647};
    return std::to_string(sizes[Below(std::size(sizes))]);
  }

  std::string Text() {
    const char* const texts[] = {R"("")", R"("a")", R"("\n\"")", R"("été")", R"("~1/%")"};
    return texts[Below(std::size(texts))];
  }

  std::string Value() {
    const char* const values[] = {"0",    "-1",     "7.25", "1e300",          "true",
                                  "null", "[1,[]]", "{}",   R"({"a":[null]})"};
    return Below(3) == 0 ? Text() : values[Below(std::size(values))];
  }

  std::string List(int most, int depth, bool of_schemas) {
    std::string list = "[";
    const int count = 1 + Below(most);
    for (int i = 0; i < count; ++i)
      list += (i > 0 ? "," : "") + (of_schemas ? Schema(depth + 1) : Value());
    return list + "]";
  }

  std::string Map(int most, int depth, bool of_regexes) {
    const char* const regexes[] = {R"("^x")", R"(".*")", R"("(a|b)*c")", R"("[^a]{3,90}")"};
    std::string map = "{";
    const int count = Below(most);
    for (int i = 0; i < count; ++i) {
      map += (i > 0 ? "," : "") + (of_regexes ? regexes[Below(std::size(regexes))] : Name()) + ":" +
             Schema(depth + 1);
    }
    return map + "}";
  }

  std::string Member(int depth) {
    const char* const types[] = {"string", "integer", "number", "object", "array", "null"};
    const char* const schemas[] = {
        "items",         "additionalProperties", "not", "if", "then", "else",
        "propertyNames", "unevaluatedProperties"};
    const char* const lists[] = {"allOf", "anyOf", "oneOf", "prefixItems"};
    const char* const sizes[] = {"minLength", "maxLength",     "minItems",
                                 "maxItems",  "minProperties", "maxProperties"};
    const char* const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "multipleOf"};
    const char* const patterns[] = {R"("^[a-z]{1,64}$")", R"("(a*)*b")", R"("\\w+@\\w+")",
                                    R"("[0-9]{4}-[0-9]{2}")", R"("(x{0,40}){0,40}")"};
    switch (Below(13)) {
      case 0:
      case 1: return fmt::format("\"type\":\"{}\"", types[Below(std::size(types))]);
      case 2:
      case 3:
        return fmt::format("\"{}\":{}", schemas[Below(std::size(schemas))], Schema(depth + 1));
      case 4: return fmt::format("\"{}\":{}", lists[Below(std::size(lists))], List(5, depth, true));
      case 5: return fmt::format("\"{}\":{}", sizes[Below(std::size(sizes))], Size());
      case 6: return fmt::format("\"{}\":{}", bounds[Below(std::size(bounds))], Below(2000));
      case 7: return "\"enum\":" + List(Below(40) == 0 ? 400 : 5, depth, false);
      case 8: return fmt::format("\"required\":[{},{}]", Name(), Name());
      case 9: return fmt::format("\"$ref\":\"#/$defs/d{}\"", Below(4));
      case 10: return fmt::format("\"pattern\":{}", patterns[Below(std::size(patterns))]);
      case 11: return "\"patternProperties\":" + Map(3, depth, true);
      default: return "\"properties\":" + Map(Below(10) == 0 ? 60 : 6, depth, false);
    }
  }

  std::string Schema(int depth) {
    if (depth > 12 || --budget_ < 0) return Below(4) == 0 ? "false" : "{}";
    std::string schema = "{";
    const int count = 1 + Below(4);
    for (int i = 0; i < count; ++i) schema += (i > 0 ? "," : "") + Member(depth);
    return schema + "}";
  }

  std::mt19937 random_;
  int budget_ = 0;
};

TEST(JsonSchemaFuzzTest, MutatedSchemas) {
  std::istringstream lines(
      ReadFile(SourcePath("tests/data/json_schema/random.jsonl"), 1 << 24).value());
  std::mt19937 random(1);
  static constexpr char kBytes[] = "{}[]\",:0123456789abcux\\+*?(|)^$-&.e";
  std::string line;
  while (std::getline(lines, line)) {
    const std::string seed = json::Write(*json::Parse(line)->Find("schema"));
    for (int i = 0; i < 8; ++i) {
      std::string input = seed;
      for (int k = 0; k < 1 + i / 3; ++k) {
        const size_t at = random() % input.size();
        switch (random() % 3) {
          case 0: input[at] = kBytes[random() % (sizeof(kBytes) - 1)]; break;
          case 1: input.erase(at, 1 + random() % 4); break;
          default: input.insert(at, input.substr(random() % input.size(), random() % 40)); break;
        }
        if (input.empty()) input = seed;
      }
      SecondsOf(input);
    }
  }
}

// The environment variable SLUICE_RANDOM_SCHEMAS is the number of schemas. docs/benchmarking.md has
// results for 10,000.
TEST(JsonSchemaFuzzTest, RandomSchemasStayWithinTheirLimits) {
  const char* wanted = std::getenv("SLUICE_RANDOM_SCHEMAS");
  const int count = wanted != nullptr ? std::atoi(wanted) : 40;
  double most = 0, all = 0;
  size_t largest = 0;
  for (int i = 0; i < count; ++i) {
    const std::string schema =
        RandomSchema(static_cast<uint32_t>(i)).Make(i % 10 == 0 ? 2000 : 20 + i % 100);
    if (schema.size() > kMostBytes) continue;
    largest = std::max(largest, schema.size());
    const double seconds = SecondsOf(schema);
    // Compiling stops after 2 s of thread time, each step after 0.25 s. The time is checked at
    // allocations, which may be far apart under a sanitizer.
    EXPECT_LT(seconds, 10.0) << schema.substr(0, 2000);
    if (seconds > most) most = seconds;
    all += seconds;
  }
  fmt::print("{} schemas of up to {} bytes: {:.3f} s at most, {:.1f} s in all\n", count, largest,
             most, all);
}

}  // namespace
}  // namespace sluice
