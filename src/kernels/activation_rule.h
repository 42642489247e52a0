// Describes an MLP's activation function, which kernels/activation.h computes.
#pragma once

namespace sluice::kernels {

enum class ActivationKind {
  kSilu,       // z / (1 + exp(-gain z))
  kGeluTanh,   // as in kernels/gelu_mul.h
  kQuickGelu,  // z / (1 + exp(-1.702 z)), as in CLIP
  kRelu,       // max(z, 0)
  kRelu2,      // max(z, 0)^2
  // alpha_p z^2 + beta z above zero, else alpha_n (exp(min(z, eps)) - 1 - z) + beta z.
  // Source: transformers' XIELUActivation.
  kXielu,
};

struct ActivationRule {
  ActivationKind kind = ActivationKind::kSilu;
  // If not 0, f's result is clamped to at most `limit`, and the other factor of a gated product to
  // [-limit, limit]. If `limits_input`, z is clamped to at most `limit` instead of f's result.
  float limit = 0;
  bool limits_input = false;
  float alpha_p = 0, alpha_n = 0, beta = 0, eps = 0;  // for kXielu
  float gain = 1;                                     // for kSilu
  float factor_offset = 0;  // added to the factor, after it is clamped; only with a gate
};

}  // namespace sluice::kernels
