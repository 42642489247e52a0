// What an encoder computes: BERT, RoBERTa and XLM-R, which differ in names, in where positions
// begin and in the head of their classifiers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// Source: transformers modeling_bert.py and modeling_xlm_roberta.py.
struct EncoderSpec {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_positions = 0;   // rows of the positions' table
  int64_t first_position = 0;  // the row of a text's first token
  int64_t num_types = 0;       // rows of the table of token types, of which two are used
  float norm_eps = 0;
  bool is_relu = false;     // else GELU by erf
  bool is_roberta = false;  // of its classifier's head

  int64_t head_dim() const { return hidden_size / num_heads; }
};

// Whether an architecture's name is that of an encoder.
bool IsEncoder(std::string_view architecture);

// Reads config.json of an encoder. kUnsupported names a setting that is not implemented.
Result<EncoderSpec> ReadEncoderSpec(const json::Value& config);

// The configuration that the engine plans by.
Result<ModelConfig> ParseEncoderShape(const json::Value& config);

}  // namespace sluice
