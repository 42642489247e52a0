// Compiling, and the mask and step of a matcher, over a vocabulary of 128k tokens made of
// syllables; one in fifty has pieces of JSON about it, which is what masks take their time for, and
// about as many as in the vocabularies of models.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <set>

#include "constraints/json_schema.h"
#include "constraints/xgrammar_engine.h"

namespace sluice {
namespace {

constexpr int32_t kVocabSize = 128'256;

Vocabulary MakeVocabulary() {
  std::mt19937 random(1);
  const char* const syllables[] = {"ka", "to", "mi", "en",  "er", "st",
                                   "an", "lo", "qu", "ing", "re", "é"};
  const char* const ends[] = {"\"", "\":", "\",", "\"}", ",", "}", "]", "\n", ". "};
  const char* const begins[] = {" \"", "\"", "{\"", "[\"", "\n  \"", ":", "", ""};
  std::set<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace(1, static_cast<char>(byte));
  for (int number = 0; number < 1000; ++number) tokens.insert(std::to_string(number));
  while (tokens.size() < kVocabSize - 256) {
    const bool has_json = random() % 50 == 0;
    std::string token = has_json            ? begins[random() % std::size(begins)]
                        : random() % 2 == 0 ? " "
                                            : "";
    const unsigned count = 1 + random() % 5;
    for (unsigned i = 0; i < count; ++i) token += syllables[random() % std::size(syllables)];
    if (has_json) token += ends[random() % std::size(ends)];
    tokens.insert(token);
  }
  Vocabulary vocabulary;
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  vocabulary.tokens.push_back("<end>");
  vocabulary.end_tokens = {static_cast<int32_t>(vocabulary.tokens.size()) - 1};
  vocabulary.size = kVocabSize;
  return vocabulary;
}

const ConstraintEngine& Engine() {
  static const auto engine = MakeXgrammarEngine(
      MakeVocabulary(), {.compile = {.cpu_seconds = 60, .bytes = int64_t{4} << 30}});
  return *engine;
}

// `first`: the number in the name of the first property.
std::string SchemaOf(int num_properties, int first = 0) {
  const char* const kinds[] = {
      R"({"type":"string"})", R"({"type":"integer","minimum":0,"maximum":150})",
      R"({"type":"boolean"})", R"({"type":"array","items":{"type":"number"},"maxItems":5})",
      R"({"enum":["red","green","blue"]})"};
  std::string properties, required;
  for (int i = 0; i < num_properties; ++i) {
    const std::string name = "\"property_" + std::to_string(first + i) + "\"";
    properties += (i > 0 ? "," : "") + name + ":" + kinds[i % std::size(kinds)];
    required += (i > 0 ? "," : "") + name;
  }
  return R"({"type":"object","properties":{)" + properties + R"(},"required":[)" + required +
         R"(],"additionalProperties":false})";
}

void BM_CompileSchema(benchmark::State& state) {
  const ConstraintSpec spec{ConstraintKind::kJsonSchema,
                            SchemaOf(static_cast<int>(state.range(0)))};
  Engine();
  for (auto _ : state) benchmark::DoNotOptimize(Engine().Compile(spec));
}
BENCHMARK(BM_CompileSchema)->Arg(5)->Arg(20)->Arg(100)->Unit(benchmark::kMillisecond);

void BM_CompileBoundedString(benchmark::State& state) {
  const ConstraintSpec spec{ConstraintKind::kJsonSchema, R"({"type":"string","maxLength":)" +
                                                             std::to_string(state.range(0)) + "}"};
  Engine();
  for (auto _ : state) benchmark::DoNotOptimize(Engine().Compile(spec));
}
BENCHMARK(BM_CompileBoundedString)
    ->Arg(20)
    ->Arg(100)
    ->Arg(500)
    ->Arg(5000)
    ->Unit(benchmark::kMillisecond);

// One step of a stream: fill the mask, take a token that it allows; the answer begins again when it
// is complete.
bool Step(TokenMatcher& matcher, std::vector<uint32_t>& mask, std::mt19937& random) {
  if (!matcher.FillMask(mask)) return false;
  size_t word = random() % mask.size();
  while (mask[word] == 0) word = (word + 1) % mask.size();
  if (!matcher.Advance(static_cast<int32_t>(word) * 32 + __builtin_ctz(mask[word]))) return false;
  if (matcher.is_finished()) matcher.Reset();
  return true;
}

// A step of so many streams, each with a schema of its own.
void BM_MaskAndAdvance(benchmark::State& state) {
  std::vector<std::unique_ptr<TokenMatcher>> streams;
  for (int i = 0; i < state.range(0); ++i) {
    const auto constraint = Engine().Compile({ConstraintKind::kJsonSchema, SchemaOf(20, i)});
    streams.push_back((*constraint)->NewMatcher());
  }
  std::vector<uint32_t> mask(MaskWords(kVocabSize));
  std::mt19937 random(2);
  for (auto _ : state) {
    for (const auto& stream : streams) {
      if (!Step(*stream, mask, random)) return state.SkipWithError("a stream stopped");
    }
  }
}
BENCHMARK(BM_MaskAndAdvance)->Arg(1)->Arg(32)->Unit(benchmark::kMicrosecond);

// What the first token of a constraint that is kept waits for.
void BM_FirstMask(benchmark::State& state) {
  const auto constraint = *Engine().Compile({ConstraintKind::kJsonSchema, SchemaOf(20)});
  std::vector<uint32_t> mask(MaskWords(kVocabSize));
  for (auto _ : state) {
    if (!constraint->NewMatcher()->FillMask(mask)) return state.SkipWithError("no mask");
  }
}
BENCHMARK(BM_FirstMask)->Unit(benchmark::kMicrosecond);

// What a request's thread does with a schema before it is compiled.
void BM_CheckSchema(benchmark::State& state) {
  const json::Value schema = *json::Parse(SchemaOf(static_cast<int>(state.range(0))));
  for (auto _ : state) benchmark::DoNotOptimize(CheckJsonSchema(schema, true));
}
BENCHMARK(BM_CheckSchema)->Arg(20)->Arg(1000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice
