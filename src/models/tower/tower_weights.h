// The parameters of an image tower.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "models/tower/tower_spec.h"
#include "models/weights.h"

namespace sluice {

// A linear layer. Its results may be only some of the columns that the tower computes in one
// product.
struct TowerLinear {
  LinearWeights weights;
  int64_t rows = 0;
  // For TowerSpec::clips: minimum and maximum of the layer's inputs, then of its results; else
  // empty.
  std::vector<float> bounds;
};

struct TowerNorm {
  std::vector<float> weight, bias;  // [width]; bias only for layer norms
};

struct TowerLayerWeights {
  TowerNorm attention_norm, attention_after, mlp_norm, mlp_after;
  std::vector<float> attention_factor, mlp_factor;  // [hidden], or empty
  // One layer for q, k and v together; with clipping, one for each.
  std::vector<TowerLinear> qkv;
  std::vector<float> q_norm, k_norm, v_norm;  // [head_dim], or empty
  TowerLinear output;
  // One layer for gate (if any) and up together; with clipping, one for each.
  std::vector<TowerLinear> up;
  TowerLinear down;
};

// The weights of a ProjectorStep.
struct ProjectorStepWeights {
  LinearWeights linear;
  TowerNorm norm;
};
using ProjectorWeights = std::vector<ProjectorStepWeights>;

struct TowerWeights {
  LinearWeights patch;           // [hidden, patch_numbers]
  std::vector<float> positions;  // [rows, hidden], or empty
  std::vector<float> class_row;  // [hidden], or empty
  TowerNorm patch_norm;          // empty if there is none
  TowerNorm first_norm;          // empty if there is none
  std::vector<float> zeros;      // [hidden] zeros, if sublayers' results have factors; else empty
  std::vector<float> newline;    // [out_width], or empty
  std::vector<TowerLayerWeights> layers;
  ProjectorWeights projector;
  std::vector<ProjectorWeights> levels;
};

// Lists the parameters, with targets in `weights`. Creates the layers and steps in `weights`.
ParameterList ListTowerParameters(const TowerSpec& spec, TowerWeights& weights);

// Returns whether a checkpoint contains a tower; some contain only the text part.
bool HoldsTower(const TowerSpec& spec, const Checkpoint& checkpoint);

}  // namespace sluice
