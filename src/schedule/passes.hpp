// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "schedule/builder.hpp"

/// Passes over a program that make it complete: slots and waits. Builder::finish() calls them.
namespace minitaw::schedule {
/// Gives every buffer of a rank a slot of its class, free from its first to its last use in issue
/// order, out of as few as can be. buffers[i] belong to actions[i]; those in transit count below
/// `count`. Permanent slots keep their index.
void assign_slots(RankProgram& rank, const std::vector<VirtualBuffers>& buffers, int count);
/// Makes the first contribution to an accumulator write it, the others add: nothing is cleared.
/// Needs slots.
void write_first_contributions(RankProgram& rank, const Program& program);
/// Derives the waits of every action from the slots it touches: a read waits for the last write, a
/// write for the last write and the reads since. Waits that others imply are left out; join waits
/// for everything.
void assign_waits(RankProgram& program, int rank, Overlap overlap);
}  // namespace minitaw::schedule
