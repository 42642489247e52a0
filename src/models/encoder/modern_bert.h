// ModernBERT: norms before attention and MLP, RoPE, and an MLP with a gate. Most layers have a
// window on both sides, and separate RoPE frequencies. Source: transformers modeling_modernbert.py.
#pragma once

#include <string>
#include <string_view>

#include "base/json_fields.h"
#include "models/encoder/encoder_spec.h"
#include "models/encoder/encoder_weights.h"

namespace sluice {

// Returns whether the architecture is "ModernBertModel", "...ForMaskedLM" (used for its hidden
// states) or "...ForSequenceClassification".
bool IsModernBert(std::string_view architecture);

Result<EncoderSpec> ReadModernBert(const JsonFields& fields);

// Like ListEncoderParameters, for ModernBERT.
ParameterList ListModernBertParameters(const EncoderSpec& spec, int64_t num_scores,
                                       const std::string& prefix, EncoderWeights& weights);

}  // namespace sluice
