// Measures the speed of encoding and decoding a text.
//
//   SLUICE_BENCHMARK_TOKENIZER=FOLDER SLUICE_BENCHMARK_TEXT=FILE tokenizer_benchmark
//
// FOLDER contains a tokenizer.json, FILE is UTF-8 text. ScanBound is an upper bound of the speed:
// it only validates the text as UTF-8, which every encoder must do.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "base/check.h"
#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/incremental_detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace sluice {
namespace {

const std::string& Text() {
  static const std::string text = [] {
    const char* path = std::getenv("SLUICE_BENCHMARK_TEXT");
    CHECK(path != nullptr, "set SLUICE_BENCHMARK_TEXT to a text file");
    auto read = ReadFile(path);
    CHECK(read.has_value(), "{}", read.error().message);
    return *read;
  }();
  return text;
}

const char* Folder() {
  const char* folder = std::getenv("SLUICE_BENCHMARK_TOKENIZER");
  CHECK(folder != nullptr, "set SLUICE_BENCHMARK_TOKENIZER to a folder with a tokenizer.json");
  return folder;
}

const Tokenizer& Sample() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    auto loaded = Tokenizer::Load(Folder());
    CHECK(loaded.has_value(), "{}", loaded.error().message);
    return *std::move(loaded);
  }();
  return *tokenizer;
}

void SetSpeed(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

void ScanBound(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(IsValidUtf8(Text()));
  SetSpeed(state, Text().size());
}
BENCHMARK(ScanBound);

void Load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Load(Folder()));
}
BENCHMARK(Load)->Unit(benchmark::kMillisecond);

void Encode(benchmark::State& state) {
  size_t tokens = 0;
  for (auto _ : state) tokens = Sample().Encode(Text(), false).size();
  SetSpeed(state, Text().size());
  state.counters["tokens"] = static_cast<double>(tokens);
}
BENCHMARK(Encode)->Unit(benchmark::kMillisecond);

void EncodeEqualCharacters(benchmark::State& state) {
  const std::string text(100'000, static_cast<char>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(Sample().Encode(text, false));
}
BENCHMARK(EncodeEqualCharacters)->Arg('a')->Arg(' ')->Arg('=')->Unit(benchmark::kMillisecond);

void Decode(benchmark::State& state) {
  const std::vector<int32_t> ids = Sample().Encode(Text(), false);
  for (auto _ : state) benchmark::DoNotOptimize(Sample().Decode(ids, false));
  SetSpeed(state, Text().size());
}
BENCHMARK(Decode)->Unit(benchmark::kMillisecond);

void DecodeStream(benchmark::State& state) {
  const std::vector<int32_t> ids = Sample().Encode(Text(), false);
  for (auto _ : state) {
    IncrementalDetokenizer detokenizer(Sample(), true);
    for (const int32_t id : ids) benchmark::DoNotOptimize(detokenizer.Push(id));
  }
  SetSpeed(state, Text().size());
}
BENCHMARK(DecodeStream)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sluice
