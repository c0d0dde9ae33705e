#include "kernels/swiglu.hpp"

#include "kernels/detail/rows.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

KOKKOS_INLINE_FUNCTION float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }

template <class E>
struct Forward {
  Matrix<E> y;
  Matrix<const E> x;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int width = static_cast<int>(y.extent(1));
    const E* const gate = row_of(x, team.league_rank());
    const E* const up = gate + width;
    E* const out = row_of(y, team.league_rank());
    row_for(team, width, [=](int i) {
      const float g = load(gate[i]);
      out[i] = store<E>(g * sigmoid(g) * load(up[i]));
    });
  }
};

template <class E>
struct Backward {
  Matrix<E> dx, y;
  Matrix<const E> dy, x;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int row = team.league_rank(), width = static_cast<int>(y.extent(1));
    const E* const gate = row_of(x, row);
    const E* const slope = row_of(dy, row);
    E* const dgate = row_of(dx, row);
    E* const out = row_of(y, row);
    row_for(team, width, [=](int i) {
      const float g = load(gate[i]), u = load(gate[width + i]), d = load(slope[i]), s = sigmoid(g);
      dgate[i] = store<E>(d * u * s * (1.0F + g * (1.0F - s)));
      dgate[width + i] = store<E>(d * g * s);
      out[i] = store<E>(g * s * u);
    });
  }
};

}  // namespace

template <class E>
void swiglu_forward(const ExecutionSpace& exec, Matrix<E> y, MatrixIn<E> x) {
  Kokkos::parallel_for("minitaw::swiglu_forward", row_policy(exec, x.extent(0)), Forward<E>{y, x});
}

template <class E>
void swiglu_backward(const ExecutionSpace& exec, Matrix<E> dx, Matrix<E> y, MatrixIn<E> dy, MatrixIn<E> x) {
  Kokkos::parallel_for("minitaw::swiglu_backward", row_policy(exec, x.extent(0)), Backward<E>{dx, y, dy, x});
}

template void swiglu_forward<float>(const ExecutionSpace&, Matrix<float>, MatrixIn<float>);
template void swiglu_backward<float>(const ExecutionSpace&, Matrix<float>, Matrix<float>, MatrixIn<float>,
                                     MatrixIn<float>);
template void swiglu_forward<Bf16>(const ExecutionSpace&, Matrix<Bf16>, MatrixIn<Bf16>);
template void swiglu_backward<Bf16>(const ExecutionSpace&, Matrix<Bf16>, Matrix<Bf16>, MatrixIn<Bf16>,
                                    MatrixIn<Bf16>);

}  // namespace minitaw::kernels
