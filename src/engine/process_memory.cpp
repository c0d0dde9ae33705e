#include "engine/process_memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace minitaw::engine {

namespace {

/// The number in a file of a control group; nothing for "max" or without the file.
std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
  std::uint64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

/// "/system.slice/job_7", the group of this process below the root.
std::string own_group() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::")) return line.substr(3);
  return "/";
}

std::uint64_t left_in_groups() {
  std::uint64_t left = std::numeric_limits<std::uint64_t>::max();
  const std::filesystem::path root = "/sys/fs/cgroup";
  for (std::filesystem::path group = own_group();; group = group.parent_path()) {
    const auto folder = root / group.relative_path();
    const auto most = number_in(folder / "memory.max"), used = number_in(folder / "memory.current");
    if (most && used) left = std::min(left, *most - std::min(*most, *used));
    if (group == group.parent_path()) return left;
  }
}

std::uint64_t free_on_node() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  return std::numeric_limits<std::uint64_t>::max();
}

}  // namespace

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";  // 5: forget the high-water mark (man 5 proc)
}

std::uint64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

std::uint64_t available_memory() { return std::min(free_on_node(), left_in_groups()); }

}  // namespace minitaw::engine
