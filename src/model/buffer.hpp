// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "base/error.hpp"
#include "kernels/kernels.hpp"
#include "model/plan.hpp"

namespace minitaw::model {
using kernels::ExecutionSpace, kernels::Matrix, kernels::Vector;

/// Untyped device memory handed out by an arena; aligned to 256 bytes.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }

  /// Room for `count` elements from byte `begin` on. Throws LogicError if there is less.
  template <class T>
  T* at(std::size_t begin, std::int64_t count) const {
    const std::size_t needed = begin + static_cast<std::size_t>(count) * sizeof(T);
    if (data == nullptr || bytes < needed)
      throw LogicError("a buffer has {} bytes where {} are needed", bytes, needed);
    return reinterpret_cast<T*>(data + begin);
  }

  /// Part `index` of equal ones, which lie one behind another; nothing of nothing.
  Buffer part(int index, std::size_t part_bytes) const {
    return data == nullptr ? Buffer{}
                           : Buffer{at<std::byte>(index * part_bytes, part_bytes), part_bytes};
  }
};

template <class T>
Vector<T> vector_at(const Buffer& buffer, const Region& region, std::int64_t elements) {
  return Vector<T>(buffer.at<T>(region.offset, elements), elements);
}

template <class T>
Vector<T> elements_of(const Buffer& buffer, std::int64_t begin, std::int64_t count) {
  return vector_at<T>(buffer, {begin * sizeof(T)}, count);
}

template <class T>
Matrix<T> matrix_at(
    const Buffer& buffer, const Region& region, std::int64_t rows, std::int64_t cols) {
  return Matrix<T>(buffer.at<T>(region.offset, rows * cols), rows, cols);
}

template <class T>
Matrix<T> matrix_of(const Buffer& buffer, const Tensor& tensor) {
  return matrix_at<T>(buffer, {tensor.offset * sizeof(T)}, tensor.rows, tensor.cols);
}

template <class T>
Vector<T> vector_of(const Buffer& buffer, const Tensor& tensor) {
  return vector_at<T>(buffer, {tensor.offset * sizeof(T)}, tensor.rows);
}
}  // namespace minitaw::model
