// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cmath>
#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {
namespace {
using namespace detail;

/// to = from, rounded to its type, or with `adds` +=.
template <class To, class From, bool adds>
struct Convert {
  To* to;
  const From* from;

  template <int n>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    convert_pack<n, adds>(to + i, from + i, 0);
  }
};

/// The sum of the squares of a run of values for each row.
struct Squares {
  double* partials;
  const float* values;
  std::int64_t count, each;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const std::int64_t begin = team.league_rank() * each, left = count - begin;
    const float* const run = values + begin;
    const double sum = row_sum<double>(team,
        static_cast<int>(left < each ? left : each),
        [=](int i) { return static_cast<double>(run[i]) * static_cast<double>(run[i]); });
    Kokkos::single(Kokkos::PerTeam(team), [&] { partials[team.league_rank()] = sum; });
  }
};

/// *sum = factor times the sum of the terms, or with `adds` +=.
template <class T>
struct Sum {
  T* sum;
  const double* terms;
  int count;
  double factor;
  bool adds;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const double* const values = terms;
    const double more = row_sum<double>(team, count, [=](int i) { return values[i]; });
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      const double before = adds ? static_cast<double>(*sum) : 0.0;
      *sum = static_cast<T>(before + factor * more);
    });
  }
};

/// The master weights; with `rounded` also their copy in the compute type; with `clips` the
/// gradient is shortened.
template <class E, bool rounded, bool clips>
struct Update {
  E* weights;
  float* master;
  float* moment1;
  float* moment2;
  const float* gradient;
  AdamW settings;
  float correction1, correction2;  ///< 1 / (1 - beta^step)
  const float* squares;

  template <int n>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    Floats<n> g = load_pack<n>(gradient + i, 0);
    if constexpr (clips) {
      const float factor = clip_factor(settings.clip_norm, Kokkos::sqrt(*squares));
      for (int j = 0; j < n; ++j)
        g[j] *= factor;
    }
    Floats<n> w = load_pack<n>(master + i, 0), m1 = load_pack<n>(moment1 + i, 0),
              m2 = load_pack<n>(moment2 + i, 0);
    for (int j = 0; j < n; ++j) {
      m1[j] = settings.beta1 * m1[j] + (1.0F - settings.beta1) * g[j];
      m2[j] = settings.beta2 * m2[j] + (1.0F - settings.beta2) * g[j] * g[j];
      const float direction =
          m1[j] * correction1 / (Kokkos::sqrt(m2[j] * correction2) + settings.epsilon);
      w[j] -= settings.learning_rate * (direction + settings.decay * w[j]);
    }
    store_pack<n>(moment1 + i, 0, m1);
    store_pack<n>(moment2 + i, 0, m2);
    store_pack<n>(master + i, 0, w);
    if constexpr (rounded)
      store_pack<n>(weights + i, 0, w);
  }
};

/// A thread draws blocks of four numbers, in step, for vector code on a host; a device's thread has
/// one block.
template <class E>
struct Run {
  static constexpr int blocks = on_host ? 64 : 1, numbers = 4 * blocks;
  E* weights;
  float* master;
  std::int64_t count;
  UniformRow row;
  std::int64_t first;  ///< number of the row that comes to place 0

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t begin = first / 4 + i * blocks, at = 4 * begin - first;
    float drawn[numbers];
    draw(drawn, static_cast<std::uint64_t>(begin));
    const int from = at < 0 ? static_cast<int>(-at) : 0,
              to = at + numbers > count ? static_cast<int>(count - at) : numbers;
    if (master)
      for (int k = from; k < to; ++k)
        master[at + k] = drawn[k];
    if (weights)
      for (int k = from; k < to; ++k)
        weights[at + k] = store<E>(drawn[k]);
  }

  KOKKOS_FUNCTION void draw(float* drawn, std::uint64_t begin) const {
    Words<blocks> a, b, c, d;
    for (int k = 0; k < blocks; ++k) {
      const std::uint64_t block = begin + static_cast<std::uint64_t>(k);
      a.word[k] = static_cast<std::uint32_t>(block);
      b.word[k] = static_cast<std::uint32_t>(block >> 32);
      c.word[k] = row.row[0];
      d.word[k] = row.row[1];
    }
    philox(a, b, c, d, row.key);
    for (int k = 0; k < blocks; ++k) {
      drawn[4 * k] = row.number(a.word[k]);
      drawn[4 * k + 1] = row.number(b.word[k]);
      drawn[4 * k + 2] = row.number(c.word[k]);
      drawn[4 * k + 3] = row.number(d.word[k]);
    }
  }
};
}  // namespace

template <class E>
void add(const ExecutionSpace& exec,
    Vector<float> accumulator,
    VectorIn<E> contribution,
    bool accumulate) {
  with_constant(accumulate, [&](auto adds) {
    flat_for<E>("minitaw::add",
        exec,
        static_cast<std::int64_t>(accumulator.extent(0)),
        {accumulator.data(), contribution.data()},
        Convert<float, E, adds>{accumulator.data(), contribution.data()});
  });
}

template <class E>
void round(const ExecutionSpace& exec, Vector<E> rounded, Vector<const float> sum) {
  flat_for<E>("minitaw::round",
      exec,
      static_cast<std::int64_t>(rounded.extent(0)),
      {rounded.data(), sum.data()},
      Convert<E, float, false>{rounded.data(), sum.data()});
}

void sum_losses(
    const ExecutionSpace& exec, double* loss, Vector<const double> losses, double scale) {
  Kokkos::parallel_for("minitaw::sum_losses",
      row_policy(exec, 1),
      Sum<double>{loss, losses.data(), static_cast<int>(losses.extent(0)), scale, true});
}

void add_squares(const ExecutionSpace& exec,
    float* sum,
    double* partials,
    Vector<const float> values,
    bool accumulate) {
  const auto count = static_cast<std::int64_t>(values.extent(0));
  const std::int64_t each =
      std::max<std::int64_t>(1, (count + most_square_partials - 1) / most_square_partials);
  const int rows = static_cast<int>((count + each - 1) / each);
  if (rows > 0)
    Kokkos::parallel_for(
        "minitaw::squares", row_policy(exec, rows), Squares{partials, values.data(), count, each});
  Kokkos::parallel_for(
      "minitaw::add_squares", row_policy(exec, 1), Sum<float>{sum, partials, rows, 1, accumulate});
}

template <class E>
void adamw(const ExecutionSpace& exec,
    Vector<E> weights,
    Vector<float> master,
    Vector<float> moment1,
    Vector<float> moment2,
    Vector<const float> gradient,
    const AdamW& settings,
    int step,
    const float* squares) {
  const auto correction = [step](float beta) {
    return static_cast<float>(1 / (1 - std::pow(double{beta}, step)));
  };
  // In fp32 the weights may be the master weights: one array, so that the loop stays vector code.
  const bool one_array =
      static_cast<const void*>(weights.data()) == static_cast<const void*>(master.data());
  with_constant(!one_array, [&](auto rounded) {
    with_constant(settings.clip_norm > 0, [&](auto clips) {
      flat_for<E>("minitaw::adamw",
          exec,
          static_cast<std::int64_t>(weights.extent(0)),
          {weights.data(), master.data(), moment1.data(), moment2.data(), gradient.data()},
          Update<E, rounded, clips>{weights.data(),
              master.data(),
              moment1.data(),
              moment2.data(),
              gradient.data(),
              settings,
              correction(settings.beta1),
              correction(settings.beta2),
              squares});
    });
  });
}

template <class E>
void uniform(const ExecutionSpace& exec,
    Vector<E> weights,
    Vector<float> master,
    std::int64_t first,
    const UniformRow& row) {
  const auto count = static_cast<std::int64_t>(std::max(weights.extent(0), master.extent(0)));
  if (count == 0)
    return;
  const std::int64_t blocks = (first + count + 3) / 4 - first / 4;
  Kokkos::parallel_for("minitaw::uniform",
      FlatPolicy(exec, 0, (blocks + Run<E>::blocks - 1) / Run<E>::blocks),
      Run<E>{weights.data(), master.data(), count, row, first});
}

MINITAW_INSTANTIATE(add)
MINITAW_INSTANTIATE(round)
MINITAW_INSTANTIATE(adamw)
MINITAW_INSTANTIATE(uniform)
}  // namespace minitaw::kernels
