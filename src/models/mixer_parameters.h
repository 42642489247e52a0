// Lists the parameters of mixers: their names in the checkpoint and the order of their rows in
// memory.
#pragma once

#include <string>

#include "models/weights.h"

namespace sluice {

// Adds the parameters of the mixer `name` ("model.layers.0.mamba") for the rank at `place`.
void AddMixer(ParameterList& list, const std::string& name, const MixerSpec& spec,
              int64_t hidden_size, const RankPlace& place, MixerWeights& weights);

}  // namespace sluice
