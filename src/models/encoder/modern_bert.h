// ModernBERT: norms before attention and MLP, RoPE, a gate in the MLP; most layers have a window on
// both sides, and their own RoPE frequencies. Source: transformers modeling_modernbert.py.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fields.h"
#include "models/encoder/encoder_spec.h"
#include "models/encoder/encoder_weights.h"

namespace sluice {

// Returns whether it is "ModernBertModel", "...ForMaskedLM" (used for its hidden states) or
// "...ForSequenceClassification".
bool IsModernBert(std::string_view architecture);

Result<EncoderSpec> ReadModernBert(const JsonFields& fields);

// As ListEncoderParameters.
ParameterList ListModernBertParameters(const EncoderSpec& spec, int64_t num_scores,
                                       const std::string& prefix, EncoderWeights& weights);

}  // namespace sluice
