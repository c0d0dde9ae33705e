// SPDX-License-Identifier: BSD-3-Clause
#include "needs.hpp"
#include "model/plan.hpp"

namespace minitaw::app {
std::vector<schedule::Footprint> memory_of(const Case& c, const schedule::Program& program) {
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  return schedule::memory(program, layout);
}

std::vector<Need> needs_on_host(const Case& c,
    const schedule::Program& program,
    const std::vector<schedule::Footprint>& memory,
    int threads) {
  std::vector<Need> needs;
  for (int rank = 0; rank < std::ssize(memory); ++rank)
    needs.push_back({memory[rank].total(),
        schedule::process_bytes(program, rank, c.steps) + model::blas_estimate(c.shape, threads)});
  return needs;
}

std::vector<Need> needs_on_device(const Case& c, const std::vector<schedule::Footprint>& memory) {
  std::vector<Need> needs;
  for (int rank = 0; rank < std::ssize(memory); ++rank)
    needs.push_back({memory[rank].arena(), model::library_estimate(shape_of_rank(c, rank))});
  return needs;
}
}  // namespace minitaw::app
