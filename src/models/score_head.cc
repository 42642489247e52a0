#include "models/score_head.h"

#include <numeric>

#include <fmt/format.h>

#include "tensor/stored_number.h"

namespace sluice {

Status ReadTokenScores(const Checkpoint& checkpoint, const DecoderSpec& spec,
                       std::vector<float>& scores) {
  const char* name = spec.tied_head ? "model.embed_tokens.weight" : "lm_head.weight";
  const StoredTensor* tensor = checkpoint.Find(name);
  if (tensor == nullptr || tensor->info->shape != std::vector{spec.vocab_size, spec.hidden_size} ||
      BitsPerElement(tensor->info->type) < 16) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("classifier_from_token needs the tensor '{}' of shape [{}, {}] in F32, "
                            "F16 or BF16",
                            name, spec.vocab_size, spec.hidden_size),
                name);
  }
  const auto number = [&](int32_t row, int64_t i) {
    return StoredNumber(tensor->bytes().data(), tensor->info->type, row * spec.hidden_size + i);
  };
  const std::vector<int32_t>& tokens = spec.head.tokens;
  scores.resize(static_cast<size_t>(spec.head.num_scores * spec.hidden_size));
  for (int64_t row = 0; row < spec.head.num_scores; ++row) {
    for (int64_t i = 0; i < spec.hidden_size; ++i) {
      scores[static_cast<size_t>(row * spec.hidden_size + i)] =
          spec.head.is_difference ? number(tokens[1], i) - number(tokens[0], i)
                                  : number(tokens[static_cast<size_t>(row)], i);
    }
  }
  return {};
}

void ScoreRows(ThreadPool& pool, const std::vector<float>& weights, int64_t width,
               int64_t num_scores, const float* x, int64_t rows, float* scores) {
  pool.ParallelFor(rows * num_scores, /*grain=*/16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = x + i / num_scores * width;
      const float* weight = weights.data() + i % num_scores * width;
      scores[i] = static_cast<float>(std::inner_product(row, row + width, weight, 0.0));
    }
  });
}

}  // namespace sluice
