#include "topology/devices.hpp"

#include <fmt/format.h>

#include <map>

#include "base/error.hpp"

namespace minitaw::topology {

int device_of(int local_rank, int visible) { return visible > 0 ? local_rank % visible : -1; }

std::optional<SharedDevice> shared_device(std::span<const std::string> uuid_of_rank) {
  std::map<std::string, int> first;
  for (int rank = 0; rank < static_cast<int>(uuid_of_rank.size()); ++rank) {
    const std::string& uuid = uuid_of_rank[static_cast<std::size_t>(rank)];
    if (uuid.empty()) continue;
    const auto [at, is_new] = first.emplace(uuid, rank);
    if (!is_new) return SharedDevice{at->second, rank, uuid};
  }
  return std::nullopt;
}

void require_own_devices(std::span<const std::string> uuid_of_rank) {
  if (const auto shared = shared_device(uuid_of_rank))
    throw InputError(fmt::format(
        "ranks {} and {} would share device {}: start as many ranks per node as it has devices, or add "
        "--share-devices (for tests: the ranks then take turns, and times mean little)",
        shared->first, shared->second, shared->uuid));
}

}  // namespace minitaw::topology
