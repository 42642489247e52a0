#include "simulation/simulated_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "base/log.h"
#include "kernels/random_bits.h"
#include "models/lora_layout.h"
#include "models/weights.h"

namespace sluice {
namespace {

// If a step begins at most this long after the last one ended, the device was not idle.
constexpr std::chrono::milliseconds kBusy(5);
// A warning is logged after this many consecutive late steps.
constexpr int64_t kManyLate = 200;
// A constrained draw chooses among this many allowed tokens. In most vocabularies, small ids are
// single characters; with these, JSON strings come to an end.
constexpr int kFewAllowed = 96;

bool Allows(std::span<const uint32_t> mask, int64_t token) {
  return (mask[static_cast<size_t>(token / 32)] >> (token % 32) & 1u) != 0;
}

// An adapter store that uses no memory.
class SimulatedLora final : public LoraStore {
 public:
  SimulatedLora(const ModelConfig& config, const LoraOptions& options)
      : layout_(LoraLayout::For(config.spec, options, ListParameters(config.spec, weights_),
                                weights_)) {}

  const LoraLayout& layout() const override { return layout_; }
  Status Fill(int /*slot*/, const LoraAdapter& /*adapter*/) override { return {}; }

 private:
  DecoderWeights weights_;  // referred to by the layout; contains no weights
  LoraLayout layout_;
};

}  // namespace

Result<std::unique_ptr<SimulatedModel>> SimulatedModel::Create(ModelConfig config, StepClock clock,
                                                               SimulatedModelOptions options) {
  return std::unique_ptr<SimulatedModel>(
      new SimulatedModel(std::move(config), std::move(clock), std::move(options)));
}

SimulatedModel::SimulatedModel(ModelConfig config, StepClock clock, SimulatedModelOptions options)
    : Model(std::move(config)), clock_(std::move(clock)), options_(std::move(options)) {
  if (options_.lora.num_slots > 0) lora_ = std::make_shared<SimulatedLora>(config_, options_.lora);
}

DrawLimits SimulatedModel::draw_limits() const {
  // Room for the masks of 64 constrained sequences, each of which may also have a list of allowed
  // tokens. For further sequences, the sampler draws.
  constexpr int64_t kMasks = 128;
  constexpr int32_t kTop = 20;
  return {.words = kMasks * ((config_.vocab_size + 31) / 32), .top = kTop};
}

bool SimulatedModel::IsEnd(int32_t token) const {
  return std::ranges::find(options_.end_tokens, token) != options_.end_tokens.end();
}

int32_t SimulatedModel::Choose(const TokenDraw& draw, std::span<const uint32_t> words,
                               uint64_t hash) const {
  const kernels::DrawExtras& extras = draw.extras;
  const auto mask_of = [&](int32_t offset) {
    return offset < 0 ? std::span<const uint32_t>() : words.subspan(static_cast<size_t>(offset));
  };
  const std::span<const uint32_t> mask = mask_of(extras.mask), listed = mask_of(extras.draw_mask);
  const auto is_removed = [&](int64_t token) {
    for (int32_t i = 0; i < extras.num_biases; ++i) {
      const auto place = static_cast<size_t>(extras.biases) + 2 * static_cast<size_t>(i);
      if (words[place] == static_cast<uint32_t>(token))
        return std::bit_cast<float>(words[place + 1]) == -std::numeric_limits<float>::infinity();
    }
    return false;
  };
  const auto is_allowed = [&](int64_t token) {
    return (mask.empty() || Allows(mask, token)) && (listed.empty() || Allows(listed, token)) &&
           !is_removed(token);
  };
  const bool is_constrained = !mask.empty();
  const bool ends = options_.mean_output > 0 &&
                    kernels::MixBits(hash) % static_cast<uint64_t>(options_.mean_output) == 0;
  if (is_constrained || ends) {
    for (const int32_t end : options_.end_tokens) {
      if (is_allowed(end)) return end;
    }
  }
  const int64_t size = config_.vocab_size;
  if (mask.empty() && listed.empty()) {
    // A draw without constraint: starts at a hashed token and takes the first that is neither an
    // end token nor removed.
    auto token = static_cast<int64_t>(hash % static_cast<uint64_t>(size));
    for (int64_t i = 0; i < size; ++i, token = (token + 1) % size) {
      if (!IsEnd(static_cast<int32_t>(token)) && !is_removed(token))
        return static_cast<int32_t>(token);
    }
  }
  int32_t few[kFewAllowed];
  int count = 0;
  for (int64_t token = 0; token < size && count < kFewAllowed; ++token) {
    if (is_allowed(token)) few[count++] = static_cast<int32_t>(token);
  }
  return count == 0 ? -1 : few[hash % static_cast<uint64_t>(count)];
}

// Sets the drawn token's probability to 0.8. The following tokens in the list are less and less
// likely.
void SimulatedModel::SetLogprobs(TokenDraw& draw) const {
  constexpr double kSum = 1.25;
  draw.logprobs = {.sum = kSum, .largest = 0, .chosen = 0, .rank = 1};
  const int64_t size = config_.vocab_size;
  for (size_t i = 0; i < draw.top.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    draw.top[i] = {.token = static_cast<int32_t>((std::max(0, draw.token) + place) % size),
                   .logit = static_cast<float>(-3 * place)};
  }
}

// Fills logits with noise that depends on the token, and makes one token larger than all others.
// The noise makes constrained choices vary.
void SimulatedModel::FillLogits(uint64_t hash, float* logits) const {
  constexpr float kEnd = -60, kChosen = 60;
  const auto size = static_cast<uint64_t>(config_.vocab_size);
  for (uint64_t token = 0; token < size; ++token)
    logits[token] = static_cast<float>(kernels::MixBits(hash ^ token) >> 40) * 0x1p-24f;
  for (const int32_t end : options_.end_tokens) logits[end] = kEnd;
  uint64_t chosen = hash % size;
  while (IsEnd(static_cast<int32_t>(chosen)) && size > options_.end_tokens.size())
    chosen = (chosen + 1) % size;
  logits[chosen] = kChosen;
  if (options_.mean_output > 0 && !options_.end_tokens.empty() &&
      kernels::MixBits(hash) % static_cast<uint64_t>(options_.mean_output) == 0)
    logits[options_.end_tokens.front()] = 2 * kChosen;
}

void SimulatedModel::Forward(ThreadPool& /*pool*/, const StepInput& input, KvCache& /*cache*/,
                             float* results) {
  loads_.clear();
  size_t wanted = 0;
  for (const kernels::AttentionSlice& slice : input.SlicesOf(0)) {
    SliceLoad load{.context = slice.context, .num_tokens = slice.num_tokens};
    for (; wanted < input.logit_rows.size(); ++wanted, ++load.wanted_rows) {
      if (input.logit_rows[wanted] >= slice.first_row + slice.num_tokens) break;
    }
    loads_.push_back(load);
  }
  for (size_t i = 0; i < input.logit_rows.size(); ++i) {
    const auto row = static_cast<size_t>(input.logit_rows[i]);
    const uint64_t place = kernels::MixBits(static_cast<uint64_t>(input.tokens[row]) << 32 |
                                            static_cast<uint32_t>(input.positions[row]));
    if (input.draws.empty() || !input.draws[i].is_wanted) {
      FillLogits(place, results + i * static_cast<size_t>(config_.vocab_size));
      continue;
    }
    TokenDraw& draw = input.draws[i];
    const bool is_greedy = draw.settings.scale == 0;
    const uint64_t hash =
        is_greedy ? place : kernels::MixBits(std::bit_cast<uint64_t>(draw.settings.uniform));
    draw.token = Choose(draw, input.draw_words, hash);
    if (draw.token < 0) draw.error = kernels::DrawError::kNothingAllowed;
    SetLogprobs(draw);
  }
  const double seconds = clock_.SecondsOf(loads_);
  simulated_seconds_ += seconds;
  if (options_.sleeps) WaitFor(seconds / options_.speed);
}

void SimulatedModel::WaitFor(double seconds) {
  const Clock::time_point now = Clock::now();
  if (done_ == Clock::time_point() || now - done_ > kBusy) done_ = now;
  done_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  num_late_ = done_ < now ? num_late_ + 1 : 0;
  if (done_ < now) {
    done_ = now;
    if (num_late_ < kManyLate || std::exchange(told_late_, true)) return;
    LOG_WARNING("engine",
                "simulation: this machine takes longer for a step than the simulated device at "
                "--simulate-speed {:g}, so the times are too long; lower it",
                options_.speed);
    return;
  }
  std::this_thread::sleep_until(done_);
}

}  // namespace sluice
