#pragma once

#include <array>
#include <vector>

#include "schedule/draft.hpp"
#include "schedule/program.hpp"

namespace minitaw::schedule {

/// Gives every value of a rank a slot of its class that is free from the value's first to its last use in
/// issue order, out of as few slots as there can be, and counts them. values[i] belong to actions[i]; transit
/// values are numbered below `count`. Homes, totals and ends keep the index that they were made with.
void assign_slots(RankProgram& rank, const std::vector<std::array<Value, 4>>& values, int count);

/// The first contribution of a step to a gradient that lasts from step to step writes it, the others add:
/// nothing needs to be cleared. Needs slots.
void write_first_contributions(RankProgram& rank, int shard_parts);

/// Derives the waits of every action from the slots it touches: a read waits for the last write, a write for
/// the last write and the reads since. Waits that others imply are left out; join waits for everything.
/// Without overlap, communication also waits for all computation issued before it and the other way round.
void assign_waits(RankProgram& program, int rank, bool overlap);

/// Communicator of an action that all copies of a rank take part in, until make_copies().
inline constexpr int among_copies = -2;

/// Appends Program::copies - 1 further copies of the ranks and communicators that are there, each with ranks
/// and micro-batches of its own, and gives every rank's copies a communicator.
void make_copies(Program& program);

}  // namespace minitaw::schedule
