// SPDX-License-Identifier: BSD-3-Clause

#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {
namespace {
using namespace detail;

KOKKOS_INLINE_FUNCTION float sigmoid(float x) {
  return 1.0F / (1.0F + exponential(-x));
}

template <class E, int n>
struct Forward {
  E* y;
  const E* x;
  int width;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const E* const gate = x + std::int64_t{team.league_rank()} * 2 * width;
    const E* const up = gate + width;
    E* const out = y + std::int64_t{team.league_rank()} * width;
    row_for(team, width / n, [=](int i) {
      const Floats<n> g = load_pack<n>(gate, i), u = load_pack<n>(up, i);
      Floats<n> result;
      for (int j = 0; j < n; ++j)
        result[j] = g[j] * sigmoid(g[j]) * u[j];
      store_pack<n>(out, i, result);
    });
  }
};

template <class E, int n>
struct Backward {
  E* dx;
  E* y;
  const E* dy;
  const E* x;
  int width;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const std::int64_t row = std::int64_t{team.league_rank()} * width;
    const E* const gate = x + 2 * row;
    const E* const up = gate + width;
    const E* const slope = dy + row;
    E* const dgate = dx + 2 * row;
    E* const dup = dgate + width;
    E* const out = y + row;
    row_for(team, width / n, [=](int i) {
      const Floats<n> g = load_pack<n>(gate, i), u = load_pack<n>(up, i),
                      d = load_pack<n>(slope, i);
      Floats<n> of_gate, of_up, product;
      for (int j = 0; j < n; ++j) {
        const float s = sigmoid(g[j]);
        of_gate[j] = d[j] * u[j] * s * (1.0F + g[j] * (1.0F - s));
        of_up[j] = d[j] * g[j] * s;
        product[j] = g[j] * s * u[j];
      }
      store_pack<n>(dgate, i, of_gate);
      store_pack<n>(dup, i, of_up);
      store_pack<n>(out, i, product);
    });
  }
};
}  // namespace

template <class E>
void swiglu_forward(const ExecutionSpace& exec, Matrix<E> y, MatrixIn<E> x) {
  const int width = static_cast<int>(y.extent(1));
  for_rows<E>(
      "minitaw::swiglu_forward", exec, x.extent(0), width, {y.data(), x.data()}, [&](auto n) {
        return Forward<E, n>{y.data(), x.data(), width};
      });
}

template <class E>
void swiglu_backward(
    const ExecutionSpace& exec, Matrix<E> dx, Matrix<E> y, MatrixIn<E> dy, MatrixIn<E> x) {
  const int width = static_cast<int>(y.extent(1));
  for_rows<E>("minitaw::swiglu_backward",
      exec,
      x.extent(0),
      width,
      {dx.data(), y.data(), dy.data(), x.data()},
      [&](auto n) { return Backward<E, n>{dx.data(), y.data(), dy.data(), x.data(), width}; });
}

MINITAW_INSTANTIATE(swiglu_forward)
MINITAW_INSTANTIATE(swiglu_backward)
}  // namespace minitaw::kernels
