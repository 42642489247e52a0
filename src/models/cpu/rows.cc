// Operators on whole rows: embeddings, norms, sums, copies, gates, results.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/activation.h"
#include "kernels/block_maxima.h"
#include "kernels/clamped_swiglu.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/gelu_mul.h"
#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"
#include "models/cpu/walk.h"
#include "models/encoder/encoder_classifier.h"
#include "models/score_head.h"
#include "tensor/bfloat16.h"

namespace sluice {
namespace {

using program::kNone;

constexpr int64_t kNumberGrain = 4096;
// Message that is sent instead of rows if a step has no rows left.
constexpr char kDone = 1;

void ConvertRow(const float* x, int64_t count, std::byte* y, ElementType type) {
  if (type == ElementType::kF32) {
    std::copy(x, x + count, reinterpret_cast<float*>(y));
    return;
  }
  auto* const out = reinterpret_cast<BFloat16*>(y);
  for (int64_t i = 0; i < count; ++i) out[i] = ToBFloat16(x[i]);
}

// Converts F32 elements to the type that the next product reads.
void ConvertNumbers(ThreadPool& pool, const float* x, int64_t count, std::byte* y,
                    ElementType type) {
  const int64_t bytes = BitsPerElement(type) / 8;
  pool.ParallelFor(count, kNumberGrain, [&](int64_t begin, int64_t end) {
    ConvertRow(x + begin, end - begin, y + begin * bytes, type);
  });
}

void MoveRow(std::byte* data, int64_t from, int64_t to, int64_t stride, int64_t bytes) {
  if (from != to)
    std::memmove(data + to * stride, data + from * stride, static_cast<size_t>(bytes));
}

}  // namespace

void CpuWalk::operator()(const program::Embed& op) {
  std::span<const int32_t> tokens = step_.input.tokens;
  std::vector<int32_t> replaced;
  if (op.placeholders[0] >= 0) {
    replaced.assign(tokens.begin(), tokens.end());
    for (const int32_t placeholder : op.placeholders)
      std::replace(replaced.begin(), replaced.end(), placeholder, 0);
    tokens = replaced;
  }
  const kernels::PackedMatrix& table = *program_.tables[static_cast<size_t>(op.table)];
  float* const out = F32At(op.out, op.width);
  const std::span<const int32_t> own =
      ranks_ == nullptr ? tokens : ranks_->OwnTokens(tokens, op.vocab);
  kernels::Embedding(pool_, table, own, out);
  if (op.scale != 1) {
    pool_.ParallelFor(std::ssize(own) * op.width, kNumberGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] *= op.scale;
    });
  }
  if (ranks_ != nullptr) {
    ranks_->GatherEmbeddings(pool_, tokens, op.vocab, op.width, out, F32At(op.scratch, op.width),
                             out);
  }
  if (step_.lora != nullptr) {
    step_.lora->ReplaceEmbedding(pool_, tokens, op.scale, out, op.width);
    step_.lora->AddEmbedding(pool_, op.lora, tokens, op.scale, out, op.width);
  }
}

void CpuWalk::AddPositionsOf(const program::AddEmbeddings& op, float* x) const {
  const std::vector<float>& table = VectorOf(op.positions);
  // The positions of requests are within the table. The positions of a step that only measures may
  // exceed it.
  const int64_t last = std::ssize(table) / op.width - 1;
  pool_.ParallelFor(rows_, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t place =
          std::min(step_.input.positions[static_cast<size_t>(row)] + op.first_position, last);
      const float* const position = table.data() + place * op.width;
      for (int64_t i = 0; i < op.width; ++i) x[row * op.width + i] += position[i];
    }
  });
}

void CpuWalk::operator()(const program::AddEmbeddings& op) {
  const StepInput& input = step_.input;
  float* const x = F32At(op.x, op.width);
  if (op.type_table == kNone) return AddPositionsOf(op, x);
  auto* const types = reinterpret_cast<int8_t*>(At(op.types, 1));
  std::fill_n(types, input.tokens.size(), int8_t{0});
  for (size_t i = 0; i < input.second_texts.size(); ++i) {
    const kernels::AttentionSlice& slice = input.slices[i];
    const int64_t first = std::min<int64_t>(input.second_texts[i], slice.num_tokens);
    CHECK(first == slice.num_tokens || op.num_types > 1);
    std::fill(types + slice.first_row + first, types + slice.first_row + slice.num_tokens,
              int8_t{1});
  }
  const float* const type_table = Vector(op.type_table);
  const float* const positions = Vector(op.positions);
  pool_.ParallelFor(rows_, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const out = x + row * op.width;
      const float* const type = type_table + types[row] * op.width;
      if (positions == nullptr) {
        for (int64_t i = 0; i < op.width; ++i) out[i] += type[i];
        continue;
      }
      const int64_t place = input.positions[static_cast<size_t>(row)] + op.first_position;
      const float* const position = positions + place * op.width;
      for (int64_t i = 0; i < op.width; ++i) out[i] += position[i] + type[i];
    }
  });
}

void CpuWalk::operator()(const program::RopeTable& op) {
  const std::vector<float>& frequencies = program_.rope_tables[static_cast<size_t>(op.table)];
  if (op.axes != kNone && !step_.input.rope_positions.empty()) {
    return kernels::AxialRopeTable(pool_, step_.input.rope_positions, rows_, frequencies,
                                   program_.rope_axes[static_cast<size_t>(op.axes)],
                                   F32At(op.out, 2 * std::ssize(frequencies)), op.amplitude);
  }
  kernels::RopeTable(pool_, step_.input.positions, frequencies,
                     F32At(op.out, 2 * std::ssize(frequencies)), op.amplitude);
}

void CpuWalk::operator()(const program::Receive& op) {
  Communicator& all = *executor_.surroundings_.all;
  const int from = RankOf(op.from_stage);
  if (rows_ > 0) {
    return all.Receive(F32At(op.out, op.width), rows_ * op.width * int64_t{sizeof(float)}, from);
  }
  char done = 0;
  all.Receive(&done, sizeof(done), from);
}

void CpuWalk::operator()(const program::Send& op) {
  Communicator& all = *executor_.surroundings_.all;
  const int to = RankOf((place_.stage + 1) % place_.num_stages);
  if (rows_ == 0) return all.Post(&kDone, sizeof(kDone), to);
  // Only the last stage may send fewer rows than the step has: only the rows with results.
  all.Post(F32At(op.x, op.width), rows_ * op.width * int64_t{sizeof(float)}, to);
}

void CpuWalk::operator()(const program::Progress& /*op*/) {
  executor_.surroundings_.all->Progress();
}

void CpuWalk::operator()(const program::Norm& op) {
  float* const residual = F32At(op.residual, op.width);
  const float* const delta = F32At(op.delta, op.width);
  const int64_t rows = CountOf(op.residual);
  const int64_t out_bytes = op.width * BitsPerElement(op.type) / 8;
  std::byte* const out = At(op.out, out_bytes);
  if (op.weight == kNone) {
    if (delta != nullptr) kernels::ResidualAdd(pool_, residual, delta, rows * op.width);
    return ConvertNumbers(pool_, residual, rows * op.width, out, op.type);
  }
  ForEachWeight(op.weight, rows, [&](const auto& weight, int64_t begin, int64_t count) {
    float* const x = residual + begin * op.width;
    std::byte* const y = out + begin * out_bytes;
    if (delta != nullptr) {
      kernels::AddRmsNorm(pool_, x, delta + begin * op.width, weight.data(),
                          program_.norm_eps * op.eps_factor, count, op.width, y, op.type);
    } else {
      kernels::RmsNorm(pool_, x, op.width, weight.data(), program_.norm_eps * op.eps_factor, count,
                       op.width, y, op.type);
    }
  });
}

void CpuWalk::operator()(const program::LayerNorm& op) {
  float* const residual = F32At(op.residual, op.width);
  const float* const delta = F32At(op.delta, op.width);
  const int64_t count = rows_ * op.width;
  if (delta != nullptr) kernels::ResidualAdd(pool_, residual, delta, count);
  float* x = residual;
  if (!op.keeps_norm) {
    x = F32At(op.scratch, op.width);
    pool_.ParallelFor(count, kNumberGrain, [&](int64_t begin, int64_t end) {
      std::copy(residual + begin, residual + end, x + begin);
    });
  }
  kernels::LayerNorm(pool_, x, Vector(op.weight), Vector(op.bias),
                     op.eps.value_or(program_.norm_eps), rows_, op.width,
                     At(op.out, op.width * BitsPerElement(op.type) / 8), op.type);
}

void CpuWalk::operator()(const program::NormRows& op) {
  const int64_t stride = op.heads * op.width;
  float* const x = F32At(op.x, stride);
  ForEachWeight(op.weight, CountOf(op.x), [&](const auto& weight, int64_t begin, int64_t count) {
    kernels::HeadRmsNorm(pool_, x + begin * stride, stride, weight.data(),
                         op.eps.value_or(program_.norm_eps), count, static_cast<int>(op.heads),
                         static_cast<int>(op.width));
  });
}

void CpuWalk::operator()(const program::Scale& op) {
  const int64_t stride = op.stride == 0 ? op.width : op.stride;
  float* const x = F32At(op.x, stride);
  const float factor = op.vector == kNone ? op.factor : VectorOf(op.vector).front();
  if (stride != op.width) {
    return pool_.ParallelFor(CountOf(op.x), 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t i = 0; i < op.width; ++i) x[row * stride + i] *= factor;
      }
    });
  }
  pool_.ParallelFor(CountOf(op.x) * op.width, kNumberGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] *= factor;
  });
}

void CpuWalk::operator()(const program::Add& op) {
  kernels::ResidualAdd(pool_, F32At(op.x, op.width), F32At(op.y, op.width),
                       CountOf(op.x) * op.width);
}

void CpuWalk::operator()(const program::Mix& op) {
  float* const x = F32At(op.x, op.width);
  const float* const y = F32At(op.y, op.width);
  pool_.ParallelFor(CountOf(op.x) * op.width, kNumberGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = (y[i] + x[i] * op.x_factor) * op.sum_factor;
  });
}

void CpuWalk::CopyColumnsOf(const float* from, int64_t from_stride, int64_t width, int64_t rows,
                            float* to, int64_t to_stride) const {
  pool_.ParallelFor(rows, /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::copy_n(from + row * from_stride, width, to + row * to_stride);
  });
}

void CpuWalk::operator()(const program::CopyColumns& op) {
  CopyColumnsOf(F32At(op.from), op.from.stride, op.width, CountOf(op.from.buffer), F32At(op.to),
                op.to.stride);
}

void CpuWalk::operator()(const program::TakeHidden& op) {
  ConvertNumbers(pool_, step_.input.hidden.data(), rows_ * op.width,
                 At(op.out, op.width * BitsPerElement(op.type) / 8), op.type);
}

void CpuWalk::operator()(const program::JoinNorms& op) {
  const int64_t bytes = op.width * BitsPerElement(op.type) / 8;
  std::byte* const out = At(op.out, 2 * bytes);
  const auto join = [&](BufferId from, program::VectorId weight, std::byte* to) {
    const float* const x = F32At(from, op.width);
    if (weight != kNone) {
      return kernels::GroupRmsNorm(pool_, x, op.width, Vector(weight), program_.norm_eps, rows_,
                                   /*groups=*/1, op.width, to, 2 * op.width, op.type);
    }
    pool_.ParallelFor(rows_, /*grain=*/16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        ConvertRow(x + row * op.width, op.width, to + row * 2 * bytes, op.type);
    });
  };
  join(op.x, op.x_weight, out);
  join(op.y, op.y_weight, out + bytes);
}

void CpuWalk::operator()(const program::HandRows& op) {
  if (step_.input.handed.empty() || place_.rank() != 0) return;
  CHECK_LE(rows_ * op.stride, std::ssize(step_.input.handed));
  CopyColumnsOf(F32At(op.x, op.width), op.width, op.width, rows_,
                step_.input.handed.data() + op.begin, op.stride);
}

void CpuWalk::operator()(const program::KeepRows& op) {
  const std::span<const int32_t> wanted = step_.input.logit_rows;
  if (step_.lora != nullptr) step_.lora->KeepRows(wanted);
  for (const program::KeepRows::Kept& kept : op.kept) {
    if (kept.columns.buffer == kNone) continue;
    std::byte* const data = At(kept.columns, 1);
    // In ascending order, so that no row is overwritten before it has moved.
    for (size_t i = 0; i < wanted.size(); ++i) {
      MoveRow(data, wanted[i], static_cast<int64_t>(i), kept.columns.stride, kept.bytes);
    }
  }
  rows_ = std::ssize(wanted);
}

void CpuWalk::operator()(const program::Gather& op) {
  using Cut = program::Gather::Cut;
  const int64_t rows = CountOf(op.own);
  const std::byte* const own = At(op.own, 0);
  std::byte* const all = At(op.all, 0);
  switch (op.cut) {
    case Cut::kRows: return ranks_->GatherRowsOf(pool_, op.count, op.type, rows, own, all);
    case Cut::kHeads:
      ranks_->EnterLayer(op.count);
      return ranks_->GatherHeads(pool_, op.type, rows, own, all);
    case Cut::kMixer:
      ranks_->EnterLayer(op.count);
      return ranks_->GatherMixed(pool_, op.type, rows, own, all);
    case Cut::kLogits:
      return ranks_->GatherLogits(pool_, rows, reinterpret_cast<const float*>(own),
                                  reinterpret_cast<float*>(all));
  }
}

void CpuWalk::operator()(const program::GateMul& op) {
  float* const x = F32At(op.x, 0);
  std::byte* const y = At(op.y, 0);
  const int64_t rows = CountOf(op.x);
  switch (op.gate) {
    case program::Gate::kSilu: return kernels::SiluMul(pool_, x, rows, op.width, y, op.type);
    case program::Gate::kGeluTanh: return kernels::GeluMul(pool_, x, rows, op.width, y, op.type);
    case program::Gate::kGeluErf: return kernels::GeluErfMul(pool_, x, rows, op.width, y, op.type);
    case program::Gate::kClampedSwiglu:
      return kernels::ClampedSwiglu(pool_, x, rows, op.width, op.clamp, y, op.type);
    case program::Gate::kPlainGelu: return kernels::Gelu(pool_, x, rows * op.width, y, op.type);
    case program::Gate::kPlainRelu:
      return kernels::Activate(pool_, {.kind = kernels::ActivationKind::kRelu}, x, rows, op.width,
                               /*gated=*/false, y, op.type);
    case program::Gate::kRule: break;
  }
  kernels::ActivationRule rule = op.rule;
  if (op.numbers != kNone) {
    const auto softplus = [](float z) { return z > 20 ? z : std::log1p(std::exp(z)); };
    const std::vector<float>& numbers = VectorOf(op.numbers);
    rule.beta = numbers[2];
    rule.eps = numbers[3];
    rule.alpha_p = softplus(numbers[0]);
    rule.alpha_n = rule.beta + softplus(numbers[1]);
  }
  kernels::Activate(pool_, rule, x, rows, op.width, op.is_gated, y, op.type);
}

void CpuWalk::operator()(const program::FinishLogits& op) {
  const bool changes = op.scale != 1 || op.cap != 0;
  float* const logits = F32At(op.x, op.width);
  if (changes) {
    pool_.ParallelFor(rows_ * op.width, kNumberGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        logits[i] *= op.scale;
        if (op.cap > 0) logits[i] = op.cap * std::tanh(logits[i] / op.cap);
      }
    });
  }
  float* const maxima = step_.input.maxima.data();
  if ((changes || step_.lora != nullptr) && maxima != nullptr) {
    kernels::FindMaxima(pool_, logits, op.width, rows_, op.width,
                        {maxima, kernels::NumMaxima(op.width)});
  }
}

void CpuWalk::operator()(const program::CopyResults& op) {
  std::copy_n(F32At(op.x, op.width), rows_ * op.width, step_.results);
}

void CpuWalk::operator()(const program::Score& op) {
  const float* const x = F32At(op.x, op.width);
  ForEachWeight(op.weights, rows_, [&](const auto& weights, int64_t begin, int64_t count) {
    ScoreRows(pool_, weights, op.width, op.num_scores, x + begin * op.width, count,
              step_.results + begin * op.num_scores);
  });
}

void CpuWalk::operator()(const program::MeanTexts& op) {
  TakeTextMeans(pool_, step_.input, op.width, F32At(op.x, op.width));
  rows_ = std::ssize(step_.input.logit_rows);
}

void CpuWalk::operator()(const program::Classify& op) {
  ScoreTexts(pool_, *executor_.surroundings_.classifier, program_.norm_eps, F32At(op.x, op.width),
             rows_, op.width, F32At(op.scratch, op.width), step_.results);
}

}  // namespace sluice
