// SPDX-License-Identifier: BSD-3-Clause
#include "needs.hpp"
#include "model/plan.hpp"

namespace minitaw::app {
std::vector<Need> needs_on_host(const PlannedCase& plan, int threads) {
  const std::uint64_t shared =
      schedule::program_bytes(*plan.program) + model::blas_estimate(plan.asked.shape, threads);
  std::vector<Need> needs;
  for (const int rank : indices(plan.memory))
    needs.push_back({plan.memory[rank].total(),
        shared + schedule::span_bytes(*plan.program, rank, plan.asked.steps)});
  return needs;
}

std::vector<Need> needs_on_device(const PlannedCase& plan) {
  std::vector<Need> needs;
  for (const int rank : indices(plan.memory))
    needs.push_back(
        {plan.memory[rank].arena(), model::library_estimate(shape_of_rank(plan.asked, rank))});
  return needs;
}
}  // namespace minitaw::app
