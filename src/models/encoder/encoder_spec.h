// Describes an encoder: BERT, RoBERTa and XLM-R (learned positions); Nomic's BERT, GTE and
// ModernBERT (RoPE, and an MLP with a gate).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "models/model_config.h"

namespace sluice {

// Source: transformers modeling_bert.py, modeling_xlm_roberta.py, modeling_nomic_bert.py and
// modeling_gte.py.
struct EncoderSpec {
  // The family determines the names and biases of the parameters, and the classifier's head.
  enum class Family { kBert, kRoberta, kNomic, kGte, kModern };
  enum class Activation { kGelu, kRelu, kGatedSilu, kGatedGelu };

  Family family = Family::kBert;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_positions = 0;   // rows of the position table, or maximum length of a text
  int64_t first_position = 0;  // the row of a text's first token
  int64_t num_types = 0;       // rows of the token type table, of which two are used; 0: no table
  float norm_eps = 1e-12F;
  Activation activation = Activation::kGelu;  // by default GELU, computed with erf
  std::vector<float> rope_frequencies;        // [head_dim / 2]; empty: positions are learned
  // Whether norms are applied before attention and before the MLP, with one more norm after the
  // last layer. Otherwise they are applied after each.
  bool norms_before = false;
  // Whether each layer has a window. In a layer with a window, tokens attend to `reach` tokens on
  // either side, and RoPE has separate frequencies. Empty: all layers attend to all tokens.
  std::vector<bool> has_window;
  int32_t reach = 0;
  std::vector<float> window_frequencies;
  // The modules of a kModern encoder that have biases.
  struct Biases {
    bool attention = false, mlp = false, norms = false, classifier = false;
  };
  Biases biases = {};
  // Whether scores are computed from the mean of all hidden states, not from the first one.
  bool classifies_mean = false;

  bool is_gated() const {
    return activation == Activation::kGatedSilu || activation == Activation::kGatedGelu;
  }
  int64_t head_dim() const { return hidden_size / num_heads; }
};

// Returns kUnsupported if heads are too narrow or too wide, or do not divide the hidden size.
Status CheckEncoderHeads(const EncoderSpec& spec);

// Returns whether the architecture is an encoder.
bool IsEncoder(std::string_view architecture);

// Reads an encoder's config.json. kUnsupported names a setting that is not implemented.
Result<EncoderSpec> ReadEncoderSpec(const json::Value& config);

// Returns the configuration that the engine uses for planning.
Result<ModelConfig> ParseEncoderShape(const json::Value& config);

}  // namespace sluice
