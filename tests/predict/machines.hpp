#pragma once

#include <string>

#include "predict/machine.hpp"

namespace minitaw::predict {

/// Nodes of so many ranks, with links whose rates are easy to reckon with: 1 GB/s inside, 100 MB/s between.
inline std::string machine_text(int nodes, int ranks, const std::string& between = "",
                                const std::string& device = "") {
  return "nodes = " + std::to_string(nodes) + "\nranks_per_node = " + std::to_string(ranks) +
         "\n[device]\nmemory_rate = \"1 TB/s\"\n" + device + "\n[device.fp32]\nproducts = \"1 TFLOP/s\"\n" +
         "[inside]\nrate = \"1 GB/s\"\n[between]\nrate = \"100 MB/s\"\n" + between + "\n";
}

}  // namespace minitaw::predict
