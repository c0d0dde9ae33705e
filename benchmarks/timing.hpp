#pragma once

#include <map>
#include <string>

#include "kernel.hpp"
#include "limits.hpp"

namespace minitaw::bench {

/// Seconds of the fastest call, by label of the kernel.
using Times = std::map<std::string, double>;

/// Hands limits and kernels to Google Benchmark; `times` receives what it measures and must outlive the run.
void add_timings(const Limits& limits, const Kernels& kernels, Times& times);

}  // namespace minitaw::bench
