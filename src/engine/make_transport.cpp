#include "engine/make_transport.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "base/error.hpp"
#include "comm/mpi/check.hpp"
#include "comm/mpi/device/transport.hpp"
#include "comm/mpi/transport.hpp"
#include "engine/lane_space.hpp"
#include "kernels/types.hpp"

#if defined(MINITAW_HAVE_NCCL)
#include "comm/nccl/library.hpp"
#include "comm/nccl/transport.hpp"
#include "comm/nccl/warm_up.hpp"
#endif

namespace minitaw::engine {

namespace {

#if defined(MINITAW_HAVE_NCCL)
constexpr bool have_nccl = true;
#else
constexpr bool have_nccl = false;
#endif

void require_nccl(bool shared_devices) {
  if (!have_nccl) throw InputError("transport = nccl: this build has no NCCL; use transport = mpi or auto");
  // NCCL_HOSTID makes ranks of one node look like several: who sets it wants to see what happens.
  if (shared_devices && std::getenv("NCCL_HOSTID") == nullptr)
    throw InputError("transport = nccl: NCCL refuses ranks that share a device; use transport = mpi or auto");
}

/// Whether `wanted` ("auto", "mpi" or "nccl") means NCCL here. A rank that is alone needs it only if asked
/// for.
bool use_nccl(const std::string& wanted, const TransportPlace& place) {
  if (wanted != "nccl")
    return wanted == "auto" && have_nccl && !place.shared_devices && place.program.ranks.size() > 1;
  require_nccl(place.shared_devices);
  return true;
}

NamedTransport make_mpi(const TransportPlace& place) {
  if constexpr (kernels::on_host) {
    const std::span staging(place.staging.data, place.staging.bytes);
    return {std::make_unique<comm::mpi::Transport>(place.comm, place.program, staging, place.waiting), "mpi"};
  } else {
    const comm::mpi::Reach reach = comm::mpi::agreed_reach(place.comm);
    return {comm::mpi::device_transport(place.comm, place.program, reach, place.waiting),
            fmt::format("mpi {}", name_of(reach))};
  }
}

#if defined(MINITAW_HAVE_NCCL)

NamedTransport make_nccl(const TransportPlace& place) {
  int rank = 0;
  comm::mpi::check(MPI_Comm_rank(place.comm, &rank), "MPI_Comm_rank");
  const Kokkos::View<std::byte*, kernels::MemorySpace> scratch(
      "minitaw::nccl", comm::nccl::scratch_bytes(place.program, rank));
  comm::nccl::Options options;
  for (int l = 0; l < schedule::lanes; ++l) options.queues[l] = lane_stream(static_cast<schedule::Lane>(l));
  options.scratch = {scratch.data(), scratch.size()};
  options.patience = place.waiting;
  auto transport =
      std::make_unique<comm::nccl::Transport>(place.comm, place.program, comm::nccl::library(), options);
  for (int l = 0; l < schedule::lanes; ++l)
    lane_space(static_cast<schedule::Lane>(l))
        .fence("minitaw::engine: first calls of NCCL");  // they use scratch
  return {std::move(transport), "nccl"};
}

#endif

}  // namespace

NamedTransport make_transport(const std::string& wanted, const TransportPlace& place) {
  [[maybe_unused]] const bool by_nccl = use_nccl(wanted, place);
#if defined(MINITAW_HAVE_NCCL)
  if (by_nccl) return make_nccl(place);
#endif
  return make_mpi(place);
}

void require_transport(const std::string& wanted, bool shared_devices) {
  if (wanted == "nccl") require_nccl(shared_devices);
}

std::string nccl_version() {
#if defined(MINITAW_HAVE_NCCL)
  return comm::nccl::library_version();
#else
  return {};
#endif
}

}  // namespace minitaw::engine
