// SPDX-License-Identifier: BSD-3-Clause
/// Precision and recall of the judge on a simulated machine of nodes of four ranks.
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include "simulated_machine.hpp"

int main(int argc, char** argv) {
  using namespace minitaw::screen;
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 512, tries = argc > 2 ? std::atoi(argv[2]) : 20;
  const Wiring machine{minitaw::topology::Groups::equal(4 * nodes, nodes), 4};
  std::mt19937 bits(1);
  std::normal_distribution<double> normal;
  const auto noise = [&](const Quantity&) { return noise_of(bits, normal); };
  const auto any = [&](int n) { return static_cast<int>(bits() % static_cast<unsigned>(n)); };
  std::map<std::string, std::array<int, 3>> found;  // planted, found, named besides
  const auto plant = [&](const std::string& name, const Fault& fault) {
    const auto culprits =
        judge(machine, SimulatedMachine(machine, {fault}, noise).measure(3)).culprits;
    auto& [planted, hits, others] = found[name];
    const bool healthy = fault.factor == 1 && fault.delay == 0;
    planted += healthy ? 0 : 1;
    for (const Culprit& c : culprits)
      (c.suspect == fault.suspect && !healthy ? hits : others) += 1;
  };
  for (int i = 0; i < tries; ++i) {
    const int rank = any(4 * nodes), other = (rank + 4 * (1 + any(nodes - 1))) % (4 * nodes);
    plant("none", {{}});
    for (const double factor : {0.5, 0.8, 0.85}) {
      plant(fmt::format("rank at {:.0f} %", 100 * factor), {{Suspect::rank, {rank}}, factor});
      plant(fmt::format("adapter at {:.0f} %", 100 * factor), {{Suspect::adapter, {rank}}, factor});
      plant(fmt::format("link at {:.0f} %", 100 * factor),
          {{Suspect::link, {std::min(rank, other), std::max(rank, other)}}, factor});
    }
    plant("adapter with 50 us more", {{Suspect::adapter, {rank}}, 1, 50e-6});
  }
  fmt::print(
      "| fault, {} nodes of 4 | planted | found | named besides |\n|---|---|---|---|\n", nodes);
  for (const auto& [name, counts] : found)
    fmt::print("| {} | {} | {} | {} |\n", name, counts[0], counts[1], counts[2]);
}
