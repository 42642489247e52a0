// The parameters of an image tower.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "models/tower/tower_spec.h"
#include "models/weights.h"

namespace sluice {

// A linear layer, whose results are some columns of what a product of the tower makes.
struct TowerLinear {
  LinearWeights weights;
  int64_t rows = 0;
  // TowerSpec::clips: least and most of its inputs, then of its results; else empty.
  std::vector<float> bounds;
};

struct TowerNorm {
  std::vector<float> weight, bias;  // [width]; the bias of a layer norm
};

struct TowerLayerWeights {
  TowerNorm attention_norm, attention_after, mlp_norm, mlp_after;
  std::vector<float> attention_factor, mlp_factor;  // [hidden], or empty
  std::vector<TowerLinear> qkv;               // one, or where they are clipped, of q, of k and of v
  std::vector<float> q_norm, k_norm, v_norm;  // [head_dim], or empty
  TowerLinear output;
  std::vector<TowerLinear> up;  // one [gate and] up, or where they are clipped, one each
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
  TowerNorm patch_norm;          // or empty
  TowerNorm first_norm;          // or empty
  std::vector<float> zeros;      // [hidden], where results have factors
  std::vector<float> newline;    // [out_width], or empty
  std::vector<TowerLayerWeights> layers;
  ProjectorWeights projector;
  std::vector<ProjectorWeights> levels;
};

// Lists the parameters, with targets in `weights`, whose vectors of layers and steps are made here.
ParameterList ListTowerParameters(const TowerSpec& spec, TowerWeights& weights);

// Whether a checkpoint holds a tower at all: some hold the text part alone.
bool HoldsTower(const TowerSpec& spec, const Checkpoint& checkpoint);

}  // namespace sluice
