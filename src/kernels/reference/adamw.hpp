#pragma once

#include <cmath>

#include "kernels/reference/types.hpp"

namespace minitaw::kernels::reference {

struct AdamWSettings {
  double learning_rate, beta1, beta2, epsilon, decay;
};

/// One step (counted from 1) of AdamW (Loshchilov & Hutter 2019, algorithm 2): weights and moments in place.
inline void adamw(Out weights, Out moment1, Out moment2, In gradient, const AdamWSettings& settings,
                  int step) {
  const double correction1 = 1 - std::pow(settings.beta1, step);
  const double correction2 = 1 - std::pow(settings.beta2, step);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    moment1[i] = settings.beta1 * moment1[i] + (1 - settings.beta1) * gradient[i];
    moment2[i] = settings.beta2 * moment2[i] + (1 - settings.beta2) * gradient[i] * gradient[i];
    const double direction =
        moment1[i] / correction1 / (std::sqrt(moment2[i] / correction2) + settings.epsilon);
    weights[i] -= settings.learning_rate * (direction + settings.decay * weights[i]);
  }
}

}  // namespace minitaw::kernels::reference
