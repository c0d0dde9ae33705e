#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <unistd.h>

#include "kernels/kernels.hpp"
#include "limits.hpp"

namespace minitaw::bench {

namespace {

namespace fs = std::filesystem;

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// "266240K"
std::int64_t kib_of(const std::string& size) {
  return size.empty() ? 0 : std::atoll(size.c_str()) * (size.back() == 'M' ? 1024 : 1);
}

/// Sum over the caches of the highest level, each counted once for all processors that share it; 0: unknown.
std::int64_t last_cache_mib() {
  std::map<int, std::map<std::string, std::int64_t>> kib;  // of each level, by who shares it
  std::error_code none;
  for (const auto& cpu : fs::directory_iterator("/sys/devices/system/cpu", none))
    for (const auto& index : fs::directory_iterator(cpu.path() / "cache", none))
      if (const std::string level = line_of(index.path() / "level"); !level.empty())
        kib[std::atoi(level.c_str())][line_of(index.path() / "shared_cpu_list")] =
            kib_of(line_of(index.path() / "size"));
  std::int64_t sum = 0;
  if (!kib.empty())
    for (const auto& [shared_by, size] : kib.rbegin()->second) sum += size;
  return sum / 1024;
}

}  // namespace

std::int64_t default_triad_mib() {
  if (!kernels::on_host) return 1024;
  const std::int64_t free_mib =
      static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE) / (1 << 20);
  const std::int64_t cache = last_cache_mib();
  return std::max<std::int64_t>(1, std::min(4 * (cache > 0 ? cache : 64), free_mib / 8));
}

}  // namespace minitaw::bench
