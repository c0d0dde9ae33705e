#include "engine/process_memory.hpp"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace minitaw::engine {

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

}  // namespace minitaw::engine
