#pragma once

#include "base/philox.hpp"
#include "kernels/types.hpp"

namespace minitaw::kernels {

/// weights [n] and master [n] = numbers first .. first + n of `row`; either may be empty. The same bits on
/// every back end.
template <class E>
void uniform(const ExecutionSpace& exec, Vector<E> weights, Vector<float> master, std::int64_t first,
             const UniformRow& row);

}  // namespace minitaw::kernels
