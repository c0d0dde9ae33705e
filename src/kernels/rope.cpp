// SPDX-License-Identifier: BSD-3-Clause

#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {
namespace {
using namespace detail;

struct Table {
  float* table;
  int pairs;     ///< of a position
  int position;  ///< of the first row

  KOKKOS_FUNCTION void operator()(std::int64_t at) const {
    const double angle = static_cast<double>(position + at / pairs) *
                         Kokkos::pow(10000.0, -static_cast<double>(at % pairs) / pairs);
    table[2 * at] = static_cast<float>(Kokkos::cos(angle));
    table[2 * at + 1] = static_cast<float>(Kokkos::sin(angle));
  }
};

/// n elements of a head at a time: an even number, in one access each, or two one by one (n = 1).
template <class E, int n>
struct Turn {
  static constexpr int step = n == 1 ? 2 : n;

  E* qkv;
  const float* table;
  std::int64_t stride;  ///< elements from one token to the next
  int seq, heads, head_dim;
  float direction;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int token = team.league_rank(), steps = head_dim / step;
    const float* const turn = table + std::int64_t{token % seq} * head_dim;
    E* const row = qkv + token * stride;
    const float sign = direction;
    if (n == 1 && alone(team)) {  // loops without a division become vector code
      for (int head = 0; head < heads; ++head) {
        E* const x = row + head * head_dim;
        row_for(team, steps, [=](int i) { turn_pairs(x, i, turn, i, sign); });
      }
    } else {
      row_for(team, heads * steps, [=](int i) { turn_pairs(row, i, turn, i % steps, sign); });
    }
  }

  KOKKOS_FUNCTION static void turn_pairs(E* x, int i, const float* turn, int at, float sign) {
    if constexpr (n == 1) {
      const float even = load(x[2 * i]), odd = load(x[2 * i + 1]);
      const float cosine = turn[2 * at], sine = sign * turn[2 * at + 1];
      x[2 * i] = store<E>(even * cosine - odd * sine);
      x[2 * i + 1] = store<E>(even * sine + odd * cosine);
    } else {
      const Floats<n> in = load_pack<n>(x, i), angle = load_pack<n>(turn, at);
      Floats<n> out;
      for (int j = 0; j < n; j += 2) {
        const float sine = sign * angle[j + 1];
        out[j] = in[j] * angle[j] - in[j + 1] * sine;
        out[j + 1] = in[j] * sine + in[j + 1] * angle[j];
      }
      store_pack<n>(x, i, out);
    }
  }
};
}  // namespace

void rope_table(
    const ExecutionSpace& exec, Matrix<float> table, const std::vector<QueryRun>& runs) {
  const int pairs = static_cast<int>(table.extent(1)) / 2;
  for (const QueryRun& run : runs)
    Kokkos::parallel_for("minitaw::rope_table",
        FlatPolicy(exec, 0, std::int64_t{run.count} * pairs),
        Table{table.data() + std::int64_t{run.row} * 2 * pairs, pairs, run.position});
}

template <class E>
void rope(const ExecutionSpace& exec,
    Matrix<E> qkv,
    Matrix<const float> table,
    int heads,
    float direction) {
  const int head_dim = static_cast<int>(table.extent(1)), seq = static_cast<int>(table.extent(0));
  const auto stride = static_cast<std::int64_t>(qkv.extent(1));
  // the width of a token's row is a multiple of head_dim
  with_packs<E>(head_dim, {qkv.data(), table.data()}, [&](auto n) {
    using Kernel = Turn<E, n>;
    Kokkos::parallel_for("minitaw::rope",
        row_policy(exec, qkv.extent(0), heads * head_dim / Kernel::step),
        Kernel{qkv.data(), table.data(), stride, seq, heads, head_dim, direction});
  });
}

MINITAW_INSTANTIATE(rope)
}  // namespace minitaw::kernels
