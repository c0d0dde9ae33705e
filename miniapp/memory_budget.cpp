#include "memory_budget.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "comm/mpi/check.hpp"
#include "deck/schedule_name.hpp"
#include "engine/make_transport.hpp"
#include "engine/process_memory.hpp"
#include "model/footprint.hpp"
#include "plan_case.hpp"
#include "plan_fit.hpp"

namespace minitaw::app {
namespace {

/// Bytes that are free for this rank and those beside it.
std::uint64_t free_here() {
  const auto device = topology::device_memory();
  return device ? device->free : engine::available_memory();
}

std::vector<std::uint64_t> gather_free(int ranks) {
  const std::uint64_t mine = free_here();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks));
  comm::mpi::check(MPI_Allgather(&mine, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD),
                   "gathering the free memory");
  return all;
}

/// What the ranks of one memory have in common.
std::string pool_key(const MpiJob& mpi, int rank, bool own) {
  if (own) return fmt::format("rank {}", rank);
  const std::string& uuid = mpi.device_uuids()[static_cast<std::size_t>(rank)];
  return uuid.empty() ? fmt::format("node {}", mpi.place().nodes.group_of(rank)) : uuid;
}

std::string pool_name(const MpiJob& mpi, int rank, bool own) {
  const bool device = !own && !mpi.device_uuids()[static_cast<std::size_t>(rank)].empty();
  return device ? fmt::format("device of rank {}", rank) : pool_key(mpi, rank, own);
}

}  // namespace

/// What a communicator takes is measured before anybody asks what is free: the first one keeps some for good.
MemoryBudget::MemoryBudget(const MpiJob& mpi)
    : shared_devices_(topology::shared_device(mpi.device_uuids()).has_value()),
      communicator_(engine::communicator_bytes(MPI_COMM_WORLD, shared_devices_)) {
  const std::optional<std::uint64_t> per_rank = mpi.memory();
  const int ranks = static_cast<int>(mpi.device_uuids().size());
  const std::vector<std::uint64_t> free = gather_free(ranks);
  std::map<std::string, int> known;
  for (int rank = 0; rank < ranks; ++rank) {
    const bool own = per_rank.has_value();
    const auto [at, added] = known.try_emplace(pool_key(mpi, rank, own), static_cast<int>(pools_.size()));
    if (added)
      pools_.push_back({pool_name(mpi, rank, own), per_rank.value_or(free[static_cast<std::size_t>(rank)])});
    Pool& pool = pools_[static_cast<std::size_t>(at->second)];
    if (!per_rank) pool.bytes = std::min(pool.bytes, free[static_cast<std::size_t>(rank)]);
    pool_of_rank_.push_back(at->second);
  }
}

std::string MemoryBudget::reason_against(const deck::Case& c,
                                         const engine::ReferenceMemory& reference) const {
  const schedule::Program program = schedule::build(deck::request_of(c));
  const auto memory = memory_of(c, program, model::make_layout(c.shape, schedule::cut_of(program)));
  const std::vector<int> communicators = engine::communicators_of(program, c.transport, shared_devices_);
  const std::uint64_t libraries = kernels::on_host ? 0 : model::library_estimate(c.shape);
  std::vector<std::uint64_t> needed(pools_.size());
  for (std::size_t rank = 0; rank < memory.size(); ++rank)
    needed[static_cast<std::size_t>(pool_of_rank_[rank])] +=
        memory[rank].total() + libraries + communicator_ * static_cast<std::uint64_t>(communicators[rank]);
  std::uint64_t& of_first = needed[static_cast<std::size_t>(pool_of_rank_[0])];
  of_first = std::max(of_first + reference.beside, reference.alone);
  for (std::size_t i = 0; i < pools_.size(); ++i)
    if (needed[i] > pools_[i].bytes)
      return fmt::format("needs {:.3g} of {:.3g} GiB ({})", in_gib(needed[i]), in_gib(pools_[i].bytes),
                         pools_[i].name);
  return "";
}

}  // namespace minitaw::app
