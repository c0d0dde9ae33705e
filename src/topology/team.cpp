// SPDX-License-Identifier: BSD-3-Clause
#include "topology/team.hpp"
#include <set>
#include "topology/processors.hpp"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace minitaw::topology {
Team start_team(int threads) {
  Team team{.threads = threads};
  std::vector<std::vector<int>> processors(threads);
#ifdef _OPENMP
  team.was_dynamic = omp_get_dynamic() != 0;
  omp_set_dynamic(0);
#pragma omp parallel num_threads(threads)
  {
    processors[omp_get_thread_num()] = processors_of_thread();
    if (omp_get_thread_num() == 0)
      team.threads = omp_get_num_threads();
  }
#else
  processors[0] = processors_of_thread();
#endif
  std::set<int> all;
  for (const std::vector<int>& of_thread : processors)
    all.insert(of_thread.begin(), of_thread.end());
  team.processors.assign(all.begin(), all.end());
  return team;
}
}  // namespace minitaw::topology
