// SPDX-License-Identifier: BSD-3-Clause
#include "topology/control_groups.hpp"
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sstream>
#include <sys/stat.h>
#include "topology/system.hpp"

namespace minitaw::topology {
namespace {
namespace fs = std::filesystem;

bool lists(std::string_view names, std::string_view name) {
  return ("," + std::string(names) + ",").find("," + std::string(name) + ",") != names.npos;
}

/// The process's group of version 2, under "", and of version 1 for the controller, under its name.
std::map<std::string, fs::path> own_groups(std::string_view controller, const fs::path& process) {
  std::map<std::string, fs::path> own;
  std::ifstream lines(process / "cgroup");  // 4:cpu,cpuacct:/job_7 or 0::/system.slice/job_7
  std::string number, controllers, group;
  while (std::getline(lines, number, ':') && std::getline(lines, controllers, ':') &&
         std::getline(lines, group))
    if (controllers.empty() || lists(controllers, controller))
      own[controllers.empty() ? "" : std::string(controller)] = group;
  return own;
}
}  // namespace

std::vector<fs::path> control_groups(std::string_view controller, const fs::path& process) {
  const auto own = own_groups(controller, process);
  std::vector<fs::path> folders;
  std::ifstream mounts(process / "mountinfo");
  // 35 24 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string word, root, folder, type, options;
    words >> word >> word >> word >> root >> folder;
    while (words >> word && word != "-") {}
    words >> type >> word >> options;
    const bool fits = type == "cgroup2" || (type == "cgroup" && lists(options, controller));
    const auto group = own.find(type == "cgroup2" ? "" : std::string(controller));
    if (!fits || group == own.end())
      continue;
    // What is mounted is often a group of its own, in a container; a group outside is not seen.
    const fs::path below = group->second.lexically_relative(root);
    fs::path inner = below.empty() || *below.begin() == ".." ? "." : below;
    const std::size_t count = inner == "." ? 0 : std::distance(inner.begin(), inner.end());
    for (std::size_t k = 0; k < count; ++k, inner = inner.parent_path())
      folders.push_back(folder / inner);
    folders.push_back(folder);
  }
  return folders;
}

std::vector<ProcessorQuota> processor_quotas(const fs::path& process) {
  std::vector<ProcessorQuota> quotas;
  for (const fs::path& folder : control_groups("cpu", process)) {
    const fs::path unified = folder / "cpu.max", quota = folder / "cpu.cfs_quota_us";
    const bool is_unified = fs::exists(unified);
    std::istringstream words(  // microseconds of each period; "max 100000" or -1: as many as wanted
        is_unified ? line_of(unified)
                   : line_of(quota) + " " + line_of(folder / "cpu.cfs_period_us"));
    double time = 0, period = 0;
    struct stat known{};
    if (words >> time >> period && time > 0 && period > 0 && stat(folder.c_str(), &known) == 0)
      quotas.push_back({time / period,
          is_unified ? unified : quota,
          fmt::format("{}:{}", known.st_dev, known.st_ino)});
  }
  return quotas;
}
}  // namespace minitaw::topology
