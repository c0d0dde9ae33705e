// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "schedule/program.hpp"

namespace minitaw::schedule::detail {
/// Executes a program on the contents of slots. Throws Refusal as execute(), for exact_gradients and fresh_reads.
void check_contents(const Program& program);
}  // namespace minitaw::schedule::detail
