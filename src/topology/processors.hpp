// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <vector>

/// Processors (hardware threads) by Linux's numbers, ascending; none where it does not tell them
/// (there are more than 1024, say).
namespace minitaw::topology {
/// On which this process may run, as its launcher has left it: a runtime library may bind the first
/// thread before main.
std::vector<int> allowed_processors();
/// On which the calling thread may run now.
std::vector<int> processors_of_thread();
}  // namespace minitaw::topology
