// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include "instruments/predict/predict.hpp"
#include "instruments/rows.hpp"

namespace minitaw::predict {
using test::Rows;

/// Nodes of so many ranks, with rates that are easy to reckon with: 1 GB/s inside, 100 MB/s
/// between.
inline std::string machine_text(int nodes, int ranks) {
  return fmt::format("nodes = {}\nranks_per_node = {}\n[between]\nrate = \"100 MB/s\"\n[device]\n"
                     "memory_rate = \"1 TB/s\"\n[device.fp32]\nproducts = \"1 TFLOP/s\"\n{}",
      nodes,
      ranks,
      ranks > 1 ? "[inside]\nrate = \"1 GB/s\"\n" : "");
}

inline Machine machine(int nodes, int ranks, const std::vector<std::string>& changes = {}) {
  return parse_machine(machine_text(nodes, ranks), "m.toml", changes);
}

inline model::Shape shape_of(int layers) {
  return {layers, 64, 2, 2, 128, 64, 16, 1};
}

/// A program on a machine, whatever its case.
inline SimulatedStep step_of(
    const schedule::Program& program, const model::Shape& shape, const Machine& machine) {
  Case c;
  c.shape = shape;
  return {std::make_shared<PlannedCase>(c, std::make_shared<const schedule::Program>(program)),
      machine};
}
}  // namespace minitaw::predict
