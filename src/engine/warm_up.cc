#include "engine/warm_up.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "base/firewall.h"
#include "base/log.h"
#include "models/encoder/encoder_spec.h"
#include "models/lora_store.h"

namespace sluice {
namespace {

struct StepShape {
  int64_t slices = 1;
  int64_t tokens = 1;   // number of tokens in each slice
  int64_t context = 0;  // tokens of each slice that are already in the cache
  bool draws = true;    // whether to draw a token for each slice; if not, the step returns logits
};

// Returns shapes from one row up to the limits. Matrix products change kernels at 17, 33 and 65
// rows.
std::vector<StepShape> ShapesWithin(const WarmUpLimits& limits, bool is_encoder) {
  const int64_t most = std::min(limits.max_rows, limits.max_slices);
  std::vector<StepShape> shapes = {{.tokens = 1}};
  // Encoders compute only whole texts.
  if (!is_encoder) shapes.push_back({.context = limits.max_context - 1});
  for (const int64_t slices : {17, 33, 64})
    if (slices <= most) shapes.push_back({.slices = slices});
  const int64_t longest = std::min(limits.max_rows, limits.max_context);
  for (const int64_t tokens : {std::min<int64_t>(2, longest), longest})
    shapes.push_back({.tokens = tokens, .draws = false});
  return shapes;
}

// Buffers of a step, which are reused by the next step.
struct StepMemory {
  std::vector<int32_t> tokens, positions, logit_rows, table;
  std::vector<kernels::AttentionSlice> slices;
  std::vector<TokenDraw> draws;
  // Adapter of the first slot for each slice, if the model serves adapters.
  std::vector<int32_t> adapters;
  std::vector<StateSlot> states;  // one slot for each slice, if the cache has state slots
  std::vector<float> logits;
};

StepInput Describe(const StepShape& shape, int64_t num_groups, int block_size, StepMemory& memory) {
  const int64_t end = shape.context + shape.tokens;
  memory = {};
  memory.table.assign(static_cast<size_t>((end + block_size - 1) / block_size), 0);
  for (int64_t slice = 0; slice < shape.slices; ++slice) {
    const auto first_row = static_cast<int64_t>(memory.tokens.size());
    for (int64_t i = 0; i < shape.tokens; ++i) {
      memory.tokens.push_back(0);
      memory.positions.push_back(static_cast<int32_t>(shape.context + i));
    }
    memory.slices.push_back({first_row, static_cast<int32_t>(shape.tokens),
                             static_cast<int32_t>(shape.context), memory.table.data()});
    memory.logit_rows.push_back(static_cast<int32_t>(memory.tokens.size()) - 1);
    if (!shape.draws) continue;
    TokenDraw& draw = memory.draws.emplace_back();
    draw.is_wanted = true;
    draw.settings = {.scale = slice % 2 == 0 ? 0.0f : 1.0f,
                     .farthest = std::numeric_limits<float>::infinity(),
                     .top_k = 0,
                     .top_p = 0.5,
                     .uniform = 0.5};
  }
  const std::vector<kernels::AttentionSlice> once = memory.slices;
  for (int64_t group = 1; group < num_groups; ++group)
    memory.slices.insert(memory.slices.end(), once.begin(), once.end());
  return {memory.tokens,     memory.positions, memory.slices,
          memory.logit_rows, num_groups,       memory.draws};
}

}  // namespace

Status WarmUp(Model& model, ThreadPool& pool, KvCache& cache, const WarmUpLimits& limits) {
  const auto begin = std::chrono::steady_clock::now();
  const int block_size = cache.slots().front().layout.block_size;
  StepMemory memory;
  const ModelConfig& config = model.config();
  const int64_t width = std::max(config.vocab_size, config.spec.ResultSize());
  const std::vector<StepShape> shapes = ShapesWithin(limits, IsEncoder(config.architecture));
  for (StepShape shape : shapes) {
    if (!model.draws_tokens()) shape.draws = false;
    StepInput input = Describe(shape, cache.num_groups(), block_size, memory);
    if (model.lora() != nullptr) {
      memory.adapters.assign(static_cast<size_t>(shape.slices), 0);
      input.adapters = memory.adapters;
    }
    if (cache.states().num_slots() > 0) {
      for (int32_t slice = 0; slice < static_cast<int32_t>(shape.slices); ++slice)
        memory.states.push_back({.slot = slice, .is_new = shape.context == 0});
      input.states = memory.states;
    }
    memory.logits.resize(memory.logit_rows.size() * static_cast<size_t>(width));
    try {
      model.Forward(pool, input, cache, memory.logits.data());
    } catch (...) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("a first step of {} sequences and {} tokens, before any request, "
                              "failed: {}",
                              shape.slices, shape.slices * shape.tokens, CaughtMessage()));
    }
  }
  LOG_INFO("engine", "the kernels are loaded: {} steps before the first request took {:.2f} s",
           shapes.size(),
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return {};
}

}  // namespace sluice
