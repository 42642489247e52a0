// Checks positions: the rope table, and the conversion of a row's projections to q and to its cache
// slot.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"
#include "kernels/rope.h"

namespace sluice::checks {
namespace {

using device::DeviceKernels;

std::vector<float> Frequencies(int head_dim) {
  return kernels::RopeFrequencies(
      head_dim, 500000.0,
      kernels::Llama3RopeScaling{
          .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position = 8192});
}

void CheckRopeTable(CaseMemory& memory, Comparison& comparison, int head_dim, float amplitude) {
  TestNumbers numbers(51);
  const std::vector<float> frequencies = Frequencies(head_dim);
  std::vector<int32_t> positions = {0, 1, 511, 131071, 1048575};
  for (int i = 0; i < 6; ++i) positions.push_back(static_cast<int32_t>(numbers.Integer(0, 131071)));
  const auto rows = static_cast<int64_t>(positions.size());
  float* out = memory.Out<float>(rows * head_dim);
  memory.Launch(&DeviceKernels::rope_table,
                {memory.In(positions), memory.In(frequencies), rows, head_dim, out, amplitude});
  const auto got = memory.Read(out, rows * head_dim);
  const size_t half = static_cast<size_t>(head_dim) / 2;
  for (size_t row = 0; row < positions.size(); ++row) {
    for (size_t i = 0; i < half; ++i) {
      // The angle itself is rounded to F32 (kernels/rope.h).
      const double angle = static_cast<float>(positions[row]) * frequencies[i];
      const size_t at = row * 2 * half + i;
      const auto add = [&](float number, double value) {
        comparison.AddWithin(number, value * amplitude,
                             MathError(value) * amplitude + std::abs(value * amplitude) * Gamma(1));
      };
      add(got[at], std::cos(angle));
      add(got[at + half], std::sin(angle));
    }
  }
}

// Checks frequencies that use the positions on three axes.
void CheckAxialRopeTable(CaseMemory& memory, Comparison& comparison, int head_dim) {
  TestNumbers numbers(55);
  const std::vector<float> frequencies = Frequencies(head_dim);
  constexpr int64_t kRows = 5;
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < 3 * kRows; ++i)
    positions.push_back(static_cast<int32_t>(numbers.Integer(0, 131071)));
  float* out = memory.Out<float>(kRows * head_dim);
  device::RopeTableArgs args = {memory.In(positions), memory.In(frequencies), kRows, head_dim, out};
  args.has_axes = true;
  const size_t half = frequencies.size();
  for (size_t i = 0; i < half; ++i) args.axes[i] = static_cast<int8_t>(i * 7 % 3);
  memory.Launch(&DeviceKernels::rope_table, args);
  const auto got = memory.Read(out, kRows * head_dim);
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t i = 0; i < half; ++i) {
      const int32_t position = positions[static_cast<size_t>(args.axes[i]) * kRows + row];
      const double angle = static_cast<float>(position) * frequencies[i];
      const size_t at = row * 2 * half + i;
      comparison.AddWithin(got[at], std::cos(angle), MathError(std::cos(angle)) + Gamma(1));
      comparison.AddWithin(got[at + half], std::sin(angle), MathError(std::sin(angle)) + Gamma(1));
    }
  }
}

// A model's configuration of rope_append.
struct RopeModel {
  const char* name;
  int num_heads, num_kv_heads;
  bool rope = true;
  bool interleaved = false;
  bool norms_before = false, norms_after = false;
  bool temperature = false;
  int temperature_first = 1;
  // `turned_parts`: the part of a head that RoPE rotates, in 16ths. `norms_together`: whether one
  // norm covers the heads of all ranks; this rank has only some of these heads.
  int turned_parts = 16;
  bool norms_together = false;
  device::RowKv kv = device::RowKv::kBoth;
  bool norms_values = false;
  int spare_rows = 0;  // number of additional rows of head_dim elements after a block's tokens
  int gate_heads = 0;

  int row_heads() const {
    return gate_heads + num_heads +
           num_kv_heads * (kv == device::RowKv::kBoth   ? 2
                           : kv == device::RowKv::kKeys ? 1
                                                        : 0);
  }
};
constexpr RopeModel kModels[] = {
    {.name = "Llama 3", .num_heads = 8, .num_kv_heads = 2},
    {.name = "Qwen3", .num_heads = 4, .num_kv_heads = 2, .norms_before = true},
    {.name = "Llama 4, rope",
     .num_heads = 5,
     .num_kv_heads = 1,
     .interleaved = true,
     .norms_after = true},
    {.name = "Llama 4, no rope",
     .num_heads = 5,
     .num_kv_heads = 1,
     .rope = false,
     .temperature = true},
    {.name = "Ministral 3",
     .num_heads = 4,
     .num_kv_heads = 1,
     .temperature = true,
     .temperature_first = 0},
    {.name = "rope on a half", .num_heads = 4, .num_kv_heads = 2, .turned_parts = 8},
    {.name = "rope on a half, norms after",
     .num_heads = 4,
     .num_kv_heads = 2,
     .norms_after = true,
     .turned_parts = 8},
    {.name = "rope on most of a head",
     .num_heads = 3,
     .num_kv_heads = 1,
     .norms_before = true,
     .turned_parts = 15},
    {.name = "interleaved rope on a part",
     .num_heads = 3,
     .num_kv_heads = 1,
     .interleaved = true,
     .turned_parts = 11},
    {.name = "OLMo 2",
     .num_heads = 5,
     .num_kv_heads = 2,
     .norms_before = true,
     .norms_together = true},
    {.name = "interleaved", .num_heads = 6, .num_kv_heads = 2, .interleaved = true},
    {.name = "interleaved, temperature",
     .num_heads = 1,
     .num_kv_heads = 1,
     .interleaved = true,
     .temperature = true},
    {.name = "Gemma 4",
     .num_heads = 4,
     .num_kv_heads = 2,
     .norms_before = true,
     .norms_values = true,
     .spare_rows = 5},
    {.name = "Gemma 4, values that are keys",
     .num_heads = 4,
     .num_kv_heads = 2,
     .norms_before = true,
     .kv = device::RowKv::kKeys,
     .norms_values = true},
    {.name = "Gemma 4, another layer's keys",
     .num_heads = 3,
     .num_kv_heads = 1,
     .norms_before = true,
     .kv = device::RowKv::kNone},
    {.name = "Qwen3-Next, gates before q",
     .num_heads = 4,
     .num_kv_heads = 2,
     .norms_before = true,
     .turned_parts = 4,
     .gate_heads = 4},
};

struct RopeCase : RopeModel {
  int head_dim;
  int block_size;
  ElementType qkv_type, cache_type;

  // An even number; for wide heads a multiple of 16.
  int rotary_dim() const {
    const int unit = head_dim > 256 ? 16 : 2;
    return head_dim * turned_parts / 16 / unit * unit;
  }
  int square_heads() const { return num_heads + 40; }
  int square_kv_heads() const { return num_kv_heads + 2; }
};

struct RopeSample {
  std::vector<float> qkv;  // as the device sees it
  std::vector<float> q_norm, k_norm, cos_sin;
  std::vector<float> q_squares, k_squares;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
};

constexpr float kEps = 1e-6f, kFloor = 8192, kScale = 0.1f;
constexpr float kRopeKScale = 0.0625f * 1.3f, kRopeVScale = 0.03125f * 1.7f;

// Computes the exact values of head `number` (counted through q, then k) after the kernel, and the
// bounds of their errors.
void ExactHead(const RopeCase& c, const RopeSample& sample, int64_t row, const float* head,
               int number, std::vector<double>& values, std::vector<double>& errors) {
  const bool is_q = number < c.num_heads;
  const int dim = c.head_dim, half = c.rotary_dim() / 2;
  std::vector<double> x(head, head + dim), size(static_cast<size_t>(dim));
  double roundings = 0;
  const double norm_roundings = dim / 2.0 + kMathUnits + 5;
  const auto inverse_root = [&](const std::vector<double>& of) {
    double squares = 0;
    for (const double value : of) squares += value * value;
    return 1 / std::sqrt(squares / dim + kEps);
  };
  if (c.norms_before) {
    const float* norm = is_q ? sample.q_norm.data() : sample.k_norm.data();
    double factor = inverse_root(x);
    roundings += norm_roundings;
    if (c.norms_together) {
      norm += (is_q ? number : number - c.num_heads) * dim;
      const int heads = is_q ? c.square_heads() : c.square_kv_heads();
      const float* squares = (is_q ? sample.q_squares : sample.k_squares).data() + row * heads;
      double sum = 0;
      for (int i = 0; i < heads; ++i) sum += squares[i];
      factor = 1 / std::sqrt(sum / (heads * dim) + kEps);
      roundings = heads / 2.0 + kMathUnits + 5;
    }
    for (size_t i = 0; i < x.size(); ++i) x[i] *= norm[i] * factor;
  }
  for (size_t i = 0; i < x.size(); ++i) size[i] = std::abs(x[i]);
  if (c.rope) {
    const float* cosines = sample.cos_sin.data() + row * c.rotary_dim();
    for (int i = 0; i < half; ++i) {
      const auto first = static_cast<size_t>(c.interleaved ? 2 * i : i);
      const auto second = static_cast<size_t>(c.interleaved ? 2 * i + 1 : i + half);
      const double a = x[first], b = x[second], cosine = cosines[i], sine = cosines[half + i];
      x[first] = a * cosine - b * sine;
      x[second] = a * sine + b * cosine;
      size[first] = std::abs(a * cosine) + std::abs(b * sine);
      size[second] = std::abs(a * sine) + std::abs(b * cosine);
    }
    roundings += 2;
  }
  double factor = 1;
  if (c.norms_after) {
    factor *= inverse_root(x);
    roundings += norm_roundings + 2 * roundings;
  }
  if (is_q && c.temperature) {
    const auto position = static_cast<float>(sample.positions[static_cast<size_t>(row)]);
    factor *=
        std::log1p(std::floor((position + static_cast<float>(c.temperature_first)) / kFloor)) *
            kScale +
        1.0;
    roundings += kMathUnits + 3;
  }
  roundings += 1;
  for (size_t i = 0; i < x.size(); ++i) {
    values.push_back(x[i] * factor);
    errors.push_back(size[i] * factor * Gamma(roundings));
  }
}

RopeSample MakeSample(const RopeCase& c, int64_t rows, int64_t num_slots) {
  TestNumbers numbers(52);
  RopeSample sample;
  sample.qkv = numbers.Normals(rows * c.row_heads() * c.head_dim);
  // Adds numbers beyond the range of the cache.
  if (c.cache_type == ElementType::kF8E4M3 && !c.rope) {
    const auto head_dim = static_cast<size_t>(c.head_dim);
    sample.qkv[static_cast<size_t>(c.gate_heads + c.num_heads) * head_dim] = 1e9f;
    sample.qkv[static_cast<size_t>(c.row_heads() - c.num_kv_heads) * head_dim + 1] = -1e9f;
  }
  if (c.qkv_type == ElementType::kBF16) {
    for (float& value : sample.qkv) value = FromBf16Bits(ToBFloat16(value).bits);
  }
  for (auto* norm : {&sample.q_norm, &sample.k_norm}) {
    const int heads = !c.norms_together ? 1 : norm == &sample.q_norm ? c.num_heads : c.num_kv_heads;
    norm->resize(static_cast<size_t>(int64_t{heads} * c.head_dim));
    for (float& value : *norm) value = numbers.Uniform(0.5f, 1.5f);
  }
  for (int64_t i = 0; i < rows * c.square_heads(); ++i)
    sample.q_squares.push_back(numbers.Uniform(0, 100));
  for (int64_t i = 0; i < rows * c.square_kv_heads(); ++i)
    sample.k_squares.push_back(numbers.Uniform(0, 100));
  const std::vector<float> frequencies = Frequencies(c.rotary_dim());
  for (int64_t row = 0; row < rows; ++row) {
    sample.positions.push_back(static_cast<int32_t>(numbers.Integer(0, 40000)));
    // The temperature's first step applies to this position only if positions are counted from 1.
    if (row == 0) sample.positions.back() = static_cast<int32_t>(kFloor) - 1;
    // Shuffled, distinct slots.
    sample.slots.push_back((row * 7 + 3) % num_slots);
    for (const bool is_sine : {false, true}) {
      for (const float frequency : frequencies) {
        const float angle = static_cast<float>(sample.positions.back()) * frequency;
        sample.cos_sin.push_back(is_sine ? std::sin(angle) : std::cos(angle));
      }
    }
  }
  return sample;
}

// Computes the values of a head of v as stored in the cache, and the bounds of their errors.
void ExactValues(const RopeCase& c, const float* head, std::vector<double>& values,
                 std::vector<double>& errors) {
  double squares = 0;
  for (int i = 0; i < c.head_dim; ++i) squares += double{head[i]} * head[i];
  const double factor = c.norms_values ? 1 / std::sqrt(squares / c.head_dim + kEps) : 1;
  const double roundings = c.norms_values ? c.head_dim / 2.0 + kMathUnits + 5 : 0;
  for (int i = 0; i < c.head_dim; ++i) {
    values.push_back(head[i] * factor);
    errors.push_back(std::abs(values.back()) * Gamma(roundings));
  }
}

// Compares the numbers in the cache. Where the kernel must not write, compares with the previous
// bytes.
template <typename T>
void CompareCache(const RopeCase& c, const std::vector<T>& got, const std::vector<double>& values,
                  const std::vector<double>& errors, const std::vector<bool>& written, float scale,
                  Comparison& comparison) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (!written[i]) {
      comparison.AddEqual(got[i], static_cast<T>(~T{0}));
    } else if (c.cache_type == ElementType::kF8E4M3) {
      const double value = values[i] / scale;
      comparison.AddE4m3(static_cast<uint8_t>(got[i]), value,
                         errors[i] / scale + std::abs(value) * Gamma(3));
    } else {
      comparison.AddBf16(static_cast<uint16_t>(got[i]), values[i], errors[i]);
    }
  }
}

template <typename T>
void CheckRopeAppend(CaseMemory& memory, Comparison& comparison, const RopeCase& c, int64_t rows) {
  // Row i uses slot (7 i + 3) % num_slots. Slots are distinct if num_slots is not a multiple of 7.
  int64_t num_slots = (rows + 5 + c.block_size - 1) / c.block_size * c.block_size;
  if (num_slots % 7 == 0) num_slots += c.block_size;
  const RopeSample sample = MakeSample(c, rows, num_slots);
  const int64_t row_elements = int64_t{c.row_heads()} * c.head_dim;
  const int64_t q_elements = int64_t{c.num_heads} * c.head_dim;
  const int block_rows = c.num_kv_heads * c.block_size + c.spare_rows;
  const int64_t cache_elements = num_slots / c.block_size * block_rows * c.head_dim;
  const bool is_bf16 = c.qkv_type == ElementType::kBF16;
  const auto* qkv = is_bf16 ? reinterpret_cast<const std::byte*>(memory.In(ToBf16Bits(sample.qkv)))
                            : reinterpret_cast<const std::byte*>(memory.In(sample.qkv));
  device::RopeAppendArgs args{};
  args.qkv_type = c.qkv_type;
  args.num_heads = c.num_heads;
  if (c.norms_before) {
    args.q_norm = memory.In(sample.q_norm);
    args.k_norm = memory.In(sample.k_norm);
  }
  args.norms_after_rope = c.norms_after;
  args.eps = kEps;
  args.rope = c.rope;
  args.interleaved = c.interleaved;
  args.temperature_floor = c.temperature ? kFloor : 0;
  args.temperature_scale = kScale;
  args.temperature_first = c.temperature_first;
  // 0 means all.
  args.rotary_dim = c.turned_parts == 16 ? 0 : c.rotary_dim();
  const float* q_squares = memory.In(sample.q_squares);
  const float* k_squares = memory.In(sample.k_squares);
  args.square_heads = c.square_heads();
  args.square_kv_heads = c.square_kv_heads();
  args.kv = c.kv;
  args.norms_values = c.norms_values;
  args.gate_heads = c.gate_heads;
  const float* cos_sin = memory.In(sample.cos_sin);
  const int32_t* positions = memory.In(sample.positions);
  const int64_t* slots = memory.In(sample.slots);
  const int64_t* no_slot = memory.In(std::vector<int64_t>{-1});
  if (!memory.ok()) return;

  struct Results {
    std::vector<uint16_t> q;
    std::vector<T> k, v;
  };
  const auto run = [&](int64_t first, int64_t count, const int64_t* own_slots) -> Results {
    T* const k = memory.Out<T>(cache_elements);
    T* const v = memory.Out<T>(cache_elements);
    args.qkv = qkv + first * row_elements * (is_bf16 ? 2 : 4);
    args.rows = count;
    args.cos_sin = cos_sin + first * c.rotary_dim();
    if (c.norms_together) {
      args.q_squares = q_squares + first * args.square_heads;
      args.k_squares = k_squares + first * args.square_kv_heads;
    }
    args.positions = positions + first;
    args.slots = own_slots;
    args.q = memory.Out<uint16_t>(count * q_elements);
    args.cache = {k,
                  v,
                  c.cache_type,
                  kRopeKScale,
                  kRopeVScale,
                  c.num_kv_heads,
                  c.head_dim,
                  c.block_size,
                  c.spare_rows == 0 ? 0 : block_rows};
    memory.Launch(&DeviceKernels::rope_append, args);
    return {memory.Read<uint16_t>(args.q, count * q_elements), memory.Read<T>(k, cache_elements),
            memory.Read<T>(v, cache_elements)};
  };
  const Results got = run(0, rows, slots);

  std::vector<double> k_values(got.k.size()), k_errors(got.k.size()), v_values(got.k.size()),
      v_errors(got.k.size());
  std::vector<bool> written(got.k.size());
  size_t q_index = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = sample.qkv.data() + row * row_elements + int64_t{c.gate_heads} * c.head_dim;
    const int own_kv_heads = c.kv == device::RowKv::kNone ? 0 : c.num_kv_heads;
    for (int head = 0; head < c.num_heads + own_kv_heads; ++head) {
      const bool is_q = head < c.num_heads;
      std::vector<double> values, errors, own_values, own_errors;
      if (!is_q) {
        const int value_head = c.kv == device::RowKv::kKeys ? head : head + c.num_kv_heads;
        ExactValues(c, from + value_head * c.head_dim, own_values, own_errors);
      }
      ExactHead(c, sample, row, from + head * c.head_dim, head, values, errors);
      const int64_t slot = sample.slots[static_cast<size_t>(row)];
      for (int i = 0; i < c.head_dim; ++i) {
        const auto at = static_cast<size_t>(i);
        if (is_q) {
          comparison.AddBf16(got.q[q_index++], values[at], errors[at]);
          continue;
        }
        const int kv_head = head - c.num_heads;
        const auto place = static_cast<size_t>(
            (slot / c.block_size * block_rows + kv_head * c.block_size + slot % c.block_size) *
                c.head_dim +
            i);
        k_values[place] = values[at];
        k_errors[place] = errors[at];
        v_values[place] = own_values[at];
        v_errors[place] = own_errors[at];
        written[place] = true;
      }
    }
  }
  CompareCache(c, got.k, k_values, k_errors, written, kRopeKScale, comparison);
  CompareCache(c, got.v, v_values, v_errors, written, kRopeVScale, comparison);

  // A row computed alone must be bit-identical, and write only its own slot.
  comparison.SetSubject("a row alone");
  constexpr T kUntouched = static_cast<T>(~T{0});
  const bool own_keys = c.kv != device::RowKv::kNone;
  for (int64_t row = 0; row < std::min<int64_t>(rows, 6); ++row) {
    const Results alone = run(row, 1, slots + row);
    for (size_t i = 0; i < alone.q.size(); ++i)
      comparison.AddEqual(alone.q[i], got.q[static_cast<size_t>(row * q_elements) + i]);
    const int64_t slot = sample.slots[static_cast<size_t>(row)];
    for (size_t i = 0; i < alone.k.size(); ++i) {
      const int64_t token = static_cast<int64_t>(i) / c.head_dim;
      const int64_t in_block = token % block_rows;
      const bool is_own = own_keys && token / block_rows == slot / c.block_size &&
                          in_block < int64_t{c.num_kv_heads} * c.block_size &&
                          in_block % c.block_size == slot % c.block_size;
      comparison.AddEqual(alone.k[i], is_own ? got.k[i] : kUntouched);
      comparison.AddEqual(alone.v[i], is_own ? got.v[i] : kUntouched);
    }
  }
  comparison.SetSubject("a row without a slot");
  const Results unkept = run(0, 1, no_slot);
  for (size_t i = 0; i < unkept.q.size(); ++i) comparison.AddEqual(unkept.q[i], got.q[i]);
  for (const T code : unkept.k) comparison.AddEqual(code, kUntouched);
  for (const T code : unkept.v) comparison.AddEqual(code, kUntouched);
  comparison.SetSubject("");
}

void CheckHeadSquares(CaseMemory& memory, Comparison& comparison, int64_t rows, int head_dim,
                      ElementType type) {
  constexpr int kHeads = 5, kKvHeads = 3, kGivenKvHeads = 2, kRowHeads = kHeads + 2 * kKvHeads;
  TestNumbers numbers(53);
  std::vector<float> x = numbers.Normals(rows * kRowHeads * head_dim);
  const bool is_bf16 = type == ElementType::kBF16;
  const std::vector<uint16_t> bits = ToBf16Bits(x);
  for (size_t i = 0; is_bf16 && i < x.size(); ++i) x[i] = FromBf16Bits(bits[i]);
  const auto* qkv = is_bf16 ? reinterpret_cast<const std::byte*>(memory.In(bits))
                            : reinterpret_cast<const std::byte*>(memory.In(x));
  if (!memory.ok()) return;
  const auto run = [&](int64_t first, int64_t count, int kv_heads) {
    const int64_t from = first * kRowHeads * head_dim * (is_bf16 ? 2 : 4);
    const device::HeadSquaresArgs args = {.qkv = qkv + from,
                                          .qkv_type = type,
                                          .rows = count,
                                          .row_heads = kRowHeads,
                                          .num_heads = kHeads,
                                          .num_kv_heads = kv_heads,
                                          .head_dim = head_dim,
                                          .q = memory.Out<float>(count * kHeads),
                                          .k = memory.Out<float>(count * kKvHeads)};
    memory.Launch(&DeviceKernels::head_squares, args);
    return std::pair(memory.Read<float>(args.q, count * kHeads),
                     memory.Read<float>(args.k, count * kv_heads));
  };
  const auto [q, k] = run(0, rows, kGivenKvHeads);
  for (int64_t row = 0; row < rows; ++row) {
    for (int head = 0; head < kHeads + kGivenKvHeads; ++head) {
      double sum = 0;
      for (int i = 0; i < head_dim; ++i) {
        const double value = x[static_cast<size_t>((row * kRowHeads + head) * head_dim + i)];
        sum += value * value;
      }
      const float got = head < kHeads ? q[static_cast<size_t>(row * kHeads + head)]
                                      : k[static_cast<size_t>(row * kGivenKvHeads + head - kHeads)];
      comparison.AddF32(got, sum, sum * Gamma(head_dim));
    }
  }
  comparison.SetSubject("a row alone, without keys");
  const auto [alone, none] = run(rows - 1, 1, 0);
  for (size_t i = 0; i < alone.size(); ++i)
    comparison.AddF32(alone[i], q[static_cast<size_t>((rows - 1) * kHeads) + i], 0);
  comparison.SetSubject("");
}

}  // namespace

void CheckRope(CheckRun& run) {
  for (const int head_dim : {32, 64, 128, 256, 512}) {
    for (const float amplitude : {1.0f, 1.19f}) {
      if (amplitude != 1 && head_dim != 64) continue;
      run.Case("rope_table",
               fmt::format("11 positions, heads of {}, times {}", head_dim, amplitude),
               [&](CaseMemory& memory, Comparison& comparison) {
                 CheckRopeTable(memory, comparison, head_dim, amplitude);
               });
    }
  }
  for (const int head_dim : {32, 72, 256}) {
    run.Case("rope_table", fmt::format("5 positions on 3 axes, heads of {}", head_dim),
             [&](CaseMemory& memory, Comparison& comparison) {
               CheckAxialRopeTable(memory, comparison, head_dim);
             });
  }
  std::vector<int64_t> row_counts = {1, 6};
  if (run.with_large_shapes()) row_counts.push_back(257);
  for (const int head_dim : {32, 40, 128, 256, 512}) {
    run.Case("head_squares", fmt::format("{} rows, heads of {}", row_counts.back(), head_dim),
             [&](CaseMemory& memory, Comparison& comparison) {
               for (const ElementType type : {ElementType::kF32, ElementType::kBF16})
                 CheckHeadSquares(memory, comparison, row_counts.back(), head_dim, type);
             });
  }
  for (const RopeModel& model : kModels) {
    for (const int head_dim : {16, 32, 40, 64, 128, 256, 512}) {
      for (const int64_t rows : row_counts) {
        // All types of projections and of the cache.
        run.Case("rope_append",
                 fmt::format("{} rows, {} + {} heads of {}, {}", rows, model.num_heads,
                             model.num_kv_heads, head_dim, model.name),
                 [&](CaseMemory& memory, Comparison& comparison) {
                   for (const ElementType qkv_type : {ElementType::kF32, ElementType::kBF16}) {
                     CheckRopeAppend<uint16_t>(memory, comparison,
                                               {model, head_dim, 4, qkv_type, ElementType::kBF16},
                                               rows);
                     CheckRopeAppend<uint8_t>(memory, comparison,
                                              {model, head_dim, 16, qkv_type, ElementType::kF8E4M3},
                                              rows);
                   }
                 });
      }
    }
  }
}

}  // namespace sluice::checks
