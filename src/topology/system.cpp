// SPDX-License-Identifier: BSD-3-Clause
#include "topology/system.hpp"
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include "base/error.hpp"

namespace minitaw::topology {
namespace {
/// Ranks of the job by its launcher; 0: it says nothing. mpiexec inside a Slurm step starts the
/// ranks: it is first.
int announced_ranks() {
  // MPICH's mpiexec, srun --mpi=pmi2; Open MPI's mpiexec; any srun (a batch script has none)
  for (const char* name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* text = std::getenv(name); text != nullptr && std::atoi(text) > 0)
      return std::atoi(text);
  return 0;
}
}  // namespace

std::string ranges_text(std::span<const int> numbers) {
  std::string text;
  for (std::size_t begin = 0, end; begin < numbers.size(); begin = end) {
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;)
      ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[begin]);
    if (end - begin > 1)
      text += fmt::format("-{}", numbers[end - 1]);
  }
  return text.empty() ? "none" : text;
}

std::optional<std::string> entry_of(const std::filesystem::path& file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key))
      return line.substr(key.size());
  return std::nullopt;
}

std::string line_of(const std::filesystem::path& file) {
  return entry_of(file, "").value_or("");
}

void require_launched_together(int ranks) {
  const int announced = announced_ranks();
  if (ranks != 1 || announced <= 1)
    return;
  throw InputError(
      "{} ranks were started, but for MPI each of them is alone: the launcher and this MPI library "
      "do not speak the same PMI; take another of those that srun --mpi=list names (MPICH: "
      "srun --mpi=pmi2, Open MPI: srun --mpi=pmix), or the mpiexec that belongs to the library",
      announced);
}
}  // namespace minitaw::topology
