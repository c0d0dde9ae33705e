#pragma once

#include <string>
#include <vector>

#include "record/host_names.hpp"

namespace minitaw::record {

/// Where a rank of the job runs.
struct RankPlace {
  int node = 0;
  std::string cores;  ///< "0-3,8"
  std::string unit;   ///< what computes: "host, 2 threads", "device 0, NVIDIA H100, 79.6 GiB"
  std::string uuid;   ///< of the device; empty without one
};

/// "# rank 0: node 0, cores 0-1, host, 2 threads", a line for each rank; nodes with their names where these
/// are shown. Of many ranks, equal ones and nodes like the one before share a line, and UUIDs are left to the
/// file.
[[nodiscard]] std::string map_text(const std::vector<RankPlace>& ranks, const HostNames& hosts);

}  // namespace minitaw::record
