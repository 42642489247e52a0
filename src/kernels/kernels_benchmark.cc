// Throughput of the kernels on all cores, compared with the measured limits of this machine.
//
// of_limit: the least possible time, given the machine's read bandwidth and arithmetic peak,
// divided by the measured time; 1 is perfect. of_reading (attention of one token): the time for
// only reading the keys and values, measured in alternation, divided by the measured time. Shapes
// are those of Llama-3.2-1B. Try --benchmark_filter=linear/amx.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "hardware/measure.h"
#include "hardware/topology.h"
#include "kernels/attention.h"
#include "kernels/dispatch.h"
#include "kernels/grouped_linear.h"
#include "kernels/kernel_testing.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "kernels/sampling.h"
#include "kernels/silu_mul.h"
#include "tensor/float8.h"

namespace sluice::kernels {
namespace {

ThreadPool& Pool() {
  static ThreadPool pool = [] {
    const Topology topology = DetectTopology();
    return ThreadPool(topology.DefaultThreads(), topology.core_cpus);
  }();
  return pool;
}

struct Limits {
  double bytes_per_second = MeasureReadBandwidth(Pool());
  double fp32 = MeasureFp32Peak(Pool());
  double bf16 = MeasureBf16Peak(Pool());
};

const Limits& MachineLimits() {
  static const Limits limits;
  return limits;
}

// Runs `body` as often as the benchmark library requests and reports its speed. `bytes` and
// `operations`: per run; `peak`: the machine's maximum operations per second of this kind.
template <typename Body>
void Measure(benchmark::State& state, double bytes, double operations, double peak, Body&& body) {
  const Limits& limits = MachineLimits();
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) body();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
      static_cast<double>(state.iterations());
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  if (operations > 0) state.counters["GFLOP/s"] = operations / seconds * 1e-9;
  const double least =
      std::max(bytes / limits.bytes_per_second, operations > 0 ? operations / peak : 0);
  state.counters["of_limit"] = least / seconds;
}

PackedMatrix RandomMatrix(int64_t rows, int64_t cols) {
  PackedMatrix matrix = *AllocatePacked(DataFormat{}, rows, cols, "benchmark");
  const std::vector<BFloat16> row_block = ToBFloat16(Random(1).Normal(64 * cols));
  for (int64_t row = 0; row < rows; row += 64) {
    PackRows(Pool(), matrix, row, PlainMatrix(row_block.data(), ElementType::kBF16, 64, cols), 0,
             std::min<int64_t>(64, rows - row));
  }
  return matrix;
}

struct WeightFormat {
  const char* name;
  DataFormat format;
};

const std::vector<WeightFormat>& NarrowFormats() {
  using Layout = DataFormat::ScaleLayout;
  using enum ElementType;
  static const std::vector<WeightFormat> formats = {
      {"fp8", {kF8E4M3, Layout::kPerTensor, kF32, 0, 0, false}},
      {"block_fp8", {kF8E4M3, Layout::kPerBlock, kF32, 128, 128, false}},
      {"int8", {kI8, Layout::kPerRow, kF32, 0, 0, false}},
      {"nvfp4", {kF4E2M1, Layout::kPerGroup, kF8E4M3, 16, 0, true}},
      {"mxfp4", {kF4E2M1, Layout::kPerGroup, kF8E8M0, 32, 0, false}},
  };
  return formats;
}

// Random codes; scales near one. E4M3 codes represent normally distributed numbers whose maximum
// per row is near the end of the range, as in checkpoints with a scale per row or block. The
// fraction of codes that are zero or below 2^-6 affects the speed of some kernels.
PackedMatrix RandomMatrix(const DataFormat& format, int64_t rows, int64_t cols) {
  PackedMatrix matrix = *AllocatePacked(format, rows, cols, "benchmark");
  constexpr int64_t kChunk = 128;
  std::vector<uint8_t> codes(static_cast<size_t>(kChunk * cols));
  Random random(1);
  if (format.type == ElementType::kF8E4M3) {
    const std::vector<float> values =
        random.Normal(static_cast<int64_t>(codes.size()), kFloat8E4M3Max / 5);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = ToFloat8E4M3(values[i]).bits;
  } else {
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random.engine()() % 0x7F);
  }
  const bool bytes = BitsPerElement(format.scale_type) == 8;
  const std::vector<float> floats(static_cast<size_t>(kChunk * cols / 16), 1.0f);
  const std::vector<uint8_t> narrow(floats.size(), format.group_size == 16 ? 0x38 : 127);
  const StoredMatrix source{.format = format,
                            .rows = kChunk,
                            .cols = cols,
                            .data = reinterpret_cast<const std::byte*>(codes.data()),
                            .scales = reinterpret_cast<const std::byte*>(
                                bytes ? static_cast<const void*>(narrow.data()) : floats.data())};
  for (int64_t row = 0; row < rows; row += kChunk)
    PackRows(Pool(), matrix, row, source, 0, std::min(kChunk, rows - row));
  return matrix;
}

// Cycles through matrices of the same shape, which together are larger than the caches, like the
// layers of a model.
void Linear(benchmark::State& state, Isa isa, int64_t m, int64_t n, int64_t k,
            const DataFormat& format, bool int8_inputs) {
  SelectIsa(isa);
  const int64_t bytes = PackedBytes(format, n, k);
  std::vector<PackedMatrix> matrices;
  for (int64_t total = 0; total < int64_t{500} << 20; total += bytes)
    matrices.push_back(format == DataFormat{} ? RandomMatrix(n, k) : RandomMatrix(format, n, k));
  const std::vector<BFloat16> x = ToBFloat16(Random(2).Normal(m * k));
  const std::vector<int8_t> integers(static_cast<size_t>(m * k), 3);
  const std::vector<float> scales(static_cast<size_t>(m), 1.0f);
  Buffer y = *Buffer::Allocate(static_cast<size_t>(m * n * 4), "benchmark");
  std::memset(y.data(), 0,
              // Touches the pages; otherwise the first product would wait for page faults.
              y.size_bytes());
  const Activations view =
      int8_inputs ? Activations{integers.data(), ElementType::kI8, m, k, k, scales.data()}
                  : Activations{x.data(), ElementType::kBF16, m, k, k};
  ReserveLinearScratch(Pool(), m, k);
  size_t next = 0;
  const auto operations = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
  Measure(state, static_cast<double>(bytes), operations, MachineLimits().bf16, [&] {
    kernels::Linear(Pool(), matrices[next++ % matrices.size()], view, y.As<float>().data(), n);
  });
}

// Measures the first product of a mixture of 32 experts, of which each token uses 4, in 16 layers.
// Bytes: weights of the active experts.
void Experts(benchmark::State& state, Isa isa, int64_t tokens, const DataFormat& format) {
  constexpr int64_t kExperts = 32, kTop = 4, kLayers = 16, kOutputs = 1024, kInputs = 1024;
  SelectIsa(isa);
  std::vector<std::vector<PackedMatrix>> layers(kLayers);
  for (std::vector<PackedMatrix>& experts : layers) {
    for (int64_t e = 0; e < kExperts; ++e) {
      experts.push_back(format == DataFormat{} ? RandomMatrix(kOutputs, kInputs)
                                               : RandomMatrix(format, kOutputs, kInputs));
    }
  }
  const int64_t rows = tokens * kTop;
  const int64_t active = std::min(rows, kExperts);
  std::vector<int32_t> row_begin = {0};
  for (int64_t e = 0; e < kExperts; ++e)
    row_begin.push_back(static_cast<int32_t>(rows * std::min(e + 1, active) / active));
  const std::vector<BFloat16> x = ToBFloat16(Random(7).Normal(rows * kInputs));
  std::vector<float> y(static_cast<size_t>(rows * kOutputs));
  ReserveLinearScratch(Pool(), rows, kInputs);
  size_t next = 0;
  Measure(state, static_cast<double>(active * PackedBytes(format, kOutputs, kInputs)),
          2.0 * static_cast<double>(rows * kOutputs * kInputs), MachineLimits().bf16, [&] {
            GroupedLinear(Pool(), layers[next++ % kLayers], row_begin,
                          {x.data(), ElementType::kBF16, rows, kInputs, kInputs}, y.data(),
                          kOutputs);
          });
}

double SecondsOf(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the time in which all threads read the buffers, divided by the time of `body`, which also
// reads them. Both are medians of alternating runs, because the machine's bandwidth varies over
// time.
double OfReading(const auto& body, std::span<const Buffer> buffers) {
  constexpr int kRuns = 15;
  std::vector<double> own, plain;
  std::atomic<uint64_t> sink = 0;  // keeps the compiler from removing the reads
  for (int i = 0; i < kRuns; ++i) {
    own.push_back(SecondsOf(body));
    plain.push_back(SecondsOf([&] {
      for (const Buffer& buffer : buffers) {
        const std::span<const uint64_t> words = buffer.As<uint64_t>();
        Pool().ParallelFor(std::ssize(words), 1 << 15, [&](int64_t begin, int64_t end) {
          uint64_t sum = 0;
          for (int64_t word = begin; word < end; ++word) sum += words[static_cast<size_t>(word)];
          sink += sum;
        });
      }
    }));
  }
  std::ranges::nth_element(own, own.begin() + kRuns / 2);
  std::ranges::nth_element(plain, plain.begin() + kRuns / 2);
  return plain[kRuns / 2] / own[kRuns / 2];
}

// Measures attention for `tokens` new tokens of each sequence; sequence i has contexts[i] tokens in
// the cache.
void Attend(benchmark::State& state, Isa isa, int tokens, const std::vector<int>& contexts,
            ElementType type) {
  SelectIsa(isa);
  constexpr int kHeads = 32;
  const KvLayout layout{8, 64, 16, type};
  const auto sequences = static_cast<int64_t>(contexts.size());
  std::vector<AttentionSlice> slices;
  std::vector<int64_t> first_blocks = {0};
  double positions = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    const int context = contexts[static_cast<size_t>(i)];
    slices.push_back({i * tokens, tokens, context});
    first_blocks.push_back(first_blocks.back() + (context + tokens + 15) / 16);
    positions += static_cast<double>(tokens) * context + tokens * (tokens + 1) / 2.0;
  }
  std::vector<int32_t> table(static_cast<size_t>(first_blocks.back()));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < slices.size(); ++i) slices[i].block_table = table.data() + first_blocks[i];
  const auto cache_bytes = table.size() * static_cast<size_t>(layout.BlockElements()) *
                           static_cast<size_t>(BitsPerElement(type)) / 8;
  // For one token: there are so many layers that keys and values come from memory, not from caches.
  constexpr size_t kLayersBytes = size_t{256} << 20;
  const size_t layers = tokens > 1 ? 1 : (kLayersBytes + 2 * cache_bytes - 1) / (2 * cache_bytes);
  std::vector<Buffer> caches;  // keys and values of each layer
  for (size_t i = 0; i < 2 * layers; ++i) {
    caches.push_back(*Buffer::Allocate(cache_bytes, "benchmark"));
    std::memset(caches.back().data(), 0x3C, cache_bytes);
  }
  const int64_t rows = int64_t{tokens} * sequences;
  const std::vector<float> q = Random(3).Normal(rows * kHeads * 64);
  std::vector<BFloat16> out(q.size());
  std::vector<std::byte> scratch(static_cast<size_t>(AttentionScratchBytes(
      layout, kHeads, rows, sequences, std::ranges::max(contexts) + tokens, Pool().num_threads())));
  size_t next = 0;
  const auto attend = [&] {
    Buffer* cache = &caches[2 * (next++ % layers)];
    Attention(Pool(), {layout, cache[0].data(), cache[1].data()}, slices, {}, q.data(), kHeads * 64,
              kHeads, {.scale = 0.125f, .bf16_products = true}, out.data(), ElementType::kBF16,
              scratch);
  };
  Measure(state, 2.0 * static_cast<double>(cache_bytes), positions * kHeads * 64 * 4,
          isa == Isa::kAvx512Bf16 ? MachineLimits().bf16 : MachineLimits().fp32, attend);
  if (tokens > 1) return;
  state.counters["of_reading"] = OfReading(
      [&] {
        for (size_t i = 0; i < layers; ++i) attend();
      },
      caches);
}

void Normalize(benchmark::State& state, Isa isa, int64_t rows) {
  SelectIsa(isa);
  std::vector<float> residual = Random(4).Normal(rows * 2048);
  const std::vector<float> delta(residual.size(), 1e-3f), weight(2048, 1.0f);
  std::vector<BFloat16> y(residual.size());
  Measure(state, static_cast<double>(rows * 2048 * 14), 0, 0, [&] {
    AddRmsNorm(Pool(), residual.data(), delta.data(), weight.data(), 1e-5f, rows, 2048, y.data(),
               ElementType::kBF16);
  });
}

void Gate(benchmark::State& state, Isa isa, int64_t rows) {
  SelectIsa(isa);
  const std::vector<float> x = Random(5).Normal(rows * 16384);
  std::vector<BFloat16> y(static_cast<size_t>(rows * 8192));
  Measure(state, static_cast<double>(rows * 8192 * 10), 0, 0,
          [&] { SiluMul(Pool(), x.data(), rows, 8192, y.data(), ElementType::kBF16); });
}

void Sample(benchmark::State& state, Isa isa) {
  SelectIsa(isa);
  const std::vector<float> logits = Random(6).Normal(128256);
  Measure(state, 128256.0 * 4, 0, 0, [&] {
    benchmark::DoNotOptimize(ArgMax(logits));
    benchmark::DoNotOptimize(ComputeLogSumExp(logits));
  });
}

const bool registered = [] {
  for (Isa isa : AvailableIsas()) {
    if (isa == Isa::kReference) continue;
    const auto add = [&](const std::string& name, auto function, const auto&... arguments) {
      benchmark::RegisterBenchmark((name + "/" + std::string(IsaName(isa))).c_str(), function, isa,
                                   arguments...)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    };
    for (auto [n, k] : {std::pair<int64_t, int64_t>{8192, 2048}, {2048, 8192}, {128256, 2048}}) {
      for (int64_t m : {1, 8, 16, 32, 128, 512}) {
        add("linear_" + std::to_string(k) + "x" + std::to_string(n) + "/M" + std::to_string(m),
            Linear, m, n, k, DataFormat{}, false);
      }
    }
    for (int64_t tokens : {1, 512}) {
      const std::string shape = "_4_of_32_1024x1024/M" + std::to_string(tokens);
      add("experts_bf16" + shape, Experts, tokens, DataFormat{});
      for (const WeightFormat& format : NarrowFormats())
        add("experts_" + std::string(format.name) + shape, Experts, tokens, format.format);
    }
    for (const WeightFormat& format : NarrowFormats()) {
      for (int64_t m : {1, 8, 12, 16, 32, 512}) {
        const std::string shape = "_2048x8192/M" + std::to_string(m);
        add("linear_" + std::string(format.name) + shape, Linear, m, 8192, 2048, format.format,
            false);
        if (format.format.type == ElementType::kI8)
          add("linear_w8a8" + shape, Linear, m, 8192, 2048, format.format, true);
      }
    }
    for (const auto& [name, type] :
         {std::pair{"", ElementType::kBF16}, {"_f8", ElementType::kF8E4M3}}) {
      const std::string kv = std::string("attention") + name;
      add(kv + "_prefill_512", Attend, 512, std::vector{0}, type);
      add(kv + "_prefill_512_after_8000", Attend, 512, std::vector{8000}, type);
      add(kv + "_decode_1x8000", Attend, 1, std::vector{8000}, type);
      add(kv + "_decode_1x32000", Attend, 1, std::vector{32000}, type);
      add(kv + "_decode_32x500", Attend, 1, std::vector<int>(32, 500), type);
      add(kv + "_decode_mixed", Attend, 1, std::vector{100, 32000, 300, 8000, 1000, 3000}, type);
    }
    // The other kernels of these instruction sets are the same as those of AVX2, AVX-512 or NEON.
    if (isa == Isa::kAvx2Vnni || isa == Isa::kAvx512Vnni || isa == Isa::kAvx512Bf16 ||
        isa == Isa::kAmx || isa == Isa::kNeonDotprod || isa == Isa::kNeonBf16) {
      continue;
    }
    for (int64_t rows : {1, 32, 512}) add("add_rms_norm/M" + std::to_string(rows), Normalize, rows);
    for (int64_t rows : {1, 32, 512}) add("silu_mul/M" + std::to_string(rows), Gate, rows);
    add("argmax_logsumexp_128256", Sample);
  }
  return true;
}();

}  // namespace
}  // namespace sluice::kernels
