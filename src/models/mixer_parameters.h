// The parameters of mixers: what the checkpoint calls them, and the order of their rows in memory.
#pragma once

#include <string>

#include "models/weights.h"

namespace sluice {

// Adds those that the rank at `place` holds of the mixer of that name ("model.layers.0.mamba").
void AddMixer(ParameterList& list, const std::string& name, const MixerSpec& spec,
              int64_t hidden_size, const RankPlace& place, MixerWeights& weights);

}  // namespace sluice
