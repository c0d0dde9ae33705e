// SPDX-License-Identifier: BSD-3-Clause
#include "base/vendor.hpp"
#include "kernels/detail/backends.hpp"
#include "kernels/detail/loops.hpp"

// The portable version: a team computes a tile of c in registers from tiles in scratch, in one
// order whatever the team.
namespace minitaw::kernels::detail::portable {
/// Columns of a patch, the tiles' reach along the summed dimension, and from one of their rows to
/// the next.
template <int patch_columns, int tile_depth, int tile_pitch>
struct Shape {
  static constexpr int columns = patch_columns, depth = tile_depth, pitch = tile_pitch;
};

namespace {
/// A tile of c is tile x tile, made of patches of rows x columns.
inline constexpr int tile = 64, patch_rows = 4;
/// Each thread of a device's team has one patch. One more column spreads its writes over memory
/// banks.
using ForTeam = Shape<4, 16, tile + 1>;
/// Patches of a host's thread fill vector registers; compilers unroll loops of fewer than 32
/// columns.
using ForOne = Shape<32, 32, tile>;
template <class S>
inline constexpr int patches = tile / patch_rows * (tile / S::columns);
inline constexpr int device_threads = patches<ForTeam>;
using Policy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::LaunchBounds<device_threads>>;
using Team = Policy::member_type;

/// Rows of a, or columns of b ("lines"), against the summed dimension.
template <class E>
struct Operand {
  const E* data;
  std::int64_t stride;  ///< elements from one row in memory to the next
  int lines, length;
  bool along;  ///< a line is a row in memory

  KOKKOS_FUNCTION float element(std::int64_t line, std::int64_t at) const {
    return load(data[along ? line * stride + at : at * stride + line]);
  }

  /// to [depth, pitch]: lines from `line` on, positions from `at` on; zeros outside.
  template <class S>
  KOKKOS_FUNCTION void load_tile(const Team& team, float* to, int line, int at) const {
    constexpr int depth = S::depth, pitch = S::pitch;
    row_for(team, tile * depth, [=, *this](int i) {
      const int l = along ? i / depth : i % tile,
                d = along ? i % depth : i / tile;  // neighbours in memory
      to[d * pitch + l] = line + l < lines && at + d < length ? element(line + l, at + d) : 0.0F;
    });
  }
};

template <class C, class E, class S>
struct Product {
  static constexpr int columns = S::columns, depth = S::depth, pitch = S::pitch;
  static constexpr int across = tile / columns;
  static constexpr int held = on_host ? patches<S> : 1;  ///< patches of a thread, at most

  C* c;
  Operand<E> a, b;
  int tiles_across;
  float beta;

  KOKKOS_FUNCTION void operator()(const Team& team) const {
    const int row = team.league_rank() / tiles_across * tile,
              column = team.league_rank() % tiles_across * tile;
    const Scratch scratch(team.team_scratch(0), 2 * depth * pitch);
    float* const left = scratch.data();
    float* const right = left + depth * pitch;
    float sums[held][patch_rows][columns] = {};
    for (int at = 0; at < a.length; at += depth) {
      a.template load_tile<S>(team, left, row, at);
      b.template load_tile<S>(team, right, column, at);
      team.team_barrier();
      each_patch(team, [&](int i, int patch) {
        add_products(sums[i], left + patch / across * patch_rows, right + patch % across * columns);
      });
      team.team_barrier();
    }
    each_patch(team, [&](int i, int patch) {
      store_patch(sums[i], row + patch / across * patch_rows, column + patch % across * columns);
    });
  }

  /// body(i, patch): patch i of the thread.
  template <class Body>
  KOKKOS_FUNCTION static void each_patch(const Team& team, const Body& body) {
    if constexpr (on_host) {
      for (int i = 0, patch = team.team_rank(); patch < patches<S>; ++i, patch += team.team_size())
        body(i, patch);
    } else {
      body(0, team.team_rank());
    }
  }

  KOKKOS_FUNCTION static void add_products(
      float (&sums)[patch_rows][columns], const float* left, const float* right) {
    float part[patch_rows][columns];
    for (int r = 0; r < patch_rows; ++r)
      for (int j = 0; j < columns; ++j)
        part[r][j] = sums[r][j];
    for (int d = 0; d < depth; ++d)
      for (int r = 0; r < patch_rows; ++r)
        for (int j = 0; j < columns; ++j)
          part[r][j] += left[d * pitch + r] * right[d * pitch + j];
    for (int r = 0; r < patch_rows; ++r)
      for (int j = 0; j < columns; ++j)
        sums[r][j] = part[r][j];
  }

  KOKKOS_FUNCTION void store_patch(
      const float (&sums)[patch_rows][columns], int row, int column) const {
    for (int r = 0; r < patch_rows && row + r < a.lines; ++r)
      for (int j = 0; j < columns; ++j) {
        if (column + j >= b.lines)
          continue;
        C& result = c[std::int64_t{row + r} * b.lines + column + j];
        result = store<C>(beta == 0 ? sums[r][j] : sums[r][j] + beta * load(result));
      }
  }
};

/// `transposed`: the lines are the columns of the matrix in memory.
template <class E>
Operand<E> operand(const Matrix<const E>& matrix, bool transposed) {
  const int rows = static_cast<int>(matrix.extent(0)), columns = static_cast<int>(matrix.extent(1));
  return {.data = matrix.data(),
      .stride = columns,
      .lines = transposed ? columns : rows,
      .length = transposed ? rows : columns,
      .along = !transposed};
}
}  // namespace

template <class C, class E>
void matmul(
    const ExecutionSpace& exec, Matrix<C> c, const Factor<E>& a, const Factor<E>& b, float beta) {
  const Operand<E> left = operand<E>(a.matrix, a.transposed),
                   right = operand<E>(b.matrix, !b.transposed);
  const int across = tiles_of(right.lines, tile), tiles = tiles_of(left.lines, tile) * across;
  if (tiles == 0)
    return;
  const auto run = [&](auto shape) {
    using S = decltype(shape);
    auto policy = Policy(exec, tiles, on_host ? threads_on_host : device_threads);
    policy.set_scratch_size(0, Kokkos::PerTeam(Scratch::shmem_size(2 * S::depth * S::pitch)));
    Kokkos::parallel_for(
        "minitaw::matmul", policy, Product<C, E, S>{c.data(), left, right, across, beta});
  };
  if constexpr (on_host)
    if (threads_on_host == 1)
      return run(ForOne());
  run(ForTeam());
}

MINITAW_INSTANTIATE_PRODUCT(matmul)
}  // namespace minitaw::kernels::detail::portable

namespace minitaw::kernels {
#ifdef MINITAW_HOST_KERNELS
/// BLAS by its Fortran name, which every BLAS has.
extern "C" void sgemm_(const char* transa,
    const char* transb,
    const int* m,
    const int* n,
    const int* k,
    const float* alpha,
    const float* a,
    const int* lda,
    const float* b,
    const int* ldb,
    const float* beta,
    float* c,
    const int* ldc);

namespace {
/// BLAS runs on Kokkos's own OpenMP threads, one call at a time, so the order of `exec` is the
/// order of the calls. Column-major BLAS sees the transposes of row-major matrices, so a and b
/// change places.
void blas(Matrix<float> c, const Factor<float>& a, const Factor<float>& b, float beta) {
  const auto extent = [](const auto& view, int dim) { return static_cast<int>(view.extent(dim)); };
  const int m = extent(c, 0), n = extent(c, 1), k = extent(a.matrix, a.transposed ? 0 : 1);
  const int row_a = extent(a.matrix, 1), row_b = extent(b.matrix, 1);
  const char letter_a = a.transposed ? 'T' : 'N', letter_b = b.transposed ? 'T' : 'N';
  const float alpha = 1;
  sgemm_(&letter_b,
      &letter_a,
      &n,
      &m,
      &k,
      &alpha,
      b.matrix.data(),
      &row_b,
      a.matrix.data(),
      &row_a,
      &beta,
      c.data(),
      &n);
}
}  // namespace
#endif

template <class C, class E>
void matmul(
    const ExecutionSpace& exec, Matrix<C> c, const Factor<E>& a, const Factor<E>& b, float beta) {
#ifdef MINITAW_HOST_KERNELS
  if constexpr (std::is_same_v<C, float> && std::is_same_v<E, float>)
    return blas(c, a, b, beta);
#endif
#ifdef MINITAW_VENDOR
  if (detail::vendor::matmul<C, E>(exec, c, a, b, beta))
    return;
#endif
  detail::portable::matmul<C, E>(exec, c, a, b, beta);
}

MINITAW_INSTANTIATE_PRODUCT(matmul)
}  // namespace minitaw::kernels
