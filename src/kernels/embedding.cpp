// SPDX-License-Identifier: BSD-3-Clause

#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {
namespace {
using namespace detail;

template <class E, int n>
struct Forward {
  E* x;
  const E* table;
  const std::int32_t* tokens;
  int width;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const E* const in = table + std::int64_t{tokens[team.league_rank()]} * width;
    E* const out = x + std::int64_t{team.league_rank()} * width;
    row_for(team, width / n, [=](int i) { Pack<E, n>::read(in + n * i).write(out + n * i); });
  }
};

template <class E, int n>
struct Backward {
  float* dtable;
  const E* dx;
  const std::int32_t *tokens, *order, *starts;
  int width;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int begin = starts[team.league_rank()], end = starts[team.league_rank() + 1];
    const E* const slopes = dx;
    const std::int32_t* const positions = order;
    const int stride = width;
    float* const sums = dtable + std::int64_t{tokens[order[begin]]} * width;
    if (n == 1 && alone(team)) {  // row by row: the sums stay in the nearest cache
      for (int at = begin; at < end; ++at) {
        const E* const slope = slopes + std::int64_t{positions[at]} * stride;
        row_for(team, stride, [=](int i) { sums[i] += load(slope[i]); });
      }
    } else {  // column by column: each sum stays in a register
      row_for(team, stride / n, [=](int i) {
        Floats<n> sum = load_pack<n>(sums, i);
        for (int at = begin; at < end; ++at)
          sum += load_pack<n>(slopes + std::int64_t{positions[at]} * stride, i);
        store_pack<n>(sums, i, sum);
      });
    }
  }
};
}  // namespace

template <class E>
void embedding_forward(
    const ExecutionSpace& exec, Matrix<E> x, MatrixIn<E> table, TokensIn tokens) {
  const int width = static_cast<int>(x.extent(1));
  for_rows<E>("minitaw::embedding_forward",
      exec,
      x.extent(0),
      width,
      {x.data(), table.data()},
      [&](auto n) { return Forward<E, n>{x.data(), table.data(), tokens.data(), width}; });
}

template <class E>
void embedding_backward(const ExecutionSpace& exec,
    Matrix<float> dtable,
    MatrixIn<E> dx,
    TokensIn tokens,
    TokensIn order,
    TokensIn starts) {
  const int width = static_cast<int>(dx.extent(1));
  for_rows<E>("minitaw::embedding_backward",
      exec,
      starts.extent(0) - 1,
      width,
      {dtable.data(), dx.data()},
      [&](auto n) {
        return Backward<E, n>{
            dtable.data(), dx.data(), tokens.data(), order.data(), starts.data(), width};
      });
}

MINITAW_INSTANTIATE(embedding_forward)
MINITAW_INSTANTIATE(embedding_backward)
}  // namespace minitaw::kernels
