#include "kernels/cross_entropy.hpp"

#include "kernels/detail/cross_entropy_kernels.hpp"
#include "kernels/detail/rows.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

/// A long row: the rows in work at a time should fit a device's second cache, because each is read twice.
inline constexpr int loss_threads = 512;
using LossPolicy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::LaunchBounds<loss_threads>>;

/// Largest logit so far and sum of exp(logit - largest), in one reading (Milakov & Gimelshein 2018).
struct Running {
  float largest;
  double sum = 0;

  template <int n>
  KOKKOS_FUNCTION void add(const Floats<n>& logits) {
    float top = logits[0], part = 0;
    for (int j = 1; j < n; ++j) top = logits[j] > top ? logits[j] : top;
    if (top > largest) {
      sum *= static_cast<double>(exponential(largest - top));
      largest = top;
    }
    for (int j = 0; j < n; ++j) part += exponential(logits[j] - largest);
    sum += static_cast<double>(part);
  }
};

/// Reads the row for its statistics, then again for its gradient: stored exponentials would cost a write
/// more.
template <class E, int n>
struct LossAndGradient {
  double* losses;
  E* logits;
  const std::int32_t* targets;
  float scale;
  int vocab;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int row = team.league_rank(), target = targets[row];
    E* const x = logits + std::int64_t{row} * vocab;
    const float at_target = load(x[target]), less = scale;
    Running running{at_target};
    row_each(team, vocab / n, [&](int i) { running.add(load_pack<n>(x, i)); });
    float largest = running.largest;
    team.team_reduce(Kokkos::Max<float>(largest));
    double sum = running.sum * static_cast<double>(exponential(running.largest - largest));
    team.team_reduce(Kokkos::Sum<double>(sum));
    const float factor = static_cast<float>(static_cast<double>(scale) / sum);
    row_for(team, vocab / n, [=](int i) {
      Floats<n> value = load_pack<n>(x, i);
      for (int j = 0; j < n; ++j)
        value[j] = exponential(value[j] - largest) * factor - (n * i + j == target ? less : 0.0F);
      store_pack<n>(x, i, value);
    });
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      losses[row] = static_cast<double>(largest) - static_cast<double>(at_target) + Kokkos::log(sum);
    });
  }
};

struct Sum {
  double* loss;
  const double* losses;
  int count;
  double scale;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const double* const rows = losses;
    const double sum = row_sum<double>(team, count, [=](int i) { return rows[i]; });
    Kokkos::single(Kokkos::PerTeam(team), [&] { *loss += scale * sum; });
  }
};

}  // namespace

template <class E>
void cross_entropy(const ExecutionSpace& exec, Vector<double> losses, Matrix<E> logits, TokensIn targets,
                   float scale) {
  const int rows = static_cast<int>(logits.extent(0)), vocab = static_cast<int>(logits.extent(1));
  if constexpr (on_host)
    if (!packs_on_host && threads_on_host == 1)
      return detail::host::cross_entropy(exec, losses, logits, targets, scale);
  with_packs<E>(vocab, {logits.data()}, [&](auto n) {
    Kokkos::parallel_for("minitaw::cross_entropy",
                         LossPolicy(exec, rows, team_threads(vocab / n, loss_threads)),
                         LossAndGradient<E, n>{losses.data(), logits.data(), targets.data(), scale, vocab});
  });
}

void sum_losses(const ExecutionSpace& exec, double* loss, Vector<const double> losses, double scale) {
  Kokkos::parallel_for("minitaw::sum_losses", detail::row_policy(exec, 1),
                       Sum{loss, losses.data(), static_cast<int>(losses.extent(0)), scale});
}

template void cross_entropy<float>(const ExecutionSpace&, Vector<double>, Matrix<float>, TokensIn, float);
template void cross_entropy<Bf16>(const ExecutionSpace&, Vector<double>, Matrix<Bf16>, TokensIn, float);

}  // namespace minitaw::kernels
