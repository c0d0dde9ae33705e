#include <algorithm>
#include <cmath>

#include "kernels/detail/cross_entropy_kernels.hpp"
#include "kernels/detail/host/lanes.hpp"
#include "kernels/detail/rows.hpp"

/// Cross-entropy as short loops that compilers turn into vector code.
namespace minitaw::kernels::detail::host {

namespace {

/// In double: a vocabulary of 10^5 small terms would lose half the digits of a float.
double exact_sum_of(const RowTeam& team, const float* x, int count) {
  return row_sum<double>(team, count, [=](int i) { return static_cast<double>(x[i]); });
}

/// Float exponentials take the place of the logits, so that each is computed once.
struct RowOfFloat {
  float* x;
  int count;

  [[nodiscard]] float largest(float least) const { return largest_of(x, count, least); }
  [[nodiscard]] double exponentials(const RowTeam& team, float largest) const {
    float* const row = x;
    row_for(team, count, [=](int i) { row[i] = host_exponential(row[i] - largest); });
    return exact_sum_of(team, x, count);
  }
  void scale(const RowTeam& team, float, float factor) const {
    float* const row = x;
    row_for(team, count, [=](int i) { row[i] *= factor; });
  }
};

/// bf16 would lose the digits of stored exponentials: they are computed again. Floats of a block at a time.
struct RowOfBf16 {
  static constexpr int block = 512;

  Bf16* x;
  int count;

  template <class Use>
  void blocks(const Use& use) const {
    float values[block];
    for (int begin = 0; begin < count; begin += block) {
      const int size = std::min(block, count - begin);
      for (int i = 0; i < size; ++i) values[i] = load(x[begin + i]);
      use(values, size, x + begin);
    }
  }
  [[nodiscard]] float largest(float least) const {
    blocks([&](const float* values, int size, Bf16*) { least = largest_of(values, size, least); });
    return least;
  }
  [[nodiscard]] double exponentials(const RowTeam& team, float largest) const {
    double sum = 0;
    blocks([&](float* values, int size, Bf16*) {
      row_for(team, size, [=](int i) { values[i] = host_exponential(values[i] - largest); });
      sum += exact_sum_of(team, values, size);
    });
    return sum;
  }
  void scale(const RowTeam& team, float largest, float factor) const {
    blocks([&](const float* values, int size, Bf16* out) {
      row_for(team, size,
              [=](int i) { out[i] = store<Bf16>(host_exponential(values[i] - largest) * factor); });
    });
  }
};

template <class E>
struct LossAndGradient {
  double* losses;
  E* logits;
  const std::int32_t* targets;
  float scale;
  int vocab;

  void operator()(const RowTeam& team) const {
    using Row = std::conditional_t<std::is_same_v<E, float>, RowOfFloat, RowOfBf16>;
    const int row = team.league_rank();
    const Row x{logits + std::int64_t{row} * vocab, vocab};
    E& target = x.x[targets[row]];
    const float at_target = load(target), largest = x.largest(at_target);
    const double sum = x.exponentials(team, largest);
    const float factor = static_cast<float>(scale / sum);
    x.scale(team, largest, factor);
    target = store<E>(host_exponential(at_target - largest) * factor - scale);
    losses[row] = static_cast<double>(largest) - static_cast<double>(at_target) + std::log(sum);
  }
};

}  // namespace

template <class E>
void cross_entropy(const ExecutionSpace& exec, Vector<double> losses, Matrix<E> logits, TokensIn targets,
                   float scale) {
  const int vocab = static_cast<int>(logits.extent(1));
  Kokkos::parallel_for("minitaw::cross_entropy",
                       row_policy(exec, static_cast<std::int64_t>(logits.extent(0))),
                       LossAndGradient<E>{losses.data(), logits.data(), targets.data(), scale, vocab});
}

template void cross_entropy<float>(const ExecutionSpace&, Vector<double>, Matrix<float>, TokensIn, float);
template void cross_entropy<Bf16>(const ExecutionSpace&, Vector<double>, Matrix<Bf16>, TokensIn, float);

}  // namespace minitaw::kernels::detail::host
