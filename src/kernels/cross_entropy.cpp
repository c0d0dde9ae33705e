// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cmath>
#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {
namespace {
using namespace detail;

#ifdef MINITAW_HOST_KERNELS
// The version for one thread of a host: short loops that compilers turn into vector code.

/// Float exponentials replace the logits. bf16 would lose digits: there they are computed again,
/// block by block.
template <class E>
struct Row {
  static constexpr bool kept = std::is_same_v<E, float>;
  static constexpr int block = 512;

  E* x;
  int count;

  /// use(values, their number, where they are from)
  template <class Use>
  void blocks(const Use& use) const {
    if constexpr (kept) {
      use(x, count, x);
    } else {
      float values[block];
      for (int begin = 0; begin < count; begin += block) {
        const int size = std::min(block, count - begin);
        for (int i = 0; i < size; ++i)
          values[i] = load(x[begin + i]);
        use(values, size, x + begin);
      }
    }
  }

  float largest(float least) const {
    blocks([&](const float* values, int size, E*) {
      least = lane_reduce(
          size,
          least,
          [=](int i) { return values[i]; },
          [](float a, float b) { return b > a ? b : a; });
    });
    return least;
  }

  /// Their sum, in double: a vocabulary of 10^5 small terms would lose half the digits of a float.
  double exponentials(const RowTeam& team, float largest) const {
    double sum = 0;
    blocks([&](float* values, int size, E*) {
      row_for(team, size, [=](int i) { values[i] = host_exponential(values[i] - largest); });
      sum += row_sum<double>(team, size, [=](int i) { return static_cast<double>(values[i]); });
    });
    return sum;
  }

  void scale(const RowTeam& team, float largest, float factor) const {
    blocks([&](const float* values, int size, E* out) {
      row_for(team, size, [=](int i) {
        const float exponential = kept ? values[i] : host_exponential(values[i] - largest);
        out[i] = store<E>(exponential * factor);
      });
    });
  }
};

template <class E>
struct HostLossAndGradient {
  double* losses;
  E* logits;
  const std::int32_t* targets;
  float scale;
  int vocab;

  void operator()(const RowTeam& team) const {
    const int row = team.league_rank();
    const Row<E> x{logits + std::int64_t{row} * vocab, vocab};
    E& target = x.x[targets[row]];
    const float at_target = load(target), largest = x.largest(at_target);
    const double sum = x.exponentials(team, largest);
    const float factor = static_cast<float>(scale / sum);
    x.scale(team, largest, factor);
    target = store<E>(host_exponential(at_target - largest) * factor - scale);
    losses[row] = static_cast<double>(largest) - static_cast<double>(at_target) + std::log(sum);
  }
};

#endif

/// A long row: the rows in work at a time should fit a device's second cache, because each is read
/// twice.
inline constexpr int loss_threads = 512;
using LossPolicy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::LaunchBounds<loss_threads>>;

/// Largest logit so far and sum of exp(logit - largest), in one reading (Milakov & Gimelshein
/// 2018).
struct Running {
  float largest;
  double sum = 0;

  template <int n>
  KOKKOS_FUNCTION void add(const Floats<n>& logits) {
    float top = logits[0], part = 0;
    for (int j = 1; j < n; ++j)
      top = logits[j] > top ? logits[j] : top;
    if (top > largest) {
      sum *= static_cast<double>(exponential(largest - top));
      largest = top;
    }
    for (int j = 0; j < n; ++j)
      part += exponential(logits[j] - largest);
    sum += static_cast<double>(part);
  }
};

/// Reads the row for its statistics and again for its gradient: stored exponentials would cost a
/// write.
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
      losses[row] =
          static_cast<double>(largest) - static_cast<double>(at_target) + Kokkos::log(sum);
    });
  }
};
}  // namespace

template <class E>
void cross_entropy(const ExecutionSpace& exec,
    Vector<double> losses,
    Matrix<E> logits,
    TokensIn targets,
    float scale) {
  const int rows = static_cast<int>(logits.extent(0)), vocab = static_cast<int>(logits.extent(1));
#ifdef MINITAW_HOST_KERNELS
  if (!packs_on_host && threads_on_host == 1)
    return Kokkos::parallel_for("minitaw::cross_entropy",
        row_policy(exec, rows),
        HostLossAndGradient<E>{losses.data(), logits.data(), targets.data(), scale, vocab});
#endif
  with_packs<E>(vocab, {logits.data()}, [&](auto n) {
    Kokkos::parallel_for("minitaw::cross_entropy",
        LossPolicy(exec, rows, team_threads(vocab / n, loss_threads)),
        LossAndGradient<E, n>{losses.data(), logits.data(), targets.data(), scale, vocab});
  });
}

MINITAW_INSTANTIATE(cross_entropy)
}  // namespace minitaw::kernels
