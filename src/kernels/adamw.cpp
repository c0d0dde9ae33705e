#include "kernels/adamw.hpp"

namespace minitaw::kernels {

namespace {

struct Update {
  float* weights;
  float* moment1;
  float* moment2;
  const float* gradient;
  AdamWStep step;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const float g = gradient[i];
    const float m1 = step.beta1 * moment1[i] + (1.0F - step.beta1) * g;
    const float m2 = step.beta2 * moment2[i] + (1.0F - step.beta2) * g * g;
    const float direction = m1 * step.correction1 / (Kokkos::sqrt(m2 * step.correction2) + step.epsilon);
    moment1[i] = m1;
    moment2[i] = m2;
    weights[i] -= step.learning_rate * (direction + step.decay * weights[i]);
  }
};

}  // namespace

void adamw(const ExecutionSpace& exec, Vector<float> weights, Vector<float> moment1, Vector<float> moment2,
           Vector<const float> gradient, const AdamWStep& step) {
  using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for("minitaw::adamw", Range(exec, 0, static_cast<std::int64_t>(weights.extent(0))),
                       Update{weights.data(), moment1.data(), moment2.data(), gradient.data(), step});
}

}  // namespace minitaw::kernels
