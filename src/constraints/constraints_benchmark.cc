// Benchmarks compiling, and a matcher's masks and steps, with a vocabulary of 128k tokens.
// SLUICE_VOCABULARY: a file like tekken.json, whose first tokens are used. Without it, tokens
// consist of syllables; one in 250 contains parts of JSON. That is as many as in real vocabularies,
// but the tokens are longer, so masks take several times as long.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/base64.h"
#include "base/file.h"
#include "constraints/json_schema.h"
#include "constraints/xgrammar_engine.h"

namespace sluice {
namespace {

constexpr int32_t kVocabSize = 128'256;

// Reads the first tokens of a vocabulary in the format of tekken.json.
Vocabulary ReadTekken(const std::string& path) {
  const json::Value file = json::Parse(ReadFile(path, size_t{64} << 20).value()).value();
  Vocabulary vocabulary;
  for (const json::Value& token : file.Find("vocab")->as_array()) {
    if (vocabulary.tokens.size() == kVocabSize - 256) break;
    vocabulary.tokens.push_back(DecodeBase64(token.Find("token_bytes")->as_string()).value());
  }
  vocabulary.tokens.push_back("<end>");
  vocabulary.end_tokens = {static_cast<int32_t>(vocabulary.tokens.size()) - 1};
  vocabulary.size = kVocabSize;
  return vocabulary;
}

Vocabulary MakeVocabulary() {
  if (const char* file = std::getenv("SLUICE_VOCABULARY")) return ReadTekken(file);
  std::mt19937 random(1);
  const char* const syllables[] = {"ka", "to", "mi", "en",  "er", "st",
                                   "an", "lo", "qu", "ing", "re", "é"};
  const char* const ends[] = {"\"", "\":", "\",", "\"}", ",", "}", "]", "\n", ". "};
  const char* const begins[] = {" \"", "\"", "{\"", "[\"", "\n  \"", ":", "", ""};
  std::set<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace(1, static_cast<char>(byte));
  for (int number = 0; number < 1000; ++number) tokens.insert(std::to_string(number));
  while (tokens.size() < kVocabSize - 256) {
    const bool has_json = random() % 250 == 0;
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

const Vocabulary& TestedVocabulary() {
  static const Vocabulary vocabulary = MakeVocabulary();
  return vocabulary;
}

const ConstraintEngine& Engine() {
  static const auto engine = MakeXgrammarEngine(
      TestedVocabulary(), {.compile = {.cpu_seconds = 60, .bytes = int64_t{4} << 30}});
  return *engine;
}

// A schema with `num_properties` properties. `first`: the number in the name of the first property.
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

// An answer that is valid for SchemaOf(num_properties, first), with strings as long as a sentence.
std::string AnswerOf(int num_properties, int first) {
  const char* const values[] = {
      R"("The quick brown fox jumps over the lazy dog, while 12 others look on from afar.")", "42",
      "true", "[1.5, 20, 333]", R"("green")"};
  std::string answer;
  for (int i = 0; i < num_properties; ++i) {
    answer += (i > 0 ? ", " : "{") + ("\"property_" + std::to_string(first + i) + "\": ") +
              values[i % std::size(values)];
  }
  return answer + "}";
}

// A sequence that writes its answer repeatedly, always with the longest possible tokens.
class Stream {
 public:
  explicit Stream(int number) : matcher_(NewMatcher(number)) {
    const std::string answer = AnswerOf(20, number);
    for (size_t at = 0; at < answer.size();) {
      const auto [token, length] = Longest(std::string_view(answer).substr(at));
      tokens_.push_back(token);
      at += length;
    }
    tokens_.push_back(TestedVocabulary().end_tokens[0]);
    // Places the streams at different positions of their answers.
    for (int i = 0; i < number * 7; ++i) Advance();
  }
  size_t num_tokens() const { return tokens_.size(); }
  bool FillMask(std::vector<uint32_t>& mask) { return matcher_->FillMask(mask); }
  bool Advance() {
    if (!matcher_->Advance(tokens_[next_])) return false;
    next_ = (next_ + 1) % tokens_.size();
    if (next_ == 0) matcher_->Reset();
    return true;
  }

 private:
  static std::unique_ptr<TokenMatcher> NewMatcher(int number) {
    return (*Engine().Compile({ConstraintKind::kJsonSchema, SchemaOf(20, number)}))->NewMatcher();
  }
  static std::pair<int32_t, size_t> Longest(std::string_view text) {
    static const auto ids = [] {
      std::unordered_map<std::string_view, int32_t> by_text;
      const auto& tokens = TestedVocabulary().tokens;
      for (size_t id = 0; id < tokens.size(); ++id)
        by_text.emplace(tokens[id], static_cast<int32_t>(id));
      return by_text;
    }();
    size_t length = std::min<size_t>(text.size(), 32);
    while (!ids.contains(text.substr(0, length))) --length;
    return {ids.at(text.substr(0, length)), length};
  }

  std::unique_ptr<TokenMatcher> matcher_;
  std::vector<int32_t> tokens_;
  size_t next_ = 0;
};

// One step of state.range(0) streams, each with its own schema.
void BM_MaskAndAdvance(benchmark::State& state) {
  std::vector<Stream> streams;
  for (int i = 0; i < state.range(0); ++i) streams.emplace_back(i);
  std::vector<uint32_t> mask(MaskWords(kVocabSize));
  for (auto _ : state) {
    for (Stream& stream : streams) {
      if (!stream.FillMask(mask) || !stream.Advance())
        return state.SkipWithError("a stream stopped");
    }
  }
}
BENCHMARK(BM_MaskAndAdvance)->Arg(1)->Arg(32)->Unit(benchmark::kMicrosecond);

// One step of a single stream inside a string, whose length may be bounded.
void BM_MaskInString(benchmark::State& state) {
  const std::string bounds =
      state.range(0) == 0 ? "" : ",\"maxLength\":" + std::to_string(state.range(0));
  const auto compiled =
      Engine().Compile({ConstraintKind::kJsonSchema, "{\"type\":\"string\"" + bounds + "}"});
  const auto matcher = (*compiled)->NewMatcher();
  const auto id_of = [](std::string_view text) {
    return static_cast<int32_t>(std::ranges::find(TestedVocabulary().tokens, text) -
                                TestedVocabulary().tokens.begin());
  };
  const int32_t quote = id_of("\""), letter = id_of("a");
  std::vector<uint32_t> mask(MaskWords(kVocabSize));
  int64_t position = 0;
  matcher->Advance(quote);
  for (auto _ : state) {
    if (!matcher->FillMask(mask)) return state.SkipWithError("no mask");
    if (++position % (state.range(0) == 0 ? 100 : state.range(0)) != 0) {
      matcher->Advance(letter);
    } else {
      matcher->Reset();
      matcher->Advance(quote);
    }
  }
}
BENCHMARK(BM_MaskInString)->Arg(0)->Arg(15)->Arg(100)->Arg(500)->Unit(benchmark::kMicrosecond);

// The time until the first mask if the constraint is cached.
void BM_FirstMask(benchmark::State& state) {
  const auto constraint = *Engine().Compile({ConstraintKind::kJsonSchema, SchemaOf(20)});
  std::vector<uint32_t> mask(MaskWords(kVocabSize));
  for (auto _ : state) {
    if (!constraint->NewMatcher()->FillMask(mask)) return state.SkipWithError("no mask");
  }
}
BENCHMARK(BM_FirstMask)->Unit(benchmark::kMicrosecond);

// The check of a schema on a request's thread, before the schema is compiled.
void BM_CheckSchema(benchmark::State& state) {
  const json::Value schema = *json::Parse(SchemaOf(static_cast<int>(state.range(0))));
  for (auto _ : state) benchmark::DoNotOptimize(CheckJsonSchema(schema, true));
}
BENCHMARK(BM_CheckSchema)->Arg(20)->Arg(1000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice
