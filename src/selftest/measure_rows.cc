// Measures norms, fused kernels and draws. Their speed is given by the bytes that they move,
// relative to the bandwidth.
#include <fmt/format.h>

#include "selftest/measure_run.h"

namespace sluice::selftest {

using checks::CaseMemory;

namespace {

using device::RowScale;

// Returns `copies` arrays of `count` elements, which launches use in turn.
template <typename T>
std::vector<T*> Arrays(CaseMemory& memory, int64_t count, int64_t copies) {
  std::vector<T*> arrays;
  for (int64_t i = 0; i < copies; ++i) arrays.push_back(memory.Out<T>(count));
  return arrays;
}
template <typename T>
T* Of(const std::vector<T*>& arrays, int64_t turn) {
  return arrays[static_cast<size_t>(turn) % arrays.size()];
}

void MeasureNorm(MeasureRun& run, int64_t rows) {
  const int64_t hidden = run.Size(8192, 64);
  CaseMemory memory(run.device());
  const double bytes = static_cast<double>(rows * hidden) * (4 + 4 + 2 + 1);
  const int64_t copies = run.CopiesBeyondCache(bytes);
  const auto residuals = Arrays<float>(memory, rows * hidden, copies);
  const auto deltas = Arrays<uint16_t>(memory, rows * hidden, copies);
  const auto outs = Arrays<uint8_t>(memory, rows * hidden, copies);
  float* scales = memory.Out<float>(rows);
  const float* weight = memory.In(std::vector<float>(static_cast<size_t>(hidden), 1.0f));
  run.Measure({.name = "add, norm, fp8",
               .shape = fmt::format("{} x {}", rows, hidden),
               .amount = bytes,
               .limit = run.limits().copy_gigabytes},
              memory, [&](int64_t turn) {
                run.device().kernels().rms_norm(
                    run.device().handle(),
                    {Of(residuals, turn),
                     Of(deltas, turn),
                     ElementType::kBF16,
                     weight,
                     1e-5f,
                     rows,
                     hidden,
                     {Of(outs, turn), ElementType::kF8E4M3, scales, RowScale::kPerToken, 1},
                     nullptr});
              });
}

void MeasureSilu(MeasureRun& run, int64_t rows) {
  const int64_t intermediate = run.Size(28672, 64);
  CaseMemory memory(run.device());
  const double bytes = static_cast<double>(rows * intermediate) * (2 * 2 + 1);
  const int64_t copies = run.CopiesBeyondCache(bytes);
  const auto inputs = Arrays<uint16_t>(memory, 2 * rows * intermediate, copies);
  const auto outs = Arrays<uint8_t>(memory, rows * intermediate, copies);
  float* scales = memory.Out<float>(rows);
  for (const RowScale scale : {RowScale::kStatic, RowScale::kPerToken}) {
    run.Measure({.name = "silu, mul, fp8",
                 .shape = fmt::format("{} x {}, {}", rows, intermediate,
                                      scale == RowScale::kStatic ? "static" : "per token"),
                 .amount = bytes,
                 .limit = run.limits().copy_gigabytes},
                memory, [&](int64_t turn) {
                  run.device().kernels().silu_mul(
                      run.device().handle(),
                      {Of(inputs, turn),
                       ElementType::kBF16,
                       rows,
                       intermediate,
                       {Of(outs, turn), ElementType::kF8E4M3, scales, scale, 1}});
                });
  }
}

void MeasureRopeAppend(MeasureRun& run, int64_t rows) {
  constexpr int kHeads = 64, kKvHeads = 8, kDim = 128;
  CaseMemory memory(run.device());
  const int64_t width = (kHeads + 2 * kKvHeads) * kDim;
  const double bytes = static_cast<double>(rows) *
                       (static_cast<double>(width) * 2 + kHeads * kDim * 2 + 2 * kKvHeads * kDim);
  const int64_t copies = run.CopiesBeyondCache(bytes);
  const auto inputs = Arrays<uint16_t>(memory, rows * width, copies);
  const auto queries = Arrays<uint16_t>(memory, rows * kHeads * kDim, copies);
  std::vector<int64_t> slots;
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < rows; ++row) {
    slots.push_back(row);
    positions.push_back(static_cast<int32_t>(row));
  }
  const int64_t* device_slots = memory.In(slots);
  const int32_t* device_positions = memory.In(positions);
  const float* cos_sin = memory.In(std::vector<float>(static_cast<size_t>(rows * kDim), 0.5f));
  const int64_t cache_bytes = (rows + 15) / 16 * 16 * kKvHeads * kDim;
  uint8_t* k = memory.Out<uint8_t>(cache_bytes);
  uint8_t* v = memory.Out<uint8_t>(cache_bytes);
  run.Measure({.name = "rope, append fp8",
               .shape = fmt::format("{} x (64 + 2 x 8) x 128", rows),
               .amount = bytes,
               .limit = run.limits().copy_gigabytes},
              memory, [&](int64_t turn) {
                device::RopeAppendArgs args{};
                args.qkv = Of(inputs, turn);
                args.qkv_type = ElementType::kBF16;
                args.rows = rows;
                args.num_heads = kHeads;
                args.rope = true;
                args.cos_sin = cos_sin;
                args.positions = device_positions;
                args.slots = device_slots;
                args.q = Of(queries, turn);
                args.cache = {k, v, ElementType::kF8E4M3, 1, 1, kKvHeads, kDim, 16};
                run.device().kernels().rope_append(run.device().handle(), args);
              });
}

// Measures adapters of rank 16 on q, k and v of Llama 3 8B, with the rows divided among them.
// Counts the bytes of the factors and of y, which is read and written.
void MeasureLora(MeasureRun& run, int64_t rows, int32_t adapters) {
  const int64_t hidden = run.Size(4096, 64), kv = run.Size(1024, 16);
  constexpr int64_t kRank = 16;
  const std::vector<int64_t> outputs = {hidden, kv, kv};
  const int64_t width = hidden + 2 * kv;
  int64_t numbers = 0;  // elements per slot
  std::vector<int64_t> places;
  for (const int64_t output : outputs) {
    for (const int64_t size : {hidden, output}) {
      places.push_back(numbers);
      numbers += kRank * size;
    }
  }
  CaseMemory memory(run.device());
  const double bytes = static_cast<double>(adapters * numbers) * 2 +
                       static_cast<double>(rows) * static_cast<double>(hidden * 2 + width * 4);
  const int64_t copies = run.CopiesBeyondCache(bytes);
  std::vector<const uint16_t*> factors;
  for (int64_t i = 0; i < copies; ++i) {
    factors.push_back(
        memory.In(std::vector<uint16_t>(static_cast<size_t>(adapters * numbers), uint16_t{0})));
  }
  const auto inputs = Arrays<uint16_t>(memory, rows * hidden, copies);
  const auto results = Arrays<uint16_t>(memory, rows * width, copies);
  const auto* ranks = memory.In(std::vector<device::LoraFactor>(
      static_cast<size_t>(adapters) * outputs.size(), {static_cast<int32_t>(kRank), 1.0f}));
  std::vector<int32_t> order;
  std::vector<device::LoraTile> tiles;
  for (int32_t slot = 0; slot < adapters; ++slot) {
    for (int64_t row = slot; row < rows; row += adapters) {
      if (tiles.empty() || tiles.back().slot != slot || tiles.back().count == device::kLoraRows)
        tiles.push_back({slot, static_cast<int32_t>(order.size()), 0});
      ++tiles.back().count;
      order.push_back(static_cast<int32_t>(row));
    }
  }
  device::AddLoraArgs args = {};
  args.x_type = args.y_type = ElementType::kBF16;
  args.cols = hidden;
  args.y_stride = width;
  args.scale = 1;
  args.num_modules = static_cast<int>(outputs.size());
  args.slot_bytes = numbers * 2;
  args.slot_factors = args.num_modules;
  args.max_rank = static_cast<int>(kRank);
  args.h = memory.Out<float>(rows * args.num_modules * kRank);
  args.num_tiles = std::ssize(tiles);
  args.tiles = memory.In(tiles);
  args.rows = memory.In(order);
  args.num_rows = rows;
  run.Measure(
      {.name = "add_lora",
       .shape = fmt::format("{} x {} to {}, {} of rank {}", rows, hidden, width, adapters, kRank),
       .amount = bytes,
       .limit = run.limits().copy_gigabytes},
      memory, [&](int64_t turn) {
        args.x = Of(inputs, turn);
        args.y = Of(results, turn);
        int64_t first_col = 0;
        for (size_t i = 0; i < outputs.size(); ++i) {
          const uint16_t* const slots = Of(factors, turn);
          args.modules[i] = {slots + places[2 * i], slots + places[2 * i + 1], ranks + i, first_col,
                             outputs[i]};
          first_col += outputs[i];
        }
        run.device().kernels().add_lora(run.device().handle(), args);
      });
}

void MeasureDraws(MeasureRun& run, int64_t rows) {
  const int64_t vocabulary = run.Size(128256, 256);
  CaseMemory memory(run.device());
  const double bytes = static_cast<double>(rows * vocabulary) * 4;
  const auto logits = Arrays<float>(memory, rows * vocabulary, run.CopiesBeyondCache(bytes));
  // With temperature 0, each row is read once.
  const auto* settings =
      memory.In(std::vector<kernels::DrawSettings>(static_cast<size_t>(rows), {0, 0, 0, 1, 0}));
  int32_t* tokens = memory.Out<int32_t>(rows);
  auto* errors = memory.Out<kernels::DrawError>(rows);
  run.Measure({.name = "sample_rows",
               .shape = fmt::format("{} x {}, the largest", rows, vocabulary),
               .amount = bytes,
               .limit = run.limits().copy_gigabytes},
              memory, [&](int64_t turn) {
                run.device().kernels().sample_rows(
                    run.device().handle(),
                    {Of(logits, turn), rows, vocabulary, settings, tokens, errors});
              });
}

}  // namespace

void MeasureRows(MeasureRun& run) {
  for (const int64_t rows : {run.Size(64, 1), run.Size(256, 2), run.Size(8192, 3)}) {
    if (run.lost()) return;
    MeasureNorm(run, rows);
    MeasureSilu(run, rows);
    MeasureRopeAppend(run, rows);
  }
  if (!run.lost()) MeasureLora(run, run.Size(32, 5), 8);
  if (!run.lost()) MeasureLora(run, run.Size(2048, 6), 1);
  for (const int64_t rows : {int64_t{1}, run.Size(64, 2), run.Size(256, 3)}) {
    if (!run.lost()) MeasureDraws(run, rows);
  }
}

}  // namespace sluice::selftest
