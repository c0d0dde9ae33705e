// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "comm/mpi/mpi.hpp"
#include "engine/make_transport.hpp"
#include "harness/case_runner.hpp"
#include "schedule/validate.hpp"

namespace minitaw::harness::tests {
/// A small case at awkward sizes: grouped heads, a sequence that fits no tile.
inline Case small_case(
    const std::string& schedule, const topology::Groups& groups, int layers, int per_rank) {
  Case c;
  c.schedule = schedule;
  c.groups = groups;
  c.ranks = groups.ranks();
  c.micro_batches = per_rank * c.ranks;
  c.shape = {layers, 24, 4, 2, 40, 29, 13, 2};
  c.data = "synthetic";
  c.seed = 11;
  return c;
}

/// Executes cases on all ranks.
inline CaseRunner job(
    engine::MakeQueues make_queues = engine::make_queues, Instruments instruments = {}) {
  return CaseRunner(MPI_COMM_WORLD,
      {.step = {.waiting = comm::wait_policy(1, 24), .make_queues = std::move(make_queues)},
          .shared_devices = true,
          .instruments = std::move(instruments)});
}

/// The runtime of a case on the ranks of the job, which may share a device, with the transport over
/// MPI.
inline std::unique_ptr<engine::Runtime> runtime_by_mpi(const Case& c) {
  auto runtime = std::make_unique<engine::Runtime>(plan_of(c), comm::mpi::rank_in(MPI_COMM_WORLD));
  runtime->connect(engine::make_transport("mpi",
      {MPI_COMM_WORLD,
          runtime->program(),
          runtime->arena().staging(),
          {.spins = 2, .yields = 4},
          true}));
  return runtime;
}
}  // namespace minitaw::harness::tests
