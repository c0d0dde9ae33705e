// SPDX-License-Identifier: BSD-3-Clause
#include "engine/make_transport.hpp"
#include <algorithm>
#include <cstdlib>
#include "base/error.hpp"
#include "comm/mpi/transport.hpp"
#include "engine/queue.hpp"
#if defined(MINITAW_HAVE_NCCL)
#include "base/vendor.hpp"
#include "comm/nccl/api.hpp"
#include "comm/nccl/transport.hpp"
#endif

namespace minitaw::engine {
namespace {
#if defined(MINITAW_HAVE_NCCL)
constexpr bool have_nccl = true;
#else
constexpr bool have_nccl = false;
#endif

/// Returns whether `wanted` means NCCL here; "auto" on one rank does not. Throws InputError if it
/// is not available.
bool use_nccl(const std::string& wanted, int ranks, bool shared_devices) {
  if (wanted != "nccl")
    return wanted == "auto" && have_nccl && !shared_devices && ranks > 1;
  if (!have_nccl)
    throw InputError("transport = nccl: this build has no NCCL; use transport = mpi or auto");
  // NCCL_HOSTID makes ranks of one node look like several: who sets it wants to see what happens.
  if (shared_devices && std::getenv("NCCL_HOSTID") == nullptr)
    throw InputError(
        "transport = nccl: NCCL refuses ranks that share a device; use transport = mpi or auto");
  return true;
}

std::unique_ptr<comm::Transport> make_mpi(const TransportRequest& request) {
  if constexpr (kernels::on_host)
    return comm::mpi::make_transport(
        request.comm, request.program, std::span(request.staging.data, request.staging.bytes));
  else
    return comm::mpi::device_transport(
        request.comm, request.program, comm::mpi::agree_on_direct(request.comm));
}

#if defined(MINITAW_HAVE_NCCL)
std::unique_ptr<comm::Transport> make_nccl(const TransportRequest& request) {
  const Kokkos::View<std::byte*, kernels::MemorySpace> scratch(
      "minitaw::nccl", comm::nccl::scratch_bytes(request.program));
  comm::nccl::Options options;
  for (int l = 0; l < schedule::lanes; ++l)
    options.queues[l] = vendor::stream_of(lane_space(static_cast<schedule::Lane>(l)));
  options.scratch = {scratch.data(), scratch.size()};
  options.policy = request.waiting;
  auto transport =
      comm::nccl::make_transport(request.comm, request.program, comm::nccl::library(), options);
  for (int l = 0; l < schedule::lanes; ++l)
    lane_space(static_cast<schedule::Lane>(l))
        .fence("minitaw::engine: first calls of NCCL");  // they use scratch
  return transport;
}
#endif
}  // namespace

std::unique_ptr<comm::Transport> make_transport(
    const std::string& wanted, const TransportRequest& request) {
  [[maybe_unused]] const bool by_nccl =
      use_nccl(wanted, request.program.job_ranks(), request.shared_devices);
#if defined(MINITAW_HAVE_NCCL)
  if (by_nccl)
    return make_nccl(request);
#endif
  return make_mpi(request);
}

void require_transport(const std::string& wanted, bool shared_devices) {
  (void)use_nccl(wanted, 1, shared_devices);
}

std::vector<TransportMemory> transport_memory(
    const schedule::Program& program, const std::string& wanted, bool shared_devices) {
  std::vector<TransportMemory> ranks(program.ranks.size());
  if (!use_nccl(wanted, program.job_ranks(), shared_devices)) {
    if constexpr (!kernels::on_host)
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        ranks[rank].pinned = comm::mpi::pinned_bytes(program.ranks[rank]);
    return ranks;
  }
#if defined(MINITAW_HAVE_NCCL)
  const std::vector<comm::nccl::CommunicatorPlan> plans = comm::nccl::plan_communicators(program);
  if (!plans.empty())
    std::ranges::fill(ranks, TransportMemory{1});  // the one that they are split from
  for (const comm::nccl::CommunicatorPlan& plan : plans)
    for (const int rank : plan.ranks)
      ++ranks[rank].communicators;
#endif
  return ranks;
}

std::string nccl_version() {
#if defined(MINITAW_HAVE_NCCL)
  return comm::nccl::library_version();
#else
  return {};
#endif
}
}  // namespace minitaw::engine
