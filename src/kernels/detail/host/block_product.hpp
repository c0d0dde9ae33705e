#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

/// Products of small packed matrices that stay in the cache, for kernels that do something to the result
/// before it leaves. Large products are BLAS's affair.
namespace minitaw::kernels::detail::host {

#if defined(__AVX512F__)
inline constexpr int simd_floats = 16, block_rows = 8, block_vectors = 2;
#elif defined(__AVX__)
inline constexpr int simd_floats = 8, block_rows = 4, block_vectors = 2;
#else
inline constexpr int simd_floats = 4, block_rows = 4, block_vectors = 2;
#endif

/// Columns of a block of the result, which the processor's registers hold.
inline constexpr int block_columns = block_vectors * simd_floats;

typedef float Simd __attribute__((vector_size(simd_floats * sizeof(float))));

inline Simd load_simd(const float* from) {
  Simd value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline void store_simd(float* to, Simd value) { std::memcpy(to, &value, sizeof value); }

/// Element (i, k) of the left operand is data[i * row + k * step].
struct Left {
  const float* data;
  std::ptrdiff_t row, step;
};

/// Row-major, rows of a multiple of block_columns.
template <class T>
struct Packed {
  T* data;
  std::ptrdiff_t row;

  operator Packed<const T>() const
    requires(!std::is_const_v<T>)
  {
    return {data, row};
  }
};

/// One block: c = (or, if `add`, +=) a b over `depth`.
template <bool add>
inline void multiply_block(int depth, Left a, Packed<const float> b, Packed<float> c) {
  Simd sums[block_rows][block_vectors];
#pragma GCC unroll 8
  for (int i = 0; i < block_rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < block_vectors; ++v)
      sums[i][v] = add ? load_simd(c.data + i * c.row + v * simd_floats) : Simd{};
  for (int k = 0; k < depth; ++k) {
    Simd right[block_vectors];
#pragma GCC unroll 8
    for (int v = 0; v < block_vectors; ++v) right[v] = load_simd(b.data + v * simd_floats);
#pragma GCC unroll 8
    for (int i = 0; i < block_rows; ++i) {
      const float left = a.data[i * a.row];
#pragma GCC unroll 8
      for (int v = 0; v < block_vectors; ++v) sums[i][v] += left * right[v];
    }
    a.data += a.step;
    b.data += b.row;
  }
#pragma GCC unroll 8
  for (int i = 0; i < block_rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < block_vectors; ++v) store_simd(c.data + i * c.row + v * simd_floats, sums[i][v]);
}

/// c [rows, columns] = (or, if `add`, +=) a [rows, depth] b [depth, columns]; rows and columns are multiples
/// of those of a block.
template <bool add>
inline void multiply(int rows, int columns, int depth, Left a, Packed<const float> b, Packed<float> c) {
  for (int j = 0; j < columns; j += block_columns)
    for (int i = 0; i < rows; i += block_rows)
      multiply_block<add>(depth, {a.data + i * a.row, a.row, a.step}, {b.data + j, b.row},
                          {c.data + i * c.row + j, c.row});
}

}  // namespace minitaw::kernels::detail::host
