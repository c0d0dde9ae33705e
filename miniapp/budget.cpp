// SPDX-License-Identifier: BSD-3-Clause
#include "budget.hpp"
#include <algorithm>
#include <fmt/format.h>
#include "engine/make_transport.hpp"
#include "model/plan.hpp"
#include "model/reference.hpp"
#include "schedule/registry.hpp"

namespace minitaw::app {
namespace {
/// Bytes of what the references consist of.
struct ReferenceSizes {
  std::uint64_t arena;            ///< of the serial baseline
  std::uint64_t tensors = 0;      ///< of the model once, fp32
  std::uint64_t activations = 0;  ///< of the float64 model
};

ReferenceSizes sizes_of_references(const Case& c) {
  const Plan serial = plan_of(harness::serial_case(c));
  const std::uint64_t arena = serial->memory.front().total();
  const model::Shape& shape = serial->asked.shape;
  if (!kernels::on_host)
    return {arena + model::library_estimate(shape)};
  return {
      arena, sizeof(float) * model::parameters(shape), model::reference_activation_bytes(shape)};
}

/// Bytes of a device that a communicator of NCCL takes on the rank where it takes most: measured by
/// making communicators of all ranks, which ends them. 0 where transport = auto is not NCCL.
/// Collective.
std::uint64_t communicator_bytes(const MpiJob& mpi) {
  if (kernels::on_host)
    return 0;
  const int ranks = mpi.environment.ranks();
  const schedule::Program program =
      schedule::build({schedule::parse_spec("ddp"), topology::Groups({ranks}), ranks, 1});
  const int made =
      engine::transport_memory(program, "auto", mpi.shared_devices).front().communicators;
  if (made == 0)
    return 0;
  const std::uint64_t before = topology::device_memory()->free;
  const auto transport =
      engine::make_transport("auto", {MPI_COMM_WORLD, program, {}, {}, mpi.shared_devices});
  const std::uint64_t after = topology::device_memory()->free;
  const std::uint64_t mine = before > after ? (before - after) / made : 0;
  return static_cast<std::uint64_t>(comm::mpi::largest(static_cast<double>(mine), MPI_COMM_WORLD));
}

/// What each rank finds free, on its device or else its node; on rank 0. Every rank throws where
/// nobody says what a device has.
std::vector<topology::FreeMemory> free_memory(const JobFlags& flags) {
  const auto device = topology::device_memory();
  if (!kernels::on_host && !device && !flags.memory)
    throw harness::AgreedError(harness::AgreedError::Cause::input,
        "this build cannot ask how much memory a device has: say it by --memory 60G");
  const auto mine = device ? topology::FreeMemory{device->free} : topology::available_memory();
  const auto bytes = comm::mpi::gather(mine.bytes, MPI_COMM_WORLD, "gathering free memory");
  const auto limits = comm::mpi::gather_lists(mine.limit, MPI_COMM_WORLD, "gathering its limits");
  std::vector<topology::FreeMemory> free;
  for (const int rank : indices(bytes))
    free.push_back({bytes[rank], limits[rank]});
  return free;
}
}  // namespace

std::vector<Need> needs_on_host(const PlannedCase& plan, int threads) {
  const std::uint64_t shared =
      schedule::program_bytes(*plan.program) + model::blas_estimate(plan.asked.shape, threads);
  std::vector<Need> needs;
  for (const int rank : indices(plan.memory))
    needs.push_back({plan.memory[rank].total(),
        shared + schedule::span_bytes(*plan.program, rank, plan.asked.steps)});
  return needs;
}

std::vector<Need> needs_on_device(const PlannedCase& plan) {
  std::vector<Need> needs;
  for (const int rank : indices(plan.memory))
    needs.push_back(
        {plan.memory[rank].arena(), model::library_estimate(shape_of_rank(plan.asked, rank))});
  return needs;
}

/// Gathered tensors are there twice, flat and by name, while the case compares with a third copy.
ReferenceMemory memory_of_check(const Case& c) {
  const ReferenceSizes size = sizes_of_references(c);
  return {.alone = size.arena + 2 * size.tensors, .beside = 3 * size.tensors};
}

ReferenceMemory memory_of_verify(const Case& c, int steps) {
  // weights, both moments and a gradient of the model in double precision
  constexpr std::uint64_t in_double = 8;
  const ReferenceSizes size = sizes_of_references(c);
  const std::uint64_t kept = (steps > 1 ? 2 : 1) * size.tensors;  // gradients: first and last step
  const std::uint64_t serial = size.arena + (in_double + 2) * size.tensors;
  const std::uint64_t float64 = in_double * size.tensors + size.activations + kept;
  return {.alone = std::max(serial, float64) + kept,
      .beside = (in_double + 2) * size.tensors + 2 * kept};
}

MemoryPools::MemoryPools(const topology::Groups& nodes,
    const std::vector<std::string>& uuids,
    const std::vector<topology::FreeMemory>& free,
    std::optional<std::uint64_t> allowed) {
  std::map<std::string, std::size_t> known;  // by what the ranks of one memory have in common
  for (const int rank : indices(uuids)) {
    const bool on_device = !allowed && !uuids[rank].empty();
    const std::string name = allowed     ? fmt::format("rank {}", rank)
                             : on_device ? fmt::format("device of rank {}", rank)
                                         : fmt::format("node {}", nodes.group_of(rank));
    const auto [at, added] = known.try_emplace(on_device ? uuids[rank] : name, pools_.size());
    if (added)
      pools_.push_back({name});
    Pool& pool = pools_[at->second];
    const auto mine = allowed ? topology::FreeMemory{*allowed} : free[rank];
    if (mine.bytes < pool.free.bytes)
      pool.free = mine;
    pool_of_rank_.push_back(at->second);
  }
}

std::string MemoryPools::reason_against(
    const std::vector<std::uint64_t>& needed, const ReferenceMemory& reference) const {
  std::vector<std::uint64_t> sums(pools_.size());
  for (std::size_t rank = 0; rank < needed.size(); ++rank)
    sums[pool_of_rank_[rank]] += needed[rank];
  std::uint64_t& of_first = sums[pool_of_rank_[0]];
  of_first = std::max(of_first + reference.beside, reference.alone);
  for (std::size_t i = 0; i < pools_.size(); ++i)
    if (const auto& [name, free] = pools_[i]; sums[i] > free.bytes)
      return fmt::format("needs {} of {} ({}{}{})",
          size_text(sums[i]),
          size_text(free.bytes),
          name,
          free.limit.empty() ? "" : ", limited by ",
          free.limit);
  return {};
}

/// Measures a communicator before it asks what memory is free: the first communicator keeps some
/// for good.
MemoryBudget::MemoryBudget(MpiJob& mpi)
    : mpi_(mpi),
      communicator_(communicator_bytes(mpi)),
      process_(kernels::on_host && mpi.flags.memory ? schedule::process_base : 0),
      pools_(mpi.place.nodes, mpi.uuids, free_memory(mpi.flags), mpi.flags.memory) {}

std::string MemoryBudget::reason_against(const Case& c, const ReferenceMemory& reference) const {
  const Plan plan = mpi_.runner.plan(c);
  const std::vector<Need> needs =
      kernels::on_host ? needs_on_host(*plan, mpi_.threads) : needs_on_device(*plan);
  const std::vector<engine::TransportMemory> transport =
      engine::transport_memory(*plan->program, c.transport, mpi_.shared_devices);
  std::vector<std::uint64_t> needed;
  for (int of_job = 0; of_job < c.ranks; ++of_job) {
    const int rank = plan->program->rank_of(of_job);
    needed.push_back(
        process_ + needs[rank].total() + communicator_ * transport[rank].communicators);
  }
  const std::uint64_t alone = reference.alone > 0 ? process_ + reference.alone : 0;
  return pools_.reason_against(needed, {.alone = alone, .beside = reference.beside});
}
}  // namespace minitaw::app
