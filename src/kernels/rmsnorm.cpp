// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {
namespace {
using namespace detail;

// Rows that a kernel needs twice: once for a sum over the row, once for its result. Each thread of
// the team holds its packs of the row in registers in between; rows that are too long for it are
// read again.

/// launch(n, held), both compile-time constants: with_packs, and how many packs a thread holds; 0:
/// none.
template <class E, class Launch>
void with_held_packs(
    std::int64_t width, std::initializer_list<const void*> addresses, const Launch& launch) {
  with_packs<E>(width, addresses, [&](auto n) {
    const auto run = [&](auto held) { launch(n, held); };
    if constexpr (n > 1) {
      const int items = static_cast<int>(width / n), threads = team_threads(items);
      if (items <= threads)
        return run(std::integral_constant<int, 1>());
      if (items <= 2 * threads)
        return run(std::integral_constant<int, 2>());
      if (items <= 4 * threads)
        return run(std::integral_constant<int, 4>());
    }
    run(std::integral_constant<int, 0>());
  });
}

/// body(i, slot) for the packs [0, count) of a row: slot counts the packs that the thread holds.
template <int held, class Body>
KOKKOS_INLINE_FUNCTION void held_for(const RowTeam& team, int count, const Body& body) {
  if constexpr (held == 0) {
    row_for(team, count, [&](int i) { body(i, 0); });
  } else {
    const auto visit = [&](int slot) {
      const int i = team.team_rank() + slot * team.team_size();
      if (i < count)
        body(i, slot);
    };
    // a loop might stay one, and registers have no index
    [&]<int... slot>(std::integer_sequence<int, slot...>) { (visit(slot), ...); }(
        std::make_integer_sequence<int, held>());
  }
}

/// Sum over the row of term(i, slot), which gives n values; known to the whole team.
template <int n, int held, class Term>
KOKKOS_INLINE_FUNCTION float held_sum(const RowTeam& team, int count, const Term& term) {
  if constexpr (n == 1) {
    return row_sum<float>(team, count, [&](int i) { return term(i, 0)[0]; });
  } else {
    Floats<n> sums = {};
    const auto add = [&](int i, int slot) { sums += term(i, slot); };
    if constexpr (held == 0)
      row_each(team, count, [&](int i) { add(i, 0); });
    else
      held_for<held>(team, count, add);
    for (int width = n / 2; width > 0; width /= 2)
      for (int j = 0; j < width; ++j)
        sums[j] += sums[j + width];
    team.team_reduce(Kokkos::Sum<float>(sums[0]));
    return sums[0];
  }
}

/// An input row: read() at the first visit of a pack, pack() later.
template <class E, int n, int held>
struct HeldRow {
  const E* row;
  Pack<E, n> packs[held > 0 ? held : 1];

  KOKKOS_INLINE_FUNCTION explicit HeldRow(const E* data) : row(data) {}

  KOKKOS_INLINE_FUNCTION Floats<n> read(int i, int slot) {
    const auto pack = Pack<E, n>::read(row + n * i);
    if constexpr (held > 0)
      packs[slot] = pack;
    return pack.floats();
  }

  KOKKOS_INLINE_FUNCTION Pack<E, n> pack(int i, int slot) const {
    if constexpr (held == 0)
      return Pack<E, n>::read(row + n * i);
    else
      return packs[slot];
  }
};

/// Sums of one column each over several rows, in registers or, for long rows, in the memory where
/// they end.
template <int n, int held>
struct ColumnSums {
  float* row;
  Floats<n> sums[held > 0 ? held : 1] = {};

  KOKKOS_INLINE_FUNCTION ColumnSums(const RowTeam& team, float* data, int count) : row(data) {
    if constexpr (held == 0)
      row_for(team, count, [=](int i) { store_pack<n>(data, i, Floats<n>{}); });
  }

  KOKKOS_INLINE_FUNCTION void add(int i, int slot, const Floats<n>& values) {
    if constexpr (held == 0)
      sums[0] = load_pack<n>(row, i);
    sums[slot] += values;
    if constexpr (held == 0)
      store_pack<n>(row, i, sums[0]);
  }

  KOKKOS_INLINE_FUNCTION void finish(const RowTeam& team, int count) const {
    if constexpr (held > 0)
      held_for<held>(team, count, [&](int i, int slot) { store_pack<n>(row, i, sums[slot]); });
  }
};

/// One row of each matrix that a team works on.
KOKKOS_INLINE_FUNCTION std::int64_t row_start(const RowTeam& team, int width) {
  return std::int64_t{team.league_rank()} * width;
}

template <class E, int n, int held>
struct Forward {
  E* y;
  float* rstd;
  E* copy;
  const E* x;
  const E* gain;
  int width;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const std::int64_t start = row_start(team, width);
    const E* const weight = gain;
    E* const out = y + start;
    HeldRow<E, n, held> in(x + start);
    const float squares = held_sum<n, held>(team, width / n, [&](int i, int slot) {
      Floats<n> values = in.read(i, slot);
      values *= values;
      return values;
    });
    const float scale = 1.0F / Kokkos::sqrt(squares / static_cast<float>(width) + 1e-5F);
    if (copy) {
      E* const kept = copy + start;
      held_for<held>(
          team, width / n, [&](int i, int slot) { in.pack(i, slot).write(kept + n * i); });
    }
    held_for<held>(team, width / n, [&](int i, int slot) {
      Floats<n> values = in.pack(i, slot).floats();
      const Floats<n> w = load_pack<n>(weight, i);
      for (int j = 0; j < n; ++j)
        values[j] = values[j] * scale * w[j];
      store_pack<n>(out, i, values);
    });
    Kokkos::single(Kokkos::PerTeam(team), [&] { rstd[team.league_rank()] = scale; });
  }
};

/// Teams of rmsnorm_backward that a multiprocessor of 2048 threads shall hold at a time: it waits
/// for memory, and one team does not keep that busy. Each thread has 65536 / (3 x 256) registers,
/// 80 on NVIDIA's devices.
inline constexpr int resident = 3;
using BackwardPolicy =
    Kokkos::TeamPolicy<ExecutionSpace, Kokkos::LaunchBounds<most_threads, resident>>;

/// A team takes a run of rows, so that the gain's gradient stays in its own partial sum.
template <class E, int n, int held>
struct Backward {
  E* dx;
  float* gain_partial;
  const E* dy;
  const E* residual;
  const E* x;
  const float* rstd;
  const E* gain;
  int run, longer;  ///< rows of a chunk; of the first `longer` chunks, one more
  int width;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int chunk = team.league_rank();
    const std::int64_t begin = std::int64_t{run} * chunk + (chunk < longer ? chunk : longer);
    ColumnSums<n, held> sums(team, gain_partial + row_start(team, width), width / n);
    for (int i = 0; i < run + (chunk < longer ? 1 : 0); ++i)
      one_row(team, begin + i, sums);
    sums.finish(team, width / n);
  }

  KOKKOS_FUNCTION void one_row(
      const RowTeam& team, std::int64_t row, ColumnSums<n, held>& sums) const {
    HeldRow<E, n, held> in(x + row * width), slope(dy + row * width);
    // read with the others, though needed last: its way from memory then costs no time of its own
    HeldRow<E, n, held> through(residual ? residual + row * width : nullptr);
    const E* const weight = gain;
    E* const out = dx + row * width;
    const float scale = rstd[row];
    const float dot = held_sum<n, held>(team, width / n, [&](int i, int slot) {
      const Floats<n> value = in.read(i, slot);
      Floats<n> terms = slope.read(i, slot);
      terms *= load_pack<n>(weight, i);
      if constexpr (held > 0)
        if (through.row)
          (void)through.read(i, slot);
      terms *= value;
      return terms;
    });
    const float shrink = scale * scale * dot / static_cast<float>(width);
    held_for<held>(team, width / n, [&](int i, int slot) {
      const Floats<n> value = in.pack(i, slot).floats(), change = slope.pack(i, slot).floats(),
                      w = load_pack<n>(weight, i);
      Floats<n> share, result;
      for (int j = 0; j < n; ++j) {
        share[j] = change[j] * value[j] * scale;
        result[j] = scale * (change[j] * w[j] - value[j] * shrink);
      }
      sums.add(i, slot, share);
      if (through.row)
        result += through.pack(i, slot).floats();
      store_pack<n>(out, i, result);
    });
  }
};

/// A team sums a strip of columns, its threads in several parts of the chunks.
template <class G>
struct GainSum {
  static constexpr int columns = 32, parts = most_threads / columns;

  G* dgain;
  const float* partial;
  int chunks, width;
  bool accumulate;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const Scratch scratch(team.team_scratch(0), columns * parts);
    float* const sums = scratch.data();
    const int first = team.league_rank() * columns;
    row_for(team, columns * parts, [=, *this](int i) {
      sums[i] = part_of(first + i % columns, i / columns);
    });
    team.team_barrier();
    row_for(team, columns, [=, *this](int i) {
      if (first + i >= width)
        return;
      float sum = accumulate ? load(dgain[first + i]) : 0.0F;
      for (int part = 0; part < parts; ++part)
        sum += sums[part * columns + i];
      dgain[first + i] = store<G>(sum);
    });
  }

  KOKKOS_FUNCTION float part_of(int column, int part) const {
    float sum = 0;
    if (column < width)
      for (int chunk = part; chunk < chunks; chunk += parts)
        sum += partial[std::int64_t{chunk} * width + column];
    return sum;
  }
};
}  // namespace

template <class E>
void rmsnorm_forward(const ExecutionSpace& exec,
    Matrix<E> y,
    Vector<float> rstd,
    Matrix<E> copy,
    MatrixIn<E> x,
    VectorIn<E> gain) {
  const int width = static_cast<int>(x.extent(1));
  with_held_packs<E>(width, {y.data(), copy.data(), x.data(), gain.data()}, [&](auto n, auto held) {
    Kokkos::parallel_for("minitaw::rmsnorm_forward",
        row_policy(exec, x.extent(0), width / n),
        Forward<E, n, held>{y.data(), rstd.data(), copy.data(), x.data(), gain.data(), width});
  });
}

std::int64_t rmsnorm_chunks(std::int64_t rows) {
  std::int64_t chunks = 256;
  if constexpr (!on_host) {
    constexpr int threads_at_a_time = 2048;
    chunks = std::int64_t{ExecutionSpace().concurrency()} / threads_at_a_time * resident;
  }
  return std::clamp<std::int64_t>(chunks, 1, std::min(rows, most_rmsnorm_chunks));
}

template <class E>
void rmsnorm_backward(const ExecutionSpace& exec,
    Matrix<E> dx,
    Matrix<float> gain_partial,
    MatrixIn<E> dy,
    MatrixIn<E> residual,
    MatrixIn<E> x,
    Vector<const float> rstd,
    VectorIn<E> gain) {
  const int width = static_cast<int>(x.extent(1)), rows = static_cast<int>(x.extent(0)),
            chunks = static_cast<int>(gain_partial.extent(0));
  with_held_packs<E>(width,
      {dx.data(), gain_partial.data(), dy.data(), residual.data(), x.data(), gain.data()},
      [&](auto n, auto held) {
        Kokkos::parallel_for("minitaw::rmsnorm_backward",
            BackwardPolicy(exec, chunks, team_threads(width / n)),
            Backward<E, n, held>{dx.data(),
                gain_partial.data(),
                dy.data(),
                residual.data(),
                x.data(),
                rstd.data(),
                gain.data(),
                rows / chunks,
                rows % chunks,
                width});
      });
}

template <class G>
void rmsnorm_backward_gain(const ExecutionSpace& exec,
    Vector<G> dgain,
    Matrix<const float> gain_partial,
    bool accumulate) {
  using Kernel = GainSum<G>;
  const int width = static_cast<int>(dgain.extent(0)),
            chunks = static_cast<int>(gain_partial.extent(0));
  auto policy = row_policy(exec, (width + Kernel::columns - 1) / Kernel::columns);
  policy.set_scratch_size(0, Kokkos::PerTeam(Scratch::shmem_size(Kernel::columns * Kernel::parts)));
  Kokkos::parallel_for("minitaw::rmsnorm_backward_gain",
      policy,
      Kernel{dgain.data(), gain_partial.data(), chunks, width, accumulate});
}

MINITAW_INSTANTIATE(rmsnorm_forward)
MINITAW_INSTANTIATE(rmsnorm_backward)
MINITAW_INSTANTIATE(rmsnorm_backward_gain)
}  // namespace minitaw::kernels
