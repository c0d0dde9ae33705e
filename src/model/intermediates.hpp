// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "model/buffer.hpp"
#include "model/plan.hpp"

namespace minitaw::model {
/// The intermediate results of one block during a pass. Each lies where the plans put it: in what
/// is saved, else in what one half of the backward pass defers for the other, else in scratch.
template <class E>
class Intermediates {
public:
  struct Home {
    const BlockRegions* regions;
    Buffer buffer;
  };

  Intermediates(const Shape& shape, Home saved, Home deferred, Home scratch)
      : shape_(shape),
        homes_{saved, deferred, scratch} {}

  /// In compute precision.
  Matrix<E> operator[](Intermediate which) const { return matrix<E>(which); }

  /// A number per row, or per row and head.
  Vector<float> floats(Intermediate which) const {
    const Matrix<float> all = matrix<float>(which);
    return Vector<float>(all.data(), all.size());
  }

  /// Partial sums of a gain's gradient [chunks, H].
  Matrix<float> partial(Intermediate which) const {
    static_assert(most_gain_sums == kernels::most_rmsnorm_chunks);
    return Matrix<float>(
        matrix<float>(which).data(), kernels::rmsnorm_chunks(shape_.tokens()), shape_.hidden);
  }

  /// The output [T, H] of norm1, always in scratch: what is deferred as `normed` is norm2's.
  Matrix<E> normed1() const {
    const auto& [regions, buffer] = homes_.back();
    return matrix_at<E>(buffer, (*regions)[Intermediate::normed], shape_.tokens(), shape_.hidden);
  }

private:
  /// Empty if no plan has it.
  template <class T>
  Matrix<T> matrix(Intermediate which) const {
    const auto [rows, cols] = extents_of(which, shape_);
    for (const auto& [regions, buffer] : homes_)
      if (regions != nullptr && (*regions)[which].bytes > 0)
        return matrix_at<T>(buffer, (*regions)[which], rows, cols);
    return {};
  }

  const Shape& shape_;
  std::array<Home, 3> homes_;
};
}  // namespace minitaw::model
