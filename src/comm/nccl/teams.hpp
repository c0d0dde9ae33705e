#pragma once

#include <vector>

#include "schedule/program.hpp"

namespace minitaw::comm::nccl {

/// Ranks that need an NCCL communicator: one for each communicator of the program on each lane that uses it,
/// and one for all messages of a lane (docs/decisions/0007-nccl-communicators.md).
struct Team {
  schedule::Lane lane = schedule::Lane::intra;
  int communicator = -1;              ///< of the program; -1: messages
  std::vector<int> ranks;             ///< in ring order; a rank's place here is its NCCL rank
  std::vector<schedule::Kind> kinds;  ///< collectives that the program calls here
  friend bool operator==(const Team&, const Team&) = default;
};

/// The teams of a program, by lane, messages first, then by communicator. The same on all ranks.
/// Communicators of one member need none.
[[nodiscard]] std::vector<Team> teams_of(const schedule::Program& program);

/// The teams in rounds: those of a round have no rank in common, so one ncclCommSplit makes them all. Indices
/// into `teams`, ascending within a round.
[[nodiscard]] std::vector<std::vector<int>> rounds(const std::vector<Team>& teams);

/// Ranks that `rank` sends to and receives from on a lane, ascending.
struct Peers {
  std::vector<int> to, from;
};
[[nodiscard]] Peers peers_of(const schedule::Program& program, int rank, schedule::Lane lane);

}  // namespace minitaw::comm::nccl
