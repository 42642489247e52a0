// An encoder as a program: the only place that knows what an EncoderSpec means.
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
  bool classifies = false;  // results are scores, not hidden states
  // Null: for the CPU. On a device results are the rows that scores are made of, on the host.
  const DeviceTarget* device = nullptr;
  // From ListEncoderParameters. They need not be filled to plan memory and shapes of the
  // program.
  const EncoderWeights& weights;
};

// The weights outlive the program.
Program BuildEncoder(const EncoderParts& parts);

}  // namespace sluice::program
