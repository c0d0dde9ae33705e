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
/// each lane executes its own subsequence in order, one action at a time. Messages of one direction in a lane
/// only need to begin in order: a transport may have several under way, so that the wire is never idle
/// between two. They count as finished in order.
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

/// Indices into RankProgram::actions of a lane's actions, in order.
[[nodiscard]] std::vector<int> actions_of(const RankProgram& rank, Lane lane);

/// For each action, the action after which what only it still needed is free: itself, or for messages the
/// last one of the messages of the same tick that follow each other in the program, whatever their lanes:
/// they shall not wait for each other.
[[nodiscard]] std::vector<int> releases(const RankProgram& rank);

/// Micro-batches that a rank computes, in ascending order.
[[nodiscard]] std::vector<int> micro_batches_of(const RankProgram& rank);

}  // namespace minitaw::schedule
