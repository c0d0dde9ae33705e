// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

/// Groups of processes to which Linux gives a limited share of the node.
namespace minitaw::topology {
/// Returns the folders of the groups that may limit this process, the innermost first: of version
/// 2, and those of version 1 for `controller` ("memory", "cpu"). `process`: what the kernel tells
/// of it.
std::vector<std::filesystem::path> control_groups(
    std::string_view controller, const std::filesystem::path& process = "/proc/self");

/// Processor time that all processes of a group may take together.
struct ProcessorQuota {
  double processors = std::numeric_limits<double>::infinity();
  std::string file{};   ///< that says so
  std::string group{};  ///< the same for all processes of the group, whatever they call its folder
};

/// Returns the quotas of this process's groups.
std::vector<ProcessorQuota> processor_quotas(const std::filesystem::path& process = "/proc/self");
}  // namespace minitaw::topology
