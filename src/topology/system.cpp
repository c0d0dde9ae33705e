// SPDX-License-Identifier: BSD-3-Clause
#include "topology/system.hpp"
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
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

std::vector<int> numbers_of(const std::string& ranges) {
  std::vector<int> numbers;
  std::istringstream parts(ranges);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0, end = 0;
    const int found = std::sscanf(part.c_str(), "%d%n-%d%n", &first, &end, &last, &end);
    if (found < 1 || end != std::ssize(part))
      return {};
    if (found == 1)
      last = first;
    for (int number = first; number <= last; ++number)
      numbers.push_back(number);
  }
  return numbers;
}

std::string line_of(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

void require_launched_together(int ranks) {
  const int announced = announced_ranks();
  if (ranks != 1 || announced <= 1)
    return;
  throw InputError(fmt::format(
      "{} ranks were started, but for MPI each of them is alone: the launcher and this MPI library "
      "do not speak the same PMI; take another of those that srun --mpi=list names (MPICH: "
      "srun --mpi=pmi2, Open MPI: srun --mpi=pmix), or the mpiexec that belongs to the library",
      announced));
}
}  // namespace minitaw::topology
