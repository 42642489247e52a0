// The parameters of an encoder.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "models/encoder/encoder_spec.h"
#include "models/weights.h"

namespace sluice {

struct LayerNormWeights {
  std::vector<float> weight, bias;  // [hidden]; zeros for a norm without a bias
};

struct EncoderLayerWeights {
  LinearWeights qkv;                // [3 * hidden, hidden]: rows of q, then k, then v
  LinearWeights output;             // [hidden, hidden]
  LayerNormWeights attention_norm;  // empty if there is none
  LinearWeights up;    // [intermediate, hidden]; with a gate [2 * intermediate, hidden]: rows of
                       // gate, then up
  LinearWeights down;  // [hidden, intermediate]
  LayerNormWeights mlp_norm;
};

// Weights of a classifier, in F32. For a hidden state h, scores = out(tanh(dense(h))) or, with a
// norm, out(norm(gelu(dense(h)))).
struct ClassifierWeights {
  std::vector<float> dense, dense_bias;  // [hidden, hidden]; [hidden], or empty
  LayerNormWeights norm;                 // empty if there is none
  std::vector<float> out, out_bias;      // [num_scores, hidden], [num_scores]
};

struct EncoderWeights {
  kernels::PackedMatrix words;   // [vocab, hidden]
  std::vector<float> positions;  // [num_positions, hidden]; empty with RoPE
  std::vector<float> types;      // [num_types, hidden]
  LayerNormWeights embedding_norm;
  std::vector<EncoderLayerWeights> layers;
  LayerNormWeights final_norm;   // only with EncoderSpec::norms_before
  ClassifierWeights classifier;  // empty if the model does not classify
};

// Lists the parameters, with targets in `weights`. Creates the layers of `weights`. `prefix`:
// prefix of the checkpoint's tensor names ("bert.", or "").
ParameterList ListEncoderParameters(const EncoderSpec& spec, int64_t num_scores,
                                    const std::string& prefix, EncoderWeights& weights);

// Sets missing biases of norms to zeros.
void FillEncoderBiases(const EncoderSpec& spec, EncoderWeights& weights);

// Returns the prefix of the checkpoint's tensor names: "bert.", "roberta.", "new.", ... or "".
std::string EncoderPrefix(const Checkpoint& checkpoint);

// Checks that the checkpoint contains these parameters with their shapes and otherwise only tensors
// that are known to be unused. One error lists all problems.
Status CheckEncoderParameters(const ParameterList& list, const Checkpoint& checkpoint,
                              const QuantizationScheme& scheme);

}  // namespace sluice
