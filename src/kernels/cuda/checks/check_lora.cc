// Checks the contributions of adapters against exact sums and against the CPU's operator, for steps
// whose rows use different adapters or none.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/integer.h"
#include "base/thread_pool.h"
#include "kernels/cuda/checks/check_run.h"
#include "kernels/cuda/checks/test_numbers.h"
#include "kernels/cuda/checks/tolerances.h"
#include "kernels/lora.h"
#include "tensor/float8.h"

namespace sluice::checks {
namespace {

using device::AddLoraArgs;
using device::DeviceKernels;

struct LoraShape {
  int64_t rows, cols;
  std::vector<int64_t> outputs;  // per module
  std::vector<int> ranks;        // per adapter slot
  ElementType x_type = ElementType::kBF16, y_type = ElementType::kF32;
  int64_t gap = 0;  // elements before the first module's results, and between the rows of y
  int64_t experts = 1;
  int top_k = 1;
  bool is_embedding = false;

  std::string Text() const {
    const auto name = [](ElementType type) {
      return type == ElementType::kF32 ? "f32" : type == ElementType::kBF16 ? "bf16" : "fp8";
    };
    std::string text = fmt::format("{} x {} to ", rows, cols);
    for (const int64_t output : outputs) text += fmt::format("{} ", output);
    text += "of rank";
    for (const int rank : ranks) text += fmt::format(" {}", rank);
    if (experts > 1) text += fmt::format(", {} of {} experts", top_k, experts);
    return fmt::format("{}, {} {}", text, is_embedding ? "tokens" : name(x_type), name(y_type));
  }
};

// All data of a case, on the host and on the device.
class LoraCase {
 public:
  LoraCase(CaseMemory& memory, const LoraShape& shape, bool is_exact)
      : memory_(memory), shape_(shape), is_exact_(is_exact), numbers_(81) {
    for (const int64_t output : shape.outputs) width_ += output;
    y_stride_ = width_ + 2 * shape.gap;
    max_rank_ = *std::max_element(shape.ranks.begin(), shape.ranks.end());
    MakeFactors();
    MakeRows();
  }

  void Check(Comparison& comparison) {
    const std::vector<float> got = Run(0, num_inputs());
    CompareAll(comparison, got);
    const auto compare_alone = [&](const char* what, int64_t first, int64_t count) {
      comparison.SetSubject(what);
      const std::vector<float> part = Run(first, count);
      for (size_t i = 0; i < part.size(); ++i)
        comparison.AddF32(part[i], got[static_cast<size_t>(first * y_stride_) + i], 0);
    };
    // With experts, all pairs are needed, because they are ordered across the whole step.
    if (shape_.experts > 1) return;
    compare_alone("a part of the rows", shape_.rows / 3, (shape_.rows + 1) / 2);
    for (int64_t row = 0; row < std::min<int64_t>(shape_.rows, 6); ++row)
      compare_alone("a row alone", row, 1);
  }

 private:
  int64_t num_inputs() const { return shape_.rows * shape_.top_k; }
  int64_t num_slots() const { return static_cast<int64_t>(shape_.ranks.size()); }
  int64_t num_modules() const { return static_cast<int64_t>(shape_.outputs.size()); }

  // Returns numbers that BF16 represents exactly.
  std::vector<float> Bf16Numbers(int64_t count, int64_t largest) {
    std::vector<float> values =
        is_exact_ ? numbers_.Integers(count, largest) : numbers_.Normals(count);
    for (float& value : values) value = FromBf16Bits(ToBFloat16(value).bits);
    return values;
  }

  // Makes the factors A and B of each (slot, expert, module). Elements that kernels must not read
  // are NaN.
  void MakeFactors() {
    for (const int64_t output : shape_.outputs) {
      a_offsets_.push_back(expert_numbers_);
      expert_numbers_ += RoundUp(max_rank_ * shape_.cols, int64_t{32});
      b_offsets_.push_back(expert_numbers_);
      expert_numbers_ += RoundUp(max_rank_ * output, int64_t{32});
    }
    factors_.assign(static_cast<size_t>(num_slots() * shape_.experts * num_modules()), {0, 0});
    constexpr uint16_t kNaN = 0x7FC0;
    std::vector<uint16_t> all(static_cast<size_t>(num_slots() * shape_.experts * expert_numbers_),
                              kNaN);
    values_.resize(all.size());
    for (int64_t slot = 0; slot < num_slots(); ++slot) {
      for (int64_t expert = 0; expert < shape_.experts; ++expert) {
        for (int64_t i = 0; i < num_modules(); ++i) {
          // Some modules of an adapter have no factors.
          const bool has_none = num_modules() > 1 && i == slot % (num_modules() + 1);
          const int64_t rank = has_none ? 0 : shape_.ranks[static_cast<size_t>(slot)];
          FactorOf(slot, expert, i) = {static_cast<int32_t>(rank), numbers_.PowerOfTwo(-2, 1)};
          const int64_t first = (slot * shape_.experts + expert) * expert_numbers_;
          const auto put = [&](int64_t offset, const std::vector<float>& values) {
            for (size_t k = 0; k < values.size(); ++k) {
              const auto at = static_cast<size_t>(first + offset) + k;
              values_[at] = values[k];
              all[at] = ToBFloat16(values[k]).bits;
            }
          };
          const auto index = static_cast<size_t>(i);
          put(a_offsets_[index], Bf16Numbers(rank * shape_.cols, 2));
          put(b_offsets_[index], Bf16Numbers(rank * shape_.outputs[index], 2));
        }
      }
    }
    device_numbers_ = memory_.In(all);
    device_factors_ = memory_.In(factors_);
  }

  device::LoraFactor& FactorOf(int64_t slot, int64_t expert, int64_t module) {
    return factors_[static_cast<size_t>((slot * shape_.experts + expert) * num_modules() + module)];
  }

  void MakeRows() {
    for (int64_t row = 0; row < shape_.rows; ++row) {
      // Some adapters apply to runs of rows, as in prompts, and some to single rows.
      const bool goes_on = row % 7 > 2 && row > 1;
      slots_.push_back(goes_on ? slots_.back()
                               : static_cast<int32_t>(numbers_.Integer(-1, num_slots() - 1)));
    }
    slots_[0] = 0;
    if (shape_.rows > 1) slots_[1] = -1;
    for (int64_t pair = 0; pair < num_inputs(); ++pair) {
      order_.push_back(static_cast<int32_t>(pair));
      chosen_.push_back(static_cast<int32_t>(numbers_.Integer(0, shape_.experts - 1)));
    }
    std::stable_sort(order_.begin(), order_.end(), [this](int32_t a, int32_t b) {
      return chosen_[static_cast<size_t>(a)] < chosen_[static_cast<size_t>(b)];
    });
    for (int64_t row = 0; row < shape_.rows; ++row)
      tokens_.push_back(static_cast<int32_t>(numbers_.Integer(0, shape_.cols - 1)));
    x_ = Bf16Numbers(num_inputs() * shape_.cols, 3);
    if (shape_.x_type == ElementType::kF32 && !is_exact_) x_ = numbers_.Normals(std::ssize(x_));
    for (int64_t row = 0; row < num_inputs(); ++row) {
      scales_.push_back(shape_.x_type == ElementType::kF8E4M3 ? numbers_.PowerOfTwo(-1, 1) : 1.0f);
    }
    std::vector<uint8_t> codes;
    for (float& value : x_) {
      if (shape_.x_type != ElementType::kF8E4M3) break;
      codes.push_back(ToFloat8E4M3(value).bits);
      value = ToFloat(Float8E4M3{codes.back()});
    }
    if (shape_.x_type == ElementType::kF8E4M3)
      device_x_ = memory_.In(codes);
    else if (shape_.x_type == ElementType::kBF16)
      device_x_ = memory_.In(ToBf16Bits(x_));
    else
      device_x_ = memory_.In(x_);
    device_scales_ = shape_.x_type == ElementType::kF8E4M3 ? memory_.In(scales_) : nullptr;
    y_ = Bf16Numbers(num_inputs() * y_stride_, 50);
  }

  // Returns y for rows [first, first + count) of the inputs.
  std::vector<float> Run(int64_t first, int64_t count) {
    AddLoraArgs args = {};
    const int64_t x_bytes = BitsPerElement(shape_.x_type) / 8;
    if (device_x_ != nullptr)
      args.x = static_cast<const std::byte*>(device_x_) + first * shape_.cols * x_bytes;
    args.x_type = shape_.x_type;
    args.x_scales = device_scales_ == nullptr ? nullptr : device_scales_ + first;
    args.cols = shape_.cols;
    args.y_type = shape_.y_type;
    args.y_stride = y_stride_;
    args.scale = shape_.is_embedding ? 4 : 1;
    args.num_modules = static_cast<int>(num_modules());
    int64_t first_col = shape_.gap;
    for (int64_t i = 0; i < num_modules() && memory_.ok(); ++i) {
      const auto index = static_cast<size_t>(i);
      args.modules[i] = {device_numbers_ + a_offsets_[index], device_numbers_ + b_offsets_[index],
                         device_factors_ + i, first_col, shape_.outputs[index]};
      first_col += shape_.outputs[index];
    }
    args.expert_bytes = expert_numbers_ * 2;
    args.slot_bytes = args.expert_bytes * shape_.experts;
    args.expert_factors = num_modules();
    args.slot_factors = args.expert_factors * shape_.experts;
    args.max_rank = max_rank_;
    args.h = memory_.Out<float>(count * num_modules() * max_rank_);
    if (shape_.is_embedding) args.tokens = memory_.In(tokens_) + first;
    std::vector<device::LoraTile> tiles;
    std::vector<int32_t> rows;
    if (shape_.experts > 1) {
      args.num_tiles = count;
      args.slots = memory_.In(slots_);
      args.order = memory_.In(order_);
      args.chosen = memory_.In(chosen_);
      args.top_k = shape_.top_k;
    } else {
      MakeTiles(tiles, rows);
      args.num_tiles = std::ssize(tiles);
      args.tiles = memory_.In(tiles);
      args.rows = memory_.In(rows);
      args.first_row = first;
      args.num_rows = count;
    }
    const std::vector<float> part(y_.begin() + first * y_stride_,
                                  y_.begin() + (first + count) * y_stride_);
    if (shape_.y_type == ElementType::kF32) {
      float* const y = memory_.InOut(part);
      args.y = y;
      memory_.Launch(&DeviceKernels::add_lora, args);
      return memory_.Read<float>(y, std::ssize(part));
    }
    uint16_t* const y = memory_.InOut(ToBf16Bits(part));
    args.y = y;
    memory_.Launch(&DeviceKernels::add_lora, args);
    std::vector<float> got;
    for (const uint16_t bits : memory_.Read<uint16_t>(y, std::ssize(part)))
      got.push_back(FromBf16Bits(bits));
    return got;
  }

  void MakeTiles(std::vector<device::LoraTile>& tiles, std::vector<int32_t>& rows) const {
    for (int32_t slot = 0; slot < num_slots(); ++slot) {
      int32_t in_tile = device::kLoraRows;
      for (int32_t row = 0; row < shape_.rows; ++row) {
        if (slots_[static_cast<size_t>(row)] != slot) continue;
        if (in_tile == device::kLoraRows) {
          tiles.push_back({slot, static_cast<int32_t>(rows.size()), 0});
          in_tile = 0;
        }
        rows.push_back(row);
        tiles.back().count = ++in_tile;
      }
    }
  }

  // A sum, and the sum of the magnitudes of its terms.
  struct Sum {
    double value = 0, size = 0;
  };
  // Returns x A^T for a row of x, with the row's scale.
  std::vector<Sum> Shrunk(int64_t input, const float* a, int64_t rank) const {
    std::vector<Sum> sums(static_cast<size_t>(rank));
    const double scale = shape_.is_embedding ? 4 : scales_[static_cast<size_t>(input)];
    for (int64_t j = 0; j < rank; ++j) {
      Sum& sum = sums[static_cast<size_t>(j)];
      if (shape_.is_embedding) {
        sum.value = scale * a[tokens_[static_cast<size_t>(input)] * rank + j];
        sum.size = std::abs(sum.value);
        continue;
      }
      for (int64_t k = 0; k < shape_.cols; ++k) {
        const double product = static_cast<double>(a[j * shape_.cols + k]) *
                               x_[static_cast<size_t>(input * shape_.cols + k)];
        sum.value += scale * product;
        sum.size += scale * std::abs(product);
      }
    }
    return sums;
  }

  void CompareAll(Comparison& comparison, const std::vector<float>& got) {
    // The error bound includes the roundings of these additions: a thread adds vectors of 8 one by
    // one, then lanes and warps are added; then the ranks, three scales, and y.
    const int64_t vectors = CeilDiv(shape_.cols, int64_t{8});
    const int64_t threads = std::min<int64_t>(256, RoundUp(vectors, int64_t{32}));
    const double depth =
        static_cast<double>(8 * CeilDiv(vectors, threads) + 5 + threads / 32 + max_rank_ + 5);
    for (int64_t input = 0; input < num_inputs(); ++input) {
      const int64_t pair = order_[static_cast<size_t>(input)];
      const int64_t slot = slots_[static_cast<size_t>(pair / shape_.top_k)];
      const int64_t expert = chosen_[static_cast<size_t>(pair)];
      const auto at = [&](int64_t col) { return static_cast<size_t>(input * y_stride_ + col); };
      const auto expect_same = [&](int64_t begin, int64_t end) {
        comparison.SetSubject("without an adapter");
        for (int64_t col = begin; col < end; ++col) comparison.AddF32(got[at(col)], y_[at(col)], 0);
      };
      expect_same(0, shape_.gap);
      int64_t first_col = shape_.gap;
      for (int64_t module = 0; module < num_modules(); ++module) {
        const auto index = static_cast<size_t>(module);
        const int64_t outputs = shape_.outputs[index];
        const device::LoraFactor factor =
            slot < 0 ? device::LoraFactor{} : FactorOf(slot, expert, module);
        if (factor.rank == 0) {
          expect_same(first_col, first_col + outputs);
          first_col += outputs;
          continue;
        }
        const float* const first =
            values_.data() + (slot * shape_.experts + expert) * expert_numbers_;
        const std::vector<Sum> h = Shrunk(input, first + a_offsets_[index], factor.rank);
        comparison.SetSubject("sums");
        for (int64_t n = 0; n < outputs; ++n) {
          Sum sum;
          for (int64_t j = 0; j < factor.rank; ++j) {
            const double b = first[b_offsets_[index] + j * outputs + n];
            sum.value += h[static_cast<size_t>(j)].value * b;
            sum.size += h[static_cast<size_t>(j)].size * std::abs(b);
          }
          const float y = y_[at(first_col + n)], result = got[at(first_col + n)];
          const double expected = y + sum.value * factor.scale;
          const double error =
              is_exact_ ? 0 : (sum.size * factor.scale + std::abs(y)) * Gamma(depth);
          if (shape_.y_type == ElementType::kF32)
            comparison.AddF32(result, expected, error);
          else
            comparison.AddBf16(ToBFloat16(result).bits, expected, error);
        }
        first_col += outputs;
      }
      expect_same(first_col, y_stride_);
    }
    if (shape_.experts == 1 && shape_.y_type == ElementType::kF32 && is_exact_ &&
        shape_.x_type != ElementType::kF8E4M3)
      CompareWithCpu(comparison, got);
  }

  // REQUIRES: integers, whose sums are exact in any order.
  void CompareWithCpu(Comparison& comparison, const std::vector<float>& got) {
    comparison.SetSubject("the CPU's operator");
    std::vector<std::vector<int32_t>> rows(shape_.ranks.size());
    for (int32_t row = 0; row < shape_.rows; ++row) {
      if (slots_[static_cast<size_t>(row)] >= 0)
        rows[static_cast<size_t>(slots_[static_cast<size_t>(row)])].push_back(row);
    }
    std::vector<std::vector<float>> packed;
    std::vector<std::vector<kernels::LoraFactors>> modules(rows.size());
    std::vector<kernels::LoraGroup> groups;
    constexpr ElementType kF32 = ElementType::kF32;
    const auto bytes = [](const std::vector<float>& values) {
      return reinterpret_cast<const std::byte*>(values.data());
    };
    for (int64_t slot = 0; slot < num_slots(); ++slot) {
      int64_t first_col = shape_.gap;
      for (int64_t i = 0; i < num_modules(); ++i) {
        const auto index = static_cast<size_t>(i);
        const device::LoraFactor& factor = FactorOf(slot, 0, i);
        const int64_t rank = factor.rank, outputs = shape_.outputs[index];
        const float* const first = values_.data() + slot * expert_numbers_;
        const std::vector<float> a(first + a_offsets_[index],
                                   first + a_offsets_[index] + rank * shape_.cols);
        std::vector<float> b;
        for (int64_t n = 0; n < outputs; ++n) {
          for (int64_t j = 0; j < rank; ++j)
            b.push_back(first[b_offsets_[index] + j * outputs + n]);
        }
        std::vector<float>& a_packed = packed.emplace_back(
            static_cast<size_t>(kernels::LoraABytes(rank, shape_.cols, kF32) / 4 + 1));
        if (shape_.is_embedding)
          std::copy(a.begin(), a.end(), a_packed.begin());
        else
          kernels::PackLoraA(bytes(a), kF32, rank, shape_.cols, kF32, a_packed.data());
        std::vector<float>& b_packed = packed.emplace_back(
            static_cast<size_t>(kernels::LoraBBytes(rank, outputs, kF32) / 4 + 1));
        kernels::PackLoraB(bytes(b), kF32, outputs, rank, kF32, b_packed.data());
        modules[static_cast<size_t>(slot)].push_back(
            {.a = packed[packed.size() - 2].data(),
             .b = packed.back().data(),
             .rank = rank,
             .scale = factor.scale * (shape_.is_embedding ? 4 : 1),
             .first_col = first_col,
             .rows = outputs});
        first_col += outputs;
      }
      if (!rows[static_cast<size_t>(slot)].empty()) {
        groups.push_back({rows[static_cast<size_t>(slot)], modules[static_cast<size_t>(slot)]});
      }
    }
    ThreadPool pool(1);
    std::vector<float> y = y_;
    std::vector<float> scratch(static_cast<size_t>(kernels::LoraScratchSize(
        shape_.rows, num_modules() * RoundUp(int64_t{max_rank_}, kernels::kLoraTile))));
    if (shape_.is_embedding) {
      kernels::AddLoraEmbedding(pool, tokens_, groups, kF32, scratch.data(), y.data(), y_stride_);
    } else {
      kernels::AddLora(pool,
                       {.data = x_.data(),
                        .type = kF32,
                        .rows = shape_.rows,
                        .cols = shape_.cols,
                        .stride = shape_.cols},
                       groups, kF32, /*first_row=*/0, scratch.data(), y.data(), y_stride_);
    }
    for (size_t i = 0; i < y.size(); ++i) comparison.AddF32(got[i], y[i], 0);
  }

  CaseMemory& memory_;
  const LoraShape& shape_;
  bool is_exact_;
  TestNumbers numbers_;
  int64_t width_ = 0, y_stride_ = 0, expert_numbers_ = 0;
  int max_rank_ = 0;
  std::vector<int64_t> a_offsets_, b_offsets_;  // offsets of each module's A and B in values_[slot,
                                                // expert]
  std::vector<device::LoraFactor> factors_;     // [slots, experts, modules]
  std::vector<float> values_;                   // [slots, experts, numbers]
  std::vector<int32_t> slots_, order_, chosen_, tokens_;
  std::vector<float> x_, scales_, y_;
  const uint16_t* device_numbers_ = nullptr;
  const device::LoraFactor* device_factors_ = nullptr;
  const void* device_x_ = nullptr;
  const float* device_scales_ = nullptr;
};

}  // namespace

void CheckLora(CheckRun& run) {
  constexpr ElementType kF32 = ElementType::kF32, kBF16 = ElementType::kBF16,
                        kF8 = ElementType::kF8E4M3;
  std::vector<LoraShape> shapes = {
      {.rows = 9, .cols = 64, .outputs = {64, 16, 16}, .ranks = {8, 3, 16}, .y_type = kBF16},
      {.rows = 6, .cols = 96, .outputs = {520}, .ranks = {4, 1}},
      {.rows = 5,
       .cols = 32,
       .outputs = {24, 24},
       .ranks = {5, 2},
       .x_type = kF32,
       .experts = 4,
       .top_k = 2},
      {.rows = 7, .cols = 50, .outputs = {64}, .ranks = {4, 6, 1}, .is_embedding = true},
      {.rows = 8, .cols = 128, .outputs = {40}, .ranks = {2, 8}, .x_type = kF8},
      {.rows = 7, .cols = 37, .outputs = {19, 5}, .ranks = {1, 7}, .x_type = kF32, .gap = 3},
      {.rows = 7, .cols = 37, .outputs = {19, 5}, .ranks = {1, 7}, .x_type = kF8, .gap = 3},
      {.rows = 40, .cols = 2056, .outputs = {24}, .ranks = {16, 2, 1, 3, 5}, .y_type = kBF16},
      {.rows = 11, .cols = 40, .outputs = {1032, 1024, 8}, .ranks = {64}, .gap = 8},
      {.rows = 6,
       .cols = 40,
       .outputs = {16},
       .ranks = {2},
       .y_type = kBF16,
       .experts = 6,
       .top_k = 3},
      {.rows = 1, .cols = 8, .outputs = {8}, .ranks = {1}}};
  if (!run.with_all_shapes()) shapes.resize(5);
  if (run.with_large_shapes()) {
    shapes.push_back({.rows = 64,
                      .cols = 4096,
                      .outputs = {4096, 1024, 1024},
                      .ranks = {16, 16, 64, 8},
                      .y_type = kBF16});
    shapes.push_back({.rows = 32, .cols = 14336, .outputs = {4096}, .ranks = {16, 256}});
  }
  for (const LoraShape& shape : shapes) {
    for (const bool is_exact : {true, false}) {
      run.Case("add_lora", fmt::format("{} {}", shape.Text(), is_exact ? "integers" : "normal"),
               [&](CaseMemory& memory, Comparison& comparison) {
                 LoraCase(memory, shape, is_exact).Check(comparison);
               });
    }
  }
}

}  // namespace sluice::checks
