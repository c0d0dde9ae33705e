#pragma once

#include <random>
#include <string>

#include "schedule/program.hpp"

namespace minitaw::schedule {

/// Removes action `i` of a rank; waits for it become waits for the action before it.
void remove_action(RankProgram& rank, int i);
/// Puts `action` in front of action `i`; waits keep meaning what they meant.
void insert_action(RankProgram& rank, int i, const Action& action);

/// One random defect: a wait dropped or shortened, two actions of a lane swapped, a shard, part,
/// micro-batch, peer, slot or accumulate flag changed, an action lost or repeated, another slice kept.
/// Returns what was done; empty if the draw changed nothing.
std::string mutate(Program& program, std::mt19937& random);

}  // namespace minitaw::schedule
