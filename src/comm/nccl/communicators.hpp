#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <vector>

#include "comm/nccl/launcher.hpp"
#include "comm/nccl/teams.hpp"

namespace minitaw::comm::nccl {

/// This rank in a team.
struct Member {
  Team team;
  int index = 0;  ///< its place in team.ranks
  std::unique_ptr<Communicator> communicator;
};

/// The NCCL communicators of one rank.
class Communicators {
public:
  /// Collective over `world`: the unique id goes from rank 0 to all by MPI, the teams are split from a
  /// communicator of all ranks, round by round. Throws Error if NCCL is not ready within `limit`.
  Communicators(MPI_Comm world, const schedule::Program& program, Api& api, Launcher& launcher,
                std::chrono::seconds limit);
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;
  /// Orderly, on all ranks, unless something was cancelled or fails.
  ~Communicators();

  /// Teams that this rank belongs to, in the order that all ranks have.
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  /// Throws LogicError if the program has no such use for one on this rank.
  [[nodiscard]] const Member& find(const Use& use) const;

  /// Throws Error if NCCL knows of a failure.
  void poll();
  void abort() noexcept;

private:
  /// This rank in the job, and when it is to be ready.
  struct Place {
    int rank, ranks;
    std::chrono::steady_clock::time_point limit;
  };
  void make(const UniqueId& id, const std::vector<Team>& teams, const Place& place);
  void split(const std::vector<Team>& teams, const std::vector<int>& round, const Place& place);
  void close();

  Api& api_;
  Launcher& launcher_;
  std::unique_ptr<Communicator> world_;
  std::vector<Member> members_;
};

}  // namespace minitaw::comm::nccl
