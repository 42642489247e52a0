// The parameters of a decoder: where they live in memory, and what the checkpoint calls them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/matrix.h"
#include "models/decoder_spec.h"
#include "tensor/activation_format.h"

namespace sluice {

struct AttentionWeights {
  kernels::PackedMatrix qkv;     // [q_width + 2 * kv_width, hidden]: rows of q, then k, then v
  std::vector<float> qkv_bias;   // [q_width + 2 * kv_width], or empty
  std::vector<float> q_norm;     // [head_dim], or empty
  std::vector<float> k_norm;     // [head_dim], or empty
  kernels::PackedMatrix output;  // [hidden, q_width]
  std::vector<float> output_bias;
};

struct MlpWeights {
  kernels::PackedMatrix gate_up;  // [2 * intermediate, hidden]: rows of gate, then up
  std::vector<float> gate_up_bias;
  kernels::PackedMatrix down;  // [hidden, intermediate]
  std::vector<float> down_bias;
};

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  AttentionWeights attention;
  std::vector<float> mlp_norm;  // [hidden]
  MlpWeights mlp;
};

struct DecoderWeights {
  kernels::PackedMatrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  kernels::PackedMatrix head;     // [vocab, hidden]; empty where it is tied to the embedding
};

// What the checkpoint's scheme does to the inputs of a linear layer.
struct LinearInputs {
  ActivationFormat format;
  float scale = 1;  // the stored scale of kFp8Static, the global scale of kNvfp4
};

// Rows of a matrix, or elements of a vector. The part of a matrix is named by its module
// ("model.layers.0.mlp.up_proj"; the scheme knows the names of its tensors), that of a vector by
// its tensor ("model.norm.weight").
struct ParameterPart {
  std::string name;
  int64_t rows = 0;
};

// The matrix of one expert inside a tensor of all experts: [experts, rows, cols], or [experts,
// cols, rows] where `transposed`.
struct FusedExpert {
  std::string module;  // "model.layers.0.mlp.experts.gate_up_proj"
  int64_t expert = 0;
  int64_t num_experts = 0;
  bool transposed = false;
};

// A matrix [sum of rows, cols] in memory, filled by one or more modules' weights [rows, cols], one
// below the other; or, where the checkpoint has the tensor of `fused`, by that one alone.
struct MatrixParameter {
  std::vector<ParameterPart> parts;
  int64_t cols = 0;
  kernels::PackedMatrix* target = nullptr;
  LinearInputs* inputs = nullptr;  // may be null: nobody wants to know
  std::optional<FusedExpert> fused = {};

  int64_t rows() const;
};

// A vector of F32 in memory, filled by one or more tensors [rows], one after the other.
struct VectorParameter {
  enum class Kind { kNorm, kBias };
  Kind kind = Kind::kNorm;
  std::vector<ParameterPart> parts;
  std::vector<float>* target = nullptr;

  int64_t rows() const;
};

// Every parameter of the decoder, each exactly once.
struct ParameterList {
  std::vector<MatrixParameter> matrices;
  std::vector<VectorParameter> vectors;
};

// Lists the parameters of `spec`, with targets in `weights`, whose layers are made here.
ParameterList ListParameters(const DecoderSpec& spec, DecoderWeights& weights);

}  // namespace sluice
