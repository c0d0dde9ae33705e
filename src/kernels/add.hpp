#pragma once

#include "kernels/types.hpp"

namespace minitaw::kernels {

/// total [n] adds to contribution [n].
template <class E>
void add(const ExecutionSpace& exec, Vector<float> total, VectorIn<E> contribution);

}  // namespace minitaw::kernels
