// The table of model families. A new family is one file that defines its ModelFamily, and one line
// here and in registry.cc.
#pragma once

#include <string_view>

#include "models/decoder_spec.h"

namespace sluice {

extern const ModelFamily kLlama;
extern const ModelFamily kLlama4;
extern const ModelFamily kLlama4Text;
extern const ModelFamily kMistral;
extern const ModelFamily kQwen2;
extern const ModelFamily kQwen3;
extern const ModelFamily kQwen3Moe;

// The description of config.architecture; kUnsupported names it and the supported ones.
Result<DecoderSpec> DescribeModel(const ModelConfig& config);

}  // namespace sluice
