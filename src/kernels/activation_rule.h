// The nonlinear function of an MLP as data: kernels/activation.h.
#pragma once

namespace sluice::kernels {

enum class ActivationKind {
  kSilu,      // z / (1 + exp(-z))
  kGeluTanh,  // as in kernels/gelu_mul.h
  kRelu,      // max(z, 0)
  kRelu2,     // its square
  // alpha_p z^2 + beta z above zero, else alpha_n (exp(min(z, eps)) - 1 - z) + beta z.
  // Source: transformers' XIELUActivation.
  kXielu,
};

struct ActivationRule {
  ActivationKind kind = ActivationKind::kSilu;
  // Not 0: the function's result is cut to at most `limit`, and what it gates to [-limit, limit].
  float limit = 0;
  float alpha_p = 0, alpha_n = 0, beta = 0, eps = 0;  // of kXielu
};

}  // namespace sluice::kernels
