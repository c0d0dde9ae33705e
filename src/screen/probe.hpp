// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <memory>
#include "comm/mpi/mpi.hpp"
#include "model/layout.hpp"
#include "screen/screening.hpp"

namespace minitaw::screen {
struct ProbeOptions {
  model::Shape shape;         ///< of products and attention; a shard of one block is what a group collects
  double seconds = 0.1;       ///< of each measurement of a rank or inside a node
  double link_seconds = 0.1;  ///< of each between nodes
  int threads = 1;            ///< that a rank computes with
  int adapters = 1;           ///< of each node
  bool one_machine = false;   ///< all nodes share the cores of one: scripts/cluster
  bool shared_devices = false;
  /// Told on every rank what comes next; afterwards all ranks have come that far.
  std::function<void(const std::string& stage)> next = [](const std::string&) {};
  /// Told when this rank has done its part of the stage and waits for the others.
  std::function<void()> done = [] {};
};

/// Measures all ranks and the links inside and between nodes. Collective; ranks that have no part sleep.
class Probe {
public:
  Probe& operator=(Probe&&) = delete;
  virtual ~Probe() = default;

  [[nodiscard]] virtual const Machine& machine() const = 0;
  /// All that a round measures, in a fixed order.
  [[nodiscard]] virtual std::vector<Quantity> quantities() const = 0;
  /// One round: for each quantity its values, [rank][partner], on rank 0; empty on other ranks.
  [[nodiscard]] virtual std::vector<std::vector<double>> round() = 0;
};
[[nodiscard]] std::unique_ptr<Probe> make_probe(MPI_Comm world, const topology::Placement& place, ProbeOptions options);
}  // namespace minitaw::screen
