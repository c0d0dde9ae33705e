// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "schedule/program.hpp"

namespace minitaw::schedule::detail {
/// Executes a program on what its slots hold: which shard's weights, which micro-batches' gradients. Throws
/// Refusal as execute(), for exact_gradients, and for fresh_reads where the content is wrong.
void check_contents(const Program& program);
}  // namespace minitaw::schedule::detail
