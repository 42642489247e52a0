// The parameters of an encoder.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "models/encoder/encoder_spec.h"
#include "models/weights.h"

namespace sluice {

struct LayerNormWeights {
  std::vector<float> weight, bias;  // [hidden]; of a norm without a bias, zeros
};

struct EncoderLayerWeights {
  LinearWeights qkv;                // [3 * hidden, hidden]: rows of q, then k, then v
  LinearWeights output;             // [hidden, hidden]
  LayerNormWeights attention_norm;  // empty: there is none
  LinearWeights up;    // [intermediate, hidden]; where the MLP has a gate, [2 * intermediate,
                       // hidden]: rows of the gate, then up
  LinearWeights down;  // [hidden, intermediate]
  LayerNormWeights mlp_norm;
};

// A classifier over the first token's hidden state h: scores = out(tanh(dense(h))), or with a norm
// out(norm(gelu(dense(h)))). In F32.
struct ClassifierWeights {
  std::vector<float> dense, dense_bias;  // [hidden, hidden]; [hidden], or empty
  LayerNormWeights norm;                 // or empty
  std::vector<float> out, out_bias;      // [num_scores, hidden], [num_scores]
};

struct EncoderWeights {
  kernels::PackedMatrix words;   // [vocab, hidden]
  std::vector<float> positions;  // [num_positions, hidden]; empty where they are rotary
  std::vector<float> types;      // [num_types, hidden]
  LayerNormWeights embedding_norm;
  std::vector<EncoderLayerWeights> layers;
  LayerNormWeights final_norm;   // where norms stand before
  ClassifierWeights classifier;  // empty where nothing is classified
};

// Lists the parameters, with targets in `weights`, whose layers are made here. `prefix`: in front
// of the names of the checkpoint's tensors ("bert.", or "").
ParameterList ListEncoderParameters(const EncoderSpec& spec, int64_t num_scores,
                                    const std::string& prefix, EncoderWeights& weights);

// Gives norms without a bias one of zeros.
void FillEncoderBiases(const EncoderSpec& spec, EncoderWeights& weights);

// "bert.", "roberta.", "new.", ... or "": what stands in front of the checkpoint's names.
std::string EncoderPrefix(const Checkpoint& checkpoint);

// Checks that the checkpoint holds these parameters in their shapes, and nothing else but what is
// known to be of no use. One error names all problems.
Status CheckEncoderParameters(const ParameterList& list, const Checkpoint& checkpoint,
                              const QuantizationScheme& scheme);

}  // namespace sluice
