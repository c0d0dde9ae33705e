#pragma once

#include <cstdio>

#include "kernel.hpp"

namespace minitaw::bench {

/// Runs each kernel once on poisoned outputs and prints a line with its error and the largest one that is
/// right. Returns how many are beyond it, and says which at the end.
[[nodiscard]] int verify(const Kernels& kernels, std::FILE* out);

/// Those whose names Google Benchmark's filter selects. Throws InputError if it is no regular expression or
/// selects none.
[[nodiscard]] Kernels selected(const Kernels& kernels, const std::string& filter);

}  // namespace minitaw::bench
