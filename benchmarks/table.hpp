#pragma once

#include <string>

#include "limits.hpp"
#include "timing.hpp"

namespace minitaw::bench {

/// The limits and, in Markdown, a row for each kernel that was timed.
[[nodiscard]] std::string markdown(const Limits& limits, const Kernels& kernels, const Times& times);

}  // namespace minitaw::bench
