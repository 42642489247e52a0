// ModernBERT: norms before attention and MLP, rotary positions, a gate in the MLP, and in most
// layers a window to either side, with a rope of its own. Source: transformers
// modeling_modernbert.py.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fields.h"
#include "models/encoder/encoder_spec.h"
#include "models/encoder/encoder_weights.h"

namespace sluice {

// "ModernBertModel", "...ForMaskedLM", whose hidden states are asked for, and
// "...ForSequenceClassification".
bool IsModernBert(std::string_view architecture);

Result<EncoderSpec> ReadModernBert(const JsonFields& fields);

// As ListEncoderParameters.
ParameterList ListModernBertParameters(const EncoderSpec& spec, int64_t num_scores,
                                       const std::string& prefix, EncoderWeights& weights);

}  // namespace sluice
