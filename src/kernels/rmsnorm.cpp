#include "kernels/rmsnorm.hpp"

#include "kernels/detail/rows.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

template <class E>
struct Forward {
  Matrix<E> y;
  Vector<float> rstd;
  Matrix<E> copy;
  Matrix<const E> x;
  Vector<const E> gain;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int row = team.league_rank(), width = static_cast<int>(x.extent(1));
    const E* const in = row_of(x, row);
    E* const out = row_of(y, row);
    E* const kept = copy.data() ? row_of(copy, row) : nullptr;
    const E* const weight = gain.data();
    const float squares = row_sum<float>(team, width, [=](int i) { return load(in[i]) * load(in[i]); });
    const float scale = 1.0F / Kokkos::sqrt(squares / static_cast<float>(width) + 1e-5F);
    if (kept) row_for(team, width, [=](int i) { kept[i] = in[i]; });
    row_for(team, width, [=](int i) { out[i] = store<E>(load(in[i]) * scale * load(weight[i])); });
    Kokkos::single(Kokkos::PerTeam(team), [&] { rstd(row) = scale; });
  }
};

template <class E>
struct Rebuild {
  Matrix<E> y;
  Matrix<const E> x;
  Vector<const float> rstd;
  Vector<const E> gain;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int row = team.league_rank();
    const E* const in = row_of(x, row);
    E* const out = row_of(y, row);
    const E* const weight = gain.data();
    const float scale = rstd(row);
    row_for(team, static_cast<int>(x.extent(1)),
            [=](int i) { out[i] = store<E>(load(in[i]) * scale * load(weight[i])); });
  }
};

/// A team takes a run of rows, so that the gain's gradient stays in its own partial sum.
template <class E>
struct Backward {
  Matrix<E> dx;
  Matrix<float> gain_partial;
  Matrix<const E> dy, residual, x;
  Vector<const float> rstd;
  Vector<const E> gain;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const std::int64_t rows = x.extent(0), chunks = gain_partial.extent(0), chunk = team.league_rank();
    const int width = static_cast<int>(x.extent(1));
    float* const sums = row_of(gain_partial, chunk);
    row_for(team, width, [=](int i) { sums[i] = 0; });
    for (std::int64_t row = chunk * rows / chunks; row < (chunk + 1) * rows / chunks; ++row)
      one_row(team, row, width, sums);
  }

  KOKKOS_FUNCTION void one_row(const RowTeam& team, std::int64_t row, int width, float* sums) const {
    const E* const in = row_of(x, row);
    const E* const slope = row_of(dy, row);
    const E* const weight = gain.data();
    const E* const through = residual.data() ? row_of(residual, row) : nullptr;
    E* const out = row_of(dx, row);
    const float scale = rstd(row);
    const float dot =
        row_sum<float>(team, width, [=](int i) { return load(slope[i]) * load(weight[i]) * load(in[i]); });
    const float shrink = scale * scale * dot / static_cast<float>(width);
    row_for(team, width, [=](int i) {
      const float value = load(in[i]), change = load(slope[i]);
      sums[i] += change * value * scale;
      const float result = scale * (change * load(weight[i]) - value * shrink);
      out[i] = store<E>(through ? load(through[i]) + result : result);
    });
  }
};

template <class G>
struct GainSum {
  Vector<G> dgain;
  Matrix<const float> partial;
  bool accumulate;

  KOKKOS_FUNCTION void operator()(int i) const {
    float sum = accumulate ? load(dgain(i)) : 0.0F;
    for (std::size_t chunk = 0; chunk < partial.extent(0); ++chunk) sum += row_of(partial, chunk)[i];
    dgain(i) = store<G>(sum);
  }
};

}  // namespace

template <class E>
void rmsnorm_forward(const ExecutionSpace& exec, Matrix<E> y, Vector<float> rstd, Matrix<E> copy,
                     MatrixIn<E> x, VectorIn<E> gain) {
  Kokkos::parallel_for("minitaw::rmsnorm_forward", row_policy(exec, x.extent(0)),
                       Forward<E>{y, rstd, copy, x, gain});
}

template <class E>
void rmsnorm_rebuild(const ExecutionSpace& exec, Matrix<E> y, MatrixIn<E> x, Vector<const float> rstd,
                     VectorIn<E> gain) {
  Kokkos::parallel_for("minitaw::rmsnorm_rebuild", row_policy(exec, x.extent(0)),
                       Rebuild<E>{y, x, rstd, gain});
}

template <class E>
void rmsnorm_backward(const ExecutionSpace& exec, Matrix<E> dx, Matrix<float> gain_partial, MatrixIn<E> dy,
                      MatrixIn<E> residual, MatrixIn<E> x, Vector<const float> rstd, VectorIn<E> gain) {
  Kokkos::parallel_for("minitaw::rmsnorm_backward", row_policy(exec, gain_partial.extent(0)),
                       Backward<E>{dx, gain_partial, dy, residual, x, rstd, gain});
}

template <class G>
void rmsnorm_backward_gain(const ExecutionSpace& exec, Vector<G> dgain, Matrix<const float> gain_partial,
                           bool accumulate) {
  Kokkos::parallel_for("minitaw::rmsnorm_backward_gain",
                       Kokkos::RangePolicy<ExecutionSpace>(exec, 0, dgain.extent(0)),
                       GainSum<G>{dgain, gain_partial, accumulate});
}

template void rmsnorm_forward<float>(const ExecutionSpace&, Matrix<float>, Vector<float>, Matrix<float>,
                                     MatrixIn<float>, VectorIn<float>);
template void rmsnorm_rebuild<float>(const ExecutionSpace&, Matrix<float>, MatrixIn<float>,
                                     Vector<const float>, VectorIn<float>);
template void rmsnorm_backward<float>(const ExecutionSpace&, Matrix<float>, Matrix<float>, MatrixIn<float>,
                                      MatrixIn<float>, MatrixIn<float>, Vector<const float>, VectorIn<float>);
template void rmsnorm_backward_gain<float>(const ExecutionSpace&, Vector<float>, Matrix<const float>, bool);
template void rmsnorm_forward<Bf16>(const ExecutionSpace&, Matrix<Bf16>, Vector<float>, Matrix<Bf16>,
                                    MatrixIn<Bf16>, VectorIn<Bf16>);
template void rmsnorm_rebuild<Bf16>(const ExecutionSpace&, Matrix<Bf16>, MatrixIn<Bf16>, Vector<const float>,
                                    VectorIn<Bf16>);
template void rmsnorm_backward<Bf16>(const ExecutionSpace&, Matrix<Bf16>, Matrix<float>, MatrixIn<Bf16>,
                                     MatrixIn<Bf16>, MatrixIn<Bf16>, Vector<const float>, VectorIn<Bf16>);
template void rmsnorm_backward_gain<Bf16>(const ExecutionSpace&, Vector<Bf16>, Matrix<const float>, bool);

}  // namespace minitaw::kernels
