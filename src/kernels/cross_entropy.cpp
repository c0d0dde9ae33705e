#include "kernels/cross_entropy.hpp"

#include "kernels/detail/rows.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

/// Floats on a host: exponentials take the place of the logits, so that each is computed once.
struct StoredExponentials {
  Vector<double> losses;
  Matrix<float> logits;
  TokensIn targets;
  float scale;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int row = team.league_rank(), vocab = static_cast<int>(logits.extent(1));
    float* const x = row_of(logits, row);
    const float at_target = x[targets(row)];
    const float largest = row_max(team, vocab, at_target, [=](int i) { return x[i]; });
    row_for(team, vocab, [=](int i) { x[i] = exponential(x[i] - largest); });
    // In double: a vocabulary of 10^5 small terms would lose half the digits of a float.
    const double sum = row_sum<double>(team, vocab, [=](int i) { return static_cast<double>(x[i]); });
    const float factor = static_cast<float>(scale / sum);
    row_for(team, vocab, [=](int i) { x[i] *= factor; });
    x[targets(row)] -= scale;
    losses(row) = static_cast<double>(largest) - static_cast<double>(at_target) + Kokkos::log(sum);
  }
};

/// Everything else reads the logits again: stored exponentials would cost another pass over memory, or
/// digits.
template <class E>
struct LossAndGradient {
  Vector<double> losses;
  Matrix<E> logits;
  TokensIn targets;
  float scale;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int row = team.league_rank(), vocab = static_cast<int>(logits.extent(1)), target = targets(row);
    E* const x = row_of(logits, row);
    const float at_target = load(x[target]);
    const float largest = row_max(team, vocab, at_target, [=](int i) { return load(x[i]); });
    const double sum = row_sum<double>(
        team, vocab, [=](int i) { return static_cast<double>(exponential(load(x[i]) - largest)); });
    const float factor = static_cast<float>(scale / sum), less = scale;
    row_for(team, vocab, [=](int i) {
      const float share = exponential(load(x[i]) - largest) * factor;
      x[i] = store<E>(i == target ? share - less : share);
    });
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      losses(row) = static_cast<double>(largest) - static_cast<double>(at_target) + Kokkos::log(sum);
    });
  }
};

struct Sum {
  double* loss;
  Vector<const double> losses;
  double scale;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const double* const rows = losses.data();
    const double sum =
        row_sum<double>(team, static_cast<int>(losses.extent(0)), [=](int i) { return rows[i]; });
    Kokkos::single(Kokkos::PerTeam(team), [&] { *loss += scale * sum; });
  }
};

}  // namespace

template <class E>
void cross_entropy(const ExecutionSpace& exec, Vector<double> losses, Matrix<E> logits, TokensIn targets,
                   float scale) {
  using Kernel =
      std::conditional_t<on_host && std::is_same_v<E, float>, StoredExponentials, LossAndGradient<E>>;
  Kokkos::parallel_for("minitaw::cross_entropy", detail::row_policy(exec, logits.extent(0)),
                       Kernel{losses, logits, targets, scale});
}

void sum_losses(const ExecutionSpace& exec, double* loss, Vector<const double> losses, double scale) {
  Kokkos::parallel_for("minitaw::sum_losses", detail::row_policy(exec, 1), Sum{loss, losses, scale});
}

template void cross_entropy<float>(const ExecutionSpace&, Vector<double>, Matrix<float>, TokensIn, float);
template void cross_entropy<Bf16>(const ExecutionSpace&, Vector<double>, Matrix<Bf16>, TokensIn, float);

}  // namespace minitaw::kernels
