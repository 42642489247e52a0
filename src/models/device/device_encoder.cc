#include "models/device/device_encoder.h"

#include <algorithm>
#include <stdexcept>

#include "models/encoder/encoder_classifier.h"
#include "models/step_check.h"

namespace sluice {

DeviceEncoder::DeviceEncoder(ModelConfig config, const ModelOptions& options,
                             const EncoderSpec& spec, Parts parts)
    : Model(std::move(config)), options_(options), spec_(spec), parts_(std::move(parts)) {
  if (!classifies()) return;
  const int64_t rows =
      TakesMeans() ? options.max_rows : std::min(options.max_logit_rows, options.max_rows);
  hidden_.resize(static_cast<size_t>(rows * spec.hidden_size));
  scratch_.resize(hidden_.size());
}

DeviceEncoder::~DeviceEncoder() {
  // No work may be running when the memory is freed. The step that failed has reported its error.
  static_cast<void>(parts_.stream->Synchronize());
  if (pinned_results_ != nullptr) parts_.device.Unpin(pinned_results_);
}

void DeviceEncoder::PrepareLogits(std::span<float> results) {
  if (pinned_results_ != nullptr) parts_.device.Unpin(pinned_results_);
  pinned_results_ = nullptr;
  if (results.empty() || classifies()) return;
  if (parts_.device.Pin(results.data(), static_cast<int64_t>(results.size_bytes())))
    pinned_results_ = results.data();
}

void DeviceEncoder::Forward(ThreadPool& threads, const StepInput& input, KvCache& cache,
                            float* results) {
  CheckStepInput(config_.spec, options_, input, cache);
  if (input.tokens.empty()) return;
  parts_.inputs.Send(*parts_.stream, input);
  parts_.executor->Run({.inputs = &parts_.inputs,
                        .cache = &cache,
                        .rows = std::ssize(input.tokens),
                        .wanted = std::ssize(input.logit_rows),
                        .results = classifies() ? hidden_.data() : results});
  if (const Status status = parts_.stream->Synchronize(); !status)
    throw std::runtime_error(status.error().message);
  if (!classifies()) return;
  if (TakesMeans()) TakeTextMeans(threads, input, spec_.hidden_size, hidden_.data());
  ScoreTexts(threads, parts_.classifier, spec_.norm_eps, hidden_.data(),
             std::ssize(input.logit_rows), spec_.hidden_size, scratch_.data(), results);
}

}  // namespace sluice
