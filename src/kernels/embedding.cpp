#include "kernels/embedding.hpp"

#include "kernels/detail/rows.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

template <class E>
struct Forward {
  Matrix<E> x;
  Matrix<const E> table;
  TokensIn tokens;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const E* const in = row_of(table, tokens(team.league_rank()));
    E* const out = row_of(x, team.league_rank());
    row_for(team, static_cast<int>(x.extent(1)), [=](int i) { out[i] = in[i]; });
  }
};

template <class E>
struct Backward {
  Matrix<float> dtable;
  Matrix<const E> dx;
  TokensIn tokens, order, segments;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int begin = segments(team.league_rank()), end = segments(team.league_rank() + 1);
    float* const sums = row_of(dtable, tokens(order(begin)));
    for (int at = begin; at < end; ++at) {
      const E* const slope = row_of(dx, order(at));
      row_for(team, static_cast<int>(dx.extent(1)), [=](int i) { sums[i] += load(slope[i]); });
    }
  }
};

}  // namespace

template <class E>
void embedding_forward(const ExecutionSpace& exec, Matrix<E> x, MatrixIn<E> table, TokensIn tokens) {
  Kokkos::parallel_for("minitaw::embedding_forward", row_policy(exec, x.extent(0)),
                       Forward<E>{x, table, tokens});
}

template <class E>
void embedding_backward(const ExecutionSpace& exec, Matrix<float> dtable, MatrixIn<E> dx, TokensIn tokens,
                        TokensIn order, TokensIn segments) {
  Kokkos::parallel_for("minitaw::embedding_backward", row_policy(exec, segments.extent(0) - 1),
                       Backward<E>{dtable, dx, tokens, order, segments});
}

template void embedding_forward<float>(const ExecutionSpace&, Matrix<float>, MatrixIn<float>, TokensIn);
template void embedding_backward<float>(const ExecutionSpace&, Matrix<float>, MatrixIn<float>, TokensIn,
                                        TokensIn, TokensIn);
template void embedding_forward<Bf16>(const ExecutionSpace&, Matrix<Bf16>, MatrixIn<Bf16>, TokensIn);
template void embedding_backward<Bf16>(const ExecutionSpace&, Matrix<float>, MatrixIn<Bf16>, TokensIn,
                                       TokensIn, TokensIn);

}  // namespace minitaw::kernels
