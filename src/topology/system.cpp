// SPDX-License-Identifier: BSD-3-Clause
#include "topology/system.hpp"
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include "base/error.hpp"

namespace minitaw::topology {
namespace {
/// What a launcher sets to the number of ranks that it has started: MPICH's mpiexec and srun
/// --mpi=pmi2; Open MPI's mpiexec; any srun (a batch script has none). mpiexec inside a Slurm step
/// starts the ranks: it is first.
constexpr std::array launchers = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"};

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
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
  const auto variable =
      std::ranges::find_if(launchers, [](const char* name) { return number_in(name) > 0; });
  if (ranks != 1 || variable == launchers.end() || number_in(*variable) == 1)
    return;
  throw InputError(
      "{0}={1}, but for MPI each of {1} ranks is alone: where a launcher started them, it does not "
      "speak the PMI of this MPI library; take another of those that srun --mpi=list names (MPICH: "
      "srun --mpi=pmi2, Open MPI: srun --mpi=pmix), or the mpiexec that belongs to the library; "
      "where the shell has the variable from elsewhere, as in salloc: unset {0}",
      *variable,
      number_in(*variable));
}
}  // namespace minitaw::topology
