#pragma once

#include "kernels/types.hpp"

namespace minitaw::kernels {

/// One step of AdamW for one tensor (Loshchilov & Hutter 2019, algorithm 2), its constants ready.
struct AdamWStep {
  float learning_rate, beta1, beta2, epsilon, decay;
  float correction1, correction2;  ///< 1 / (1 - beta^step)
};

/// master, moment1, moment2 [n] in place; weights [n] = master, rounded; gradient [n]. With E = float,
/// weights and master may be the same memory.
template <class E>
void adamw(const ExecutionSpace& exec, Vector<E> weights, Vector<float> master, Vector<float> moment1,
           Vector<float> moment2, Vector<const float> gradient, const AdamWStep& step);

}  // namespace minitaw::kernels
