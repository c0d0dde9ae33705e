#include "kernels/rope.hpp"

#include "kernels/detail/rows.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

struct Table {
  Matrix<float> table;

  KOKKOS_FUNCTION void operator()(int position) const {
    const int pairs = static_cast<int>(table.extent(1)) / 2;
    float* const out = row_of(table, position);
    for (int i = 0; i < pairs; ++i) {
      const double angle = position * Kokkos::pow(10000.0, -static_cast<double>(i) / pairs);
      out[2 * i] = static_cast<float>(Kokkos::cos(angle));
      out[2 * i + 1] = static_cast<float>(Kokkos::sin(angle));
    }
  }
};

template <class E>
struct Turn {
  Matrix<E> qkv;
  Matrix<const float> table;
  int heads;
  float direction;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int token = team.league_rank(), seq = static_cast<int>(table.extent(0));
    const int head_dim = static_cast<int>(table.extent(1)), pairs = head_dim / 2;
    const float* const turn = row_of(table, token % seq);
    E* const row = row_of(qkv, token);
    const float sign = direction;
    for (int head = 0; head < heads; ++head) {
      E* const x = row + head * head_dim;
      row_for(team, pairs, [=](int i) {
        const float even = load(x[2 * i]), odd = load(x[2 * i + 1]);
        const float cosine = turn[2 * i], sine = sign * turn[2 * i + 1];
        x[2 * i] = store<E>(even * cosine - odd * sine);
        x[2 * i + 1] = store<E>(even * sine + odd * cosine);
      });
    }
  }
};

}  // namespace

void rope_table(const ExecutionSpace& exec, Matrix<float> table) {
  Kokkos::parallel_for("minitaw::rope_table", Kokkos::RangePolicy<ExecutionSpace>(exec, 0, table.extent(0)),
                       Table{table});
}

template <class E>
void rope_forward(const ExecutionSpace& exec, Matrix<E> qkv, Matrix<const float> table, int heads) {
  Kokkos::parallel_for("minitaw::rope_forward", row_policy(exec, qkv.extent(0)),
                       Turn<E>{qkv, table, heads, 1.0F});
}

template <class E>
void rope_backward(const ExecutionSpace& exec, Matrix<E> dqkv, Matrix<const float> table, int heads) {
  Kokkos::parallel_for("minitaw::rope_backward", row_policy(exec, dqkv.extent(0)),
                       Turn<E>{dqkv, table, heads, -1.0F});
}

template void rope_forward<float>(const ExecutionSpace&, Matrix<float>, Matrix<const float>, int);
template void rope_backward<float>(const ExecutionSpace&, Matrix<float>, Matrix<const float>, int);
template void rope_forward<Bf16>(const ExecutionSpace&, Matrix<Bf16>, Matrix<const float>, int);
template void rope_backward<Bf16>(const ExecutionSpace&, Matrix<Bf16>, Matrix<const float>, int);

}  // namespace minitaw::kernels
