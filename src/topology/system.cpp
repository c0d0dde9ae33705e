// SPDX-License-Identifier: BSD-3-Clause
#include "topology/system.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <set>
#include <sys/utsname.h>
#include <utility>

#include "base/error.hpp"

namespace minitaw::topology {
namespace {
constexpr const char* unknown = "unknown";

/// The value behind "key : value" or "key=value"; both empty for other lines.
std::pair<std::string, std::string> split(const std::string& line, char separator) {
  const auto trimmed = [](const std::string& text) {
    const std::size_t begin = text.find_first_not_of(" \t\"");
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\"") + 1 - begin);
  };
  const std::size_t at = line.find(separator);
  if (at == std::string::npos) return {};
  return {trimmed(line.substr(0, at)), trimmed(line.substr(at + 1))};
}

/// First line of a file, or nothing.
std::string line_of(const std::filesystem::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

/// Ranks that the launcher (mpiexec, srun) says belong to one job; 0 if it says nothing. An mpiexec inside a
/// Slurm step is the one who starts the ranks, so its word comes first.
int announced_ranks() {
  // MPICH's mpiexec, srun --mpi=pmi2; Open MPI's mpiexec; any srun (a batch script has none)
  for (const char* name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* text = std::getenv(name); text != nullptr && std::atoi(text) > 0) return std::atoi(text);
  return 0;
}
}  // namespace

std::string ranges_text(std::span<const int> numbers) {
  std::string text;
  for (std::size_t begin = 0, end; begin < numbers.size(); begin = end) {
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[begin]);
    if (end - begin > 1) text += fmt::format("-{}", numbers[end - 1]);
  }
  return text.empty() ? "none" : text;
}

std::string cpu_model(std::istream& cpuinfo) {
  std::string implementer;
  for (std::string line; std::getline(cpuinfo, line);) {
    const auto [key, value] = split(line, ':');
    if (key == "model name" || key == "cpu" || key == "uarch") return value;  // x86, POWER, RISC-V
    if (key == "CPU implementer") implementer = value;
    if (key == "CPU part") return fmt::format("ARM implementer {} part {}", implementer, value);
  }
  return unknown;
}

std::string cpu_counts(const std::string& folder) {
  std::set<std::string> sockets;
  std::set<std::pair<std::string, std::string>> cores;
  std::size_t threads = 0;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("cpu") || name.size() == 3 || name.find_first_not_of("0123456789", 3) != name.npos)
      continue;
    const std::string socket = line_of(entry.path() / "topology/physical_package_id");
    if (socket.empty()) continue;  // switched off
    ++threads;
    sockets.insert(socket);
    cores.emplace(socket, line_of(entry.path() / "topology/core_id"));
  }
  if (threads == 0) return "unknown cores";
  return fmt::format("{}, {}, {}", counted(std::ssize(sockets), "socket"), counted(std::ssize(cores), "core"),
      counted(threads, "thread"));
}

std::string distribution(std::istream& os_release) {
  for (std::string line; std::getline(os_release, line);)
    if (const auto [key, value] = split(line, '='); key == "PRETTY_NAME") return value;
  return unknown;
}

std::string cpu_text() {
  std::ifstream info("/proc/cpuinfo");
  return fmt::format("{}, {}", cpu_model(info), cpu_counts("/sys/devices/system/cpu"));
}

std::string os_text() {
  utsname name{};
  if (uname(&name) != 0) return unknown;
  std::ifstream release("/etc/os-release");
  return fmt::format("{} {} {}, {}", name.sysname, name.release, name.machine, distribution(release));
}

int active_ports(const std::string& folder) {
  int active = 0;
  std::error_code missing;
  for (const auto& adapter : std::filesystem::directory_iterator(folder, missing))
    for (const auto& port : std::filesystem::directory_iterator(adapter.path() / "ports", missing))
      active += line_of(port.path() / "state").ends_with(": ACTIVE") ? 1 : 0;  // "4: ACTIVE"
  return active;
}

int network_adapters() {
  if (std::getenv("MINITAW_SHAPED_LINKS") != nullptr) return 1;  // the machine's own are not theirs
  return std::max(1, active_ports("/sys/class/infiniband"));
}

void require_launched_together(int ranks) {
  const int announced = announced_ranks();
  if (ranks != 1 || announced <= 1) return;
  throw InputError(fmt::format(
      "{} ranks were started, but for MPI each of them is alone: the launcher and this MPI library "
      "do not speak the same PMI; take another of those that srun --mpi=list names (MPICH: "
      "srun --mpi=pmi2, Open MPI: srun --mpi=pmix), or the mpiexec that belongs to the library",
      announced));
}
}  // namespace minitaw::topology
