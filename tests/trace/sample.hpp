#pragma once

#include "schedule/registry.hpp"
#include "schedule/simulate.hpp"
#include "trace/timeline.hpp"

namespace minitaw::trace {

/// A planned step of a small model.
inline Timeline planned(const char* spec, const topology::Groups& groups, int per_rank,
                        const std::string& title) {
  const int ranks = groups.ranks();
  const schedule::Program program =
      schedule::build({schedule::parse_spec(spec), groups, per_rank * ranks, ranks + 2});
  model::Shape shape{.layers = ranks + 2,
                     .hidden = 64,
                     .heads = 4,
                     .kv_heads = 2,
                     .ffn = std::vector<std::int64_t>(static_cast<std::size_t>(ranks) + 2, 160),
                     .vocab = 256,
                     .seq = 96,
                     .micro_batch = 1};
  const model::Layout layout = model::make_layout(shape, schedule::cut_of(program));
  const auto costs =
      schedule::costs_of(program, layout, {.flops = 1e9, .inside = 1e8, .between = 1e7, .memory = 1e9});
  return make_timeline(program, schedule::simulate(program, costs), title, false);
}

}  // namespace minitaw::trace
