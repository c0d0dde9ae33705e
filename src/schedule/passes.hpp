// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "schedule/builder.hpp"

/// Passes over a program that make it complete: slots, waits, replicas. Builder::finish() calls
/// them.
namespace minitaw::schedule {
/// The groups of each of `replicas` runs of consecutive ranks. Throws InputError if they are not
/// alike.
Groups groups_of_replica(const Groups& groups, int replicas);
/// Gives every buffer of a rank a slot of its class, free from its first to its last use in issue
/// order, out of as few as can be. buffers[i] belong to actions[i]; those in transit count below
/// `count`. Permanent slots keep their index.
void assign_slots(RankProgram& rank, const std::vector<VirtualBuffers>& buffers, int count);
/// Makes the first contribution to an accumulator write it, the others add: nothing is cleared.
/// Needs slots.
void write_first_contributions(RankProgram& rank, int shard_parts);
/// Derives the waits of every action from the slots it touches: a read waits for the last write, a
/// write for the last write and the reads since. Waits that others imply are left out; join waits
/// for everything.
void assign_waits(RankProgram& program, int rank, Overlap overlap);

/// Communicator of an action that all replicas of a rank take part in, until make_replicas().
inline constexpr int among_replicas = -2;
/// Appends Program::replicas - 1 replicas of ranks and communicators, and communicators among
/// replicas.
void make_replicas(Program& program);
}  // namespace minitaw::schedule
