// Compiling, and the mask and step of a matcher, over a vocabulary of 128k tokens made of syllables
// and of pieces of JSON.
#include <benchmark/benchmark.h>

#include <random>
#include <set>

#include "constraints/xgrammar_engine.h"

namespace sluice {
namespace {

constexpr int32_t kVocabSize = 128'256;

Vocabulary MakeVocabulary() {
  std::mt19937 random(1);
  const char* const syllables[] = {"ka", "to", "mi", "en",  "er", "st",
                                   "an", "lo", "qu", "ing", "re", "é"};
  const char* const ends[] = {"", "", "", "\"", "\":", "\",", " ", ",", "}", "]", "\n", "."};
  const char* const begins[] = {"", " ", " ", " \"", "\"", "{\"", "[", "\n  "};
  std::set<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace(1, static_cast<char>(byte));
  for (int number = 0; number < 1000; ++number) tokens.insert(std::to_string(number));
  while (tokens.size() < kVocabSize - 256) {
    std::string token = begins[random() % std::size(begins)];
    const unsigned count = 1 + random() % 4;
    for (unsigned i = 0; i < count; ++i) token += syllables[random() % std::size(syllables)];
    tokens.insert(token + ends[random() % std::size(ends)]);
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

std::string SchemaOf(int num_properties) {
  const char* const kinds[] = {
      R"({"type":"string"})", R"({"type":"integer","minimum":0,"maximum":150})",
      R"({"type":"boolean"})", R"({"type":"array","items":{"type":"number"},"maxItems":5})",
      R"({"enum":["red","green","blue"]})"};
  std::string properties, required;
  for (int i = 0; i < num_properties; ++i) {
    const std::string name = "\"property_" + std::to_string(i) + "\"";
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
void BM_MaskAndAdvance(benchmark::State& state) {
  const auto constraint = *Engine().Compile({ConstraintKind::kJsonSchema, SchemaOf(20)});
  const auto matcher = constraint->NewMatcher();
  std::vector<uint32_t> mask(MaskWords(kVocabSize));
  std::mt19937 random(2);
  for (auto _ : state) {
    if (!matcher->FillMask(mask)) return state.SkipWithError("no mask");
    size_t word = random() % mask.size();
    while (mask[word] == 0) word = (word + 1) % mask.size();
    const int32_t token = static_cast<int32_t>(word) * 32 + __builtin_ctz(mask[word]);
    if (!matcher->Advance(token)) return state.SkipWithError("a token of the mask is refused");
    if (matcher->is_finished()) matcher->Reset();
  }
}
BENCHMARK(BM_MaskAndAdvance)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice
