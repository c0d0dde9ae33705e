// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <random>
#include "comm/mpi/mpi.hpp"
#include "engine/make_transport.hpp"
#include "harness/case_runner.hpp"
#include "schedule/shapes.hpp"
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
inline std::unique_ptr<engine::Runtime> runtime_by_mpi(
    const Case& c, schedule::Program program, const engine::StepOptions& options = {}) {
  const auto plan = std::make_shared<PlannedCase>(
      c, std::make_shared<const schedule::Program>(std::move(program)));
  auto runtime =
      std::make_unique<engine::Runtime>(plan, comm::mpi::rank_in(MPI_COMM_WORLD), options);
  runtime->connect(engine::make_transport("mpi",
      {MPI_COMM_WORLD,
          runtime->program(),
          runtime->arena().staging(),
          {.spins = 2, .yields = 4},
          true}));
  return runtime;
}

inline std::unique_ptr<engine::Runtime> runtime_by_mpi(const Case& c) {
  return runtime_by_mpi(c, schedule::build_valid(request_of(c)));
}

/// Every schedule with every option that changes what is executed.
inline std::vector<std::string> every_schedule() {
  return {"ddp",
      "fsdp",
      "fsdp:hierarchical=on:prefetch=2",
      "fsdp:fetch=step:reduce=none:reshard=none",
      "fsdp:hierarchical=on:reduce=group:reshard=group",
      "fsdp:fetch=step:hierarchical=on:reduce=none:reshard=group",
      "1f1b",
      "1f1b:blocking=on",
      "zb1",
      "zb2",
      "weipipe",
      "tawpipe",
      "tawpipe:gwps=off",
      "tawpipe:cco=off",
      "tawpipe:dbs=off",
      "tawpipe:prefetch=3",
      "tawpipe:rails=2",
      "tawpipe:shards=block",
      "tawpipe:fetch=step:reduce=group:reshard=group",
      "tawpipe:reduce=none:reshard=none",
      "tawpipe:fetch=step:rails=2:reduce=group:reshard=group"};
}

/// All of them on one or two ranks; on more, which share few cores, another third for each number
/// and `turn`.
inline std::vector<std::string> some_schedules(int ranks, int turn) {
  const std::vector<std::string> all = every_schedule();
  if (ranks <= 2)
    return all;
  std::vector<std::string> some;
  for (std::size_t i = static_cast<std::size_t>(ranks / 2 + turn) % 3; i < all.size(); i += 3)
    some.push_back(all[i]);
  return some;
}

/// Whether the schedule runs on these groups.
inline bool possible(const Case& c) {
  return schedule::possible(
      {schedule::parse_spec(c.schedule), c.groups, c.micro_batches, c.shape.layers});
}

/// Sizes that add up to `ranks`, drawn at random (the same on every rank for the same generator).
inline topology::Groups random_groups(int ranks, std::mt19937& random) {
  std::vector<int> sizes;
  for (int left = ranks; left > 0; left -= sizes.back())
    sizes.push_back(std::uniform_int_distribution<int>(1, left)(random));
  return topology::Groups(sizes);
}
}  // namespace minitaw::harness::tests
