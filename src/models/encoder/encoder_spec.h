// What an encoder computes: BERT, RoBERTa and XLM-R, which learn their positions, Nomic's BERT, GTE
// and ModernBERT, which turn queries and keys and have a gate in the MLP.
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
  // Names and biases of the parameters, and the head of classifiers.
  enum class Family { kBert, kRoberta, kNomic, kGte, kModern };
  enum class Activation { kGelu, kRelu, kGatedSilu, kGatedGelu };

  Family family = Family::kBert;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_positions = 0;   // rows of the positions' table, or the longest text
  int64_t first_position = 0;  // the row of a text's first token
  int64_t num_types = 0;       // rows of the table of token types, of which two are used; 0: none
  float norm_eps = 1e-12F;
  Activation activation = Activation::kGelu;  // GELU by erf
  std::vector<float> rope_frequencies;        // [head_dim / 2]; empty: positions are learned
  // Norms stand before attention and MLP, and one after the last layer; else after both.
  bool norms_before = false;
  // Layers whose tokens see `reach` others to either side, with frequencies of their own; empty:
  // all see everything.
  std::vector<bool> has_window;
  int32_t reach = 0;
  std::vector<float> window_frequencies;
  // Which layers have biases, of kModern.
  struct Biases {
    bool attention = false, mlp = false, norms = false, classifier = false;
  };
  Biases biases = {};
  // Scores are made of the mean of all hidden states, not of the first.
  bool classifies_mean = false;

  bool is_gated() const {
    return activation == Activation::kGatedSilu || activation == Activation::kGatedGelu;
  }
  int64_t head_dim() const { return hidden_size / num_heads; }
};

// kUnsupported where heads are too narrow, too wide, or not a part of the hidden size.
Status CheckEncoderHeads(const EncoderSpec& spec);

// Whether an architecture's name is that of an encoder.
bool IsEncoder(std::string_view architecture);

// Reads config.json of an encoder. kUnsupported names a setting that is not implemented.
Result<EncoderSpec> ReadEncoderSpec(const json::Value& config);

// The configuration that the engine plans by.
Result<ModelConfig> ParseEncoderShape(const json::Value& config);

}  // namespace sluice
