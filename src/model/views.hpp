#pragma once

#include "kernels/types.hpp"
#include "model/buffer.hpp"
#include "model/plan.hpp"

/// Typed views of places inside buffers.
namespace minitaw::model {

using kernels::Matrix;
using kernels::Vector;

template <class T>
Vector<T> vector_at(const Buffer& buffer, const Region& region, std::int64_t elements) {
  return Vector<T>(reinterpret_cast<T*>(buffer.data + region.offset), static_cast<std::size_t>(elements));
}

template <class T>
Matrix<T> matrix_at(const Buffer& buffer, const Region& region, std::int64_t rows, std::int64_t cols) {
  return Matrix<T>(reinterpret_cast<T*>(buffer.data + region.offset), static_cast<std::size_t>(rows),
                   static_cast<std::size_t>(cols));
}

template <class T>
Vector<T> vector_of(const Buffer& buffer, const Tensor& tensor) {
  return Vector<T>(buffer.as<T>() + tensor.offset, static_cast<std::size_t>(tensor.rows));
}

template <class T>
Matrix<T> matrix_of(const Buffer& buffer, const Tensor& tensor) {
  return Matrix<T>(buffer.as<T>() + tensor.offset, static_cast<std::size_t>(tensor.rows),
                   static_cast<std::size_t>(tensor.cols));
}

}  // namespace minitaw::model
