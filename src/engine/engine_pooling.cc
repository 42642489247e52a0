// Steps of pooling models: they compute vectors of texts instead of tokens.
#include <algorithm>
#include <span>
#include <utility>

#include "engine/engine_core.h"

namespace sluice {

void EngineCore::Pool(const Flight& flight) {
  const Clock::time_point now = Clock::now();
  for (const FlyingSlice& slice : flight.slices) {
    if (!slice.is_wanted) continue;
    ActiveSequence& sequence = slice.active();
    ActiveRequest& request = *sequence.request;
    // Sums rows in the order of their positions, so the sum does not depend on how the prompt is
    // divided into chunks.
    std::vector<double>& pooled = sequence.pooled;
    const auto [begin, end] = WantedRows(slice, 0);
    for (int64_t row = 0; row < end - begin; ++row) {
      const std::span<const float> result = LogitsOf(flight, slice.first_logit + row);
      pooled.resize(result.size());
      std::transform(result.begin(), result.end(), pooled.begin(), pooled.begin(), std::plus<>());
    }
    if (!slice.samples) continue;
    const auto count = static_cast<double>(
        plan_.pooling->method == PoolingMethod::kMean ? sequence.tokens.size() : size_t{1});
    SinkUpdate& entry = updates_.emplace_back();
    entry.sink = request.request.sink;
    entry.pooled.emplace().reserve(pooled.size());
    for (const double sum : pooled) entry.pooled->push_back(static_cast<float>(sum / count));
    request.first_token = request.last_token = now;
    if (observer_ != nullptr) observer_->OnFirstToken(SecondsBetween(request.request.arrival, now));
    TakePrompt(request, now, entry);
    FinishRequest(request, FinishReason::kStop);
  }
  if (dense_ != nullptr) ApplyDense();
}

void EngineCore::ApplyDense() {
  float* const vectors = dense_rows_.As<float>().data();
  float* const scratch = vectors + plan_.scheduler.max_num_seqs * dense_->widest();
  int64_t rows = 0;
  float* end = vectors;
  for (const SinkUpdate& entry : updates_) {
    if (!entry.pooled) continue;
    end = std::copy(entry.pooled->begin(), entry.pooled->end(), end);
    ++rows;
  }
  const float* result = dense_->Apply(pool_, rows, vectors, scratch);
  const int64_t width = plan_.pooling->dense.back().out_features;
  for (SinkUpdate& entry : updates_) {
    if (!entry.pooled) continue;
    entry.pooled->assign(result, result + width);
    result += width;
  }
}

}  // namespace sluice
