#pragma once

#include "kernels/detail/rows.hpp"

/// Rows that a kernel needs twice: once for a sum over the row, once for its result. Each thread of the team
/// holds its packs of the row in registers in between; rows that are too long for it are read again.
namespace minitaw::kernels::detail {

/// launch(n, held), both compile-time constants: with_packs, and how many packs a thread holds; 0: none.
template <class E, class Launch>
void with_held_packs(std::int64_t width, std::initializer_list<const void*> addresses, const Launch& launch) {
  with_packs<E>(width, addresses, [&](auto n) {
    const auto run = [&](auto held) { launch(n, held); };
    if constexpr (n > 1) {
      const int items = static_cast<int>(width / n), threads = team_threads(items);
      if (items <= threads) return run(std::integral_constant<int, 1>());
      if (items <= 2 * threads) return run(std::integral_constant<int, 2>());
      if (items <= 4 * threads) return run(std::integral_constant<int, 4>());
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
      if (i < count) body(i, slot);
    };
    // a loop might stay one, and registers have no index
    [&]<int... slot>(std::integer_sequence<int, slot...>) {
      (visit(slot), ...);
    }(std::make_integer_sequence<int, held>());
  }
}

/// Sum over the row of term(i, slot), which gives n values; known to the whole team.
template <int n, int held, class Term>
KOKKOS_INLINE_FUNCTION float held_sum(const RowTeam& team, int count, const Term& term) {
  if constexpr (n == 1) {
    return row_sum<float>(team, count, [&](int i) { return term(i, 0)[0]; });
  } else {
    Floats<n> sums = {};
    const auto add = [&](int i, int slot) {
      const Floats<n> values = term(i, slot);
      for (int j = 0; j < n; ++j) sums[j] += values[j];
    };
    if constexpr (held == 0) row_each(team, count, [&](int i) { add(i, 0); });
    else held_for<held>(team, count, add);
    for (int width = n / 2; width > 0; width /= 2)
      for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
    team.team_reduce(Kokkos::Sum<float>(sums[0]));
    return sums[0];
  }
}

/// An input row: read() at the first visit of a pack, again() or pack() later.
template <class E, int n, int held>
struct HeldRow {
  const E* row;
  Pack<E, n> packs[held];

  KOKKOS_INLINE_FUNCTION explicit HeldRow(const E* data) : row(data) {}
  KOKKOS_INLINE_FUNCTION Floats<n> read(int i, int slot) {
    packs[slot] = Pack<E, n>::read(row + n * i);
    return packs[slot].floats();
  }
  [[nodiscard]] KOKKOS_INLINE_FUNCTION const Pack<E, n>& pack(int, int slot) const { return packs[slot]; }
  [[nodiscard]] KOKKOS_INLINE_FUNCTION Floats<n> again(int, int slot) const { return packs[slot].floats(); }
};

template <class E, int n>
struct HeldRow<E, n, 0> {
  const E* row;

  KOKKOS_INLINE_FUNCTION explicit HeldRow(const E* data) : row(data) {}
  KOKKOS_INLINE_FUNCTION Floats<n> read(int i, int) const { return load_pack<n>(row, i); }
  [[nodiscard]] KOKKOS_INLINE_FUNCTION Pack<E, n> pack(int i, int) const {
    return Pack<E, n>::read(row + n * i);
  }
  [[nodiscard]] KOKKOS_INLINE_FUNCTION Floats<n> again(int i, int) const { return load_pack<n>(row, i); }
};

/// Sums of one column each over several rows, in registers or, for long rows, in the memory where they end.
template <int n, int held>
struct ColumnSums {
  float* row;
  Floats<n> sums[held] = {};

  KOKKOS_INLINE_FUNCTION ColumnSums(const RowTeam&, float* data, int) : row(data) {}
  KOKKOS_INLINE_FUNCTION void add(int, int slot, const Floats<n>& values) {
    for (int j = 0; j < n; ++j) sums[slot][j] += values[j];
  }
  KOKKOS_INLINE_FUNCTION void finish(const RowTeam& team, int count) const {
    held_for<held>(team, count, [&](int i, int slot) { store_pack<n>(row, i, sums[slot]); });
  }
};

template <int n>
struct ColumnSums<n, 0> {
  float* row;

  KOKKOS_INLINE_FUNCTION ColumnSums(const RowTeam& team, float* data, int count) : row(data) {
    row_for(team, count, [=](int i) { store_pack<n>(data, i, Floats<n>{}); });
  }
  KOKKOS_INLINE_FUNCTION void add(int i, int, const Floats<n>& values) const {
    Floats<n> sums = load_pack<n>(row, i);
    for (int j = 0; j < n; ++j) sums[j] += values[j];
    store_pack<n>(row, i, sums);
  }
  KOKKOS_INLINE_FUNCTION void finish(const RowTeam&, int) const {}
};

}  // namespace minitaw::kernels::detail
