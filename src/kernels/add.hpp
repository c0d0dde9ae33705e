#pragma once

#include "kernels/types.hpp"

namespace minitaw::kernels {

/// total [n] is, or with `accumulate` adds to, contribution [n].
template <class E>
void add(const ExecutionSpace& exec, Vector<float> total, VectorIn<E> contribution, bool accumulate);

}  // namespace minitaw::kernels
