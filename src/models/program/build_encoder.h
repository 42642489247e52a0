// Builds the program of an encoder: the only place that interprets an EncoderSpec.
#pragma once

#include "models/encoder/encoder_spec.h"
#include "models/encoder/encoder_weights.h"
#include "models/model.h"
#include "models/program/builder.h"
#include "models/program/program.h"

namespace sluice::program {

struct EncoderParts {
  const EncoderSpec& spec;
  const ModelOptions& options;
  int num_threads = 1;
  bool classifies = false;  // whether results are scores, not hidden states
  // Null for the CPU. On a device, results are the rows from which the host computes scores.
  const DeviceTarget* device = nullptr;
  // Filled in by ListEncoderParameters. The weights need not be loaded to plan memory and shapes.
  const EncoderWeights& weights;
};

// Returns the program. The weights outlive it.
Program BuildEncoder(const EncoderParts& parts);

}  // namespace sluice::program
