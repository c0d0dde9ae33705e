#include "engine/make_transport.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/mpi/device/transport.hpp"
#include "comm/mpi/transport.hpp"
#include "kernels/types.hpp"

namespace minitaw::engine {

std::string resolve_transport(const std::string& wanted, bool shared_devices) {
#if defined(MINITAW_HAVE_NCCL)
  if (wanted == "nccl" && shared_devices)
    throw InputError("transport = nccl: NCCL refuses ranks that share a device; use transport = mpi or auto");
  return wanted == "mpi" || shared_devices ? "mpi" : "nccl";
#else
  (void)shared_devices;
  if (wanted == "nccl")
    throw InputError("transport = nccl: this build has no NCCL; use transport = mpi or auto");
  return "mpi";
#endif
}

namespace {

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

}  // namespace

NamedTransport make_transport(const std::string& wanted, const TransportPlace& place) {
  (void)resolve_transport(wanted, place.shared_devices);
  return make_mpi(place);
}

}  // namespace minitaw::engine
