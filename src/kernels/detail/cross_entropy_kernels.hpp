#pragma once

#include "kernels/cross_entropy.hpp"

/// The version of a host build; arguments as in cross_entropy.hpp.
namespace minitaw::kernels::detail::host {

template <class E>
void cross_entropy(const ExecutionSpace& exec, Vector<double> losses, Matrix<E> logits, TokensIn targets,
                   float scale);

}  // namespace minitaw::kernels::detail::host
