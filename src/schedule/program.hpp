#pragma once

#include <array>
#include <string>
#include <vector>

#include "model/layout.hpp"
#include "schedule/action.hpp"
#include "topology/groups.hpp"

namespace minitaw::schedule {

/// Ranks that take part in a collective, in ring order.
struct Communicator {
  std::string name;  ///< "world", "group2"
  std::vector<int> ranks;
};

/// What one rank does in one step. `actions` is the issue order: waits refer only to earlier actions, and
/// each lane plays its own subsequence in order.
///
/// Consecutive send / recv actions of one lane with equal tick, payload and shard form a batch: they start
/// together, when the waits of all of them are met, and finish together. Everything else in a lane is one at
/// a time. Consecutive means here: no action of any lane is in between. So a rank that plays unit after unit
/// in issue order keeps to the order in which all ranks' programs were written, and never waits for ever.
struct RankProgram {
  std::vector<Action> actions;
  std::array<int, slot_classes> slots{};  ///< how many slots of each class the rank has
  std::vector<int> homes;                 ///< homes[k]: shard in home slot k and total slot k
  int slice = 0;        ///< of Program::home_slices: what the rank holds of each shard in `homes`
  int ends_slice = -1;  ///< the only slice of the ends that it holds, if any; -1: all of them
};

/// One training step of all ranks: the only description of a schedule. Engine, prediction, timeline,
/// accounting and validation all read it.
struct Program {
  std::string schedule;     ///< name with options, as in the deck: "tawpipe:cco=off"
  int shards = 0;           ///< shards the blocks are split into
  int micro_batches = 0;    ///< M, of all ranks together
  int ends_slices = 1;      ///< equal slices of the ends, updated by one rank of each copy each
  bool ends_split = false;  ///< two slices: the embedding; final norm and head
  int home_slices = 1;      ///< equal slices of each shard, kept by one rank of each copy each
  int shard_parts = 1;      ///< every shard is padded so that this many parts are equal
  int copies = 1;           ///< ranks r, r + P / copies, ... do the same with their own micro-batches
  topology::Groups groups{{1}};
  std::vector<Communicator> communicators;
  std::vector<RankProgram> ranks;
};

/// How the program's ranks cut the model.
[[nodiscard]] model::Cut cut_of(const Program& program);

/// Whether two actions, by their indices, are members of one batch, one behind the other.
[[nodiscard]] bool same_batch(const RankProgram& rank, int first, int second);

/// Index ranges [begin, end) of the units that a lane starts one after the other: a batch of send / recv, or
/// one action. Indices point into RankProgram::actions.
struct Unit {
  std::vector<int> actions;
};
[[nodiscard]] std::vector<Unit> units(const RankProgram& rank, Lane lane);

/// For each action, the last action of its unit.
[[nodiscard]] std::vector<int> unit_ends(const RankProgram& rank);

/// For each action, the action after which what only it still needed is free: the last one of its unit, and
/// for messages the last one of the messages of the same tick that follow each other in the program, whatever
/// their lanes. Members of a unit run together; other messages of a tick shall not wait for each other.
[[nodiscard]] std::vector<int> releases(const RankProgram& rank);

/// Micro-batches that a rank computes, in ascending order.
[[nodiscard]] std::vector<int> micro_batches_of(const RankProgram& rank);

}  // namespace minitaw::schedule
