#pragma once

#include <cstdint>
#include <span>

/// Plain serial double-precision versions of every layer: the simplest loops that compute the formula. They
/// check the fast kernels and share no code with them. Matrices are row-major; outputs first, then inputs,
/// then sizes. Outputs of backward functions that are summed over calls say "adds to"; all others are
/// overwritten.
namespace minitaw::kernels::reference {

using Out = std::span<double>;
using In = std::span<const double>;
using Tokens = std::span<const std::int32_t>;

}  // namespace minitaw::kernels::reference
