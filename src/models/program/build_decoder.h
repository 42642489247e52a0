// Builds the program of a decoder: the only place that interprets a DecoderSpec.
#pragma once

#include <cstdint>

#include "models/decoder_spec.h"
#include "models/input_rounding.h"
#include "models/model.h"
#include "models/program/builder.h"
#include "models/program/program.h"
#include "models/shard.h"
#include "models/weights.h"

namespace sluice::program {

struct DecoderParts {
  const DecoderSpec& spec;  // spec of the whole model
  const ModelOptions& options;
  RankPlace place = {};
  // For the CPU: the largest InputRounding of any layer, and the number of threads of a step.
  InputRounding rounding = InputRounding::kNone;
  int num_threads = 1;
  const DeviceTarget* device = nullptr;  // null: the program is for the CPU
  // Filled in by ListParameters. The weights need not be loaded to plan memory and shapes.
  const DecoderWeights& weights;
  // For a drafting head without its own embedding or output head: the weights whose tables it uses.
  const DecoderWeights* target = nullptr;
};

// Returns the program of the rank at `place`. The weights outlive the program.
Program BuildDecoder(const DecoderParts& parts);

// Returns the program of a single layer for all rows of a step. It reads and writes the buffer
// "residual". The layer's keys and values are in layer 0 of the cache.
Program BuildDecoderLayer(const DecoderParts& parts, int64_t layer);

}  // namespace sluice::program
