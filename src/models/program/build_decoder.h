// A decoder as a program: the only place that knows what a DecoderSpec means.
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
  const DecoderSpec& spec;  // of the whole model
  const ModelOptions& options;
  RankPlace place = {};
  // CPU only: the most that any layer does to its inputs, and the threads of a step.
  InputRounding rounding = InputRounding::kNone;
  int num_threads = 1;
  const DeviceTarget* device = nullptr;  // null: for the CPU
  // From ListParameters. They need not be filled to plan memory and shapes.
  const DecoderWeights& weights;
  // For a drafting head: the weights whose embedding and head it uses if it has none.
  const DecoderWeights* target = nullptr;
};

// What the rank at `place` computes. The weights outlive the program.
Program BuildDecoder(const DecoderParts& parts);

// One layer alone, for all rows of a step: from the buffer "residual" to it.
// Its keys and values are in layer 0 of the cache.
Program BuildDecoderLayer(const DecoderParts& parts, int64_t layer);

}  // namespace sluice::program
