// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <memory>
#include "comm/mpi/mpi.hpp"
#include "instruments/rates/rates.hpp"
#include "instruments/screen/screening.hpp"
#include "model/layout.hpp"

namespace minitaw::screen {
/// What is done again and again to measure its rate.
struct Work {
  double amount = 0;             ///< of one time: FLOP or bytes
  std::function<void()> once{};  ///< returns when all of it is over
};

struct Kernel {
  std::string name, units;
  std::function<Work()> make{};  ///< takes the memory, which the work frees
};

/// What a rank measures with. A test has its own, whose clock it turns.
class Workbench {
public:
  Workbench& operator=(Workbench&&) = delete;
  virtual ~Workbench() = default;

  /// s
  [[nodiscard]] virtual double now() = 0;
  /// Of the cores that this rank may run on.
  [[nodiscard]] virtual rates::CoreUse core_use() = 0;
  [[nodiscard]] virtual std::vector<Kernel> kernels() const = 0;
  /// A block's weights to a rank of this node, and as much from it; amount: bytes of one direction.
  [[nodiscard]] virtual Work exchange(int peer) = 0;
  /// An all-gather or reduce-scatter of a block by all ranks of this node; amount: bytes of the
  /// block.
  [[nodiscard]] virtual Work collect(schedule::Kind kind) = 0;
  /// Seconds of a word to a rank and back.
  [[nodiscard]] virtual double round_trip(int peer) = 0;
  /// Seconds until so many messages of so many bytes are here from a rank, while as many go there.
  [[nodiscard]] virtual double messages(int peer, int count, std::size_t bytes) = 0;
};

/// Kernels of this shape, the transport of the schedules inside nodes, and MPI from host memory
/// between them. Collective.
[[nodiscard]] std::unique_ptr<Workbench> make_workbench(MPI_Comm world,
    const topology::Placement& place,
    const model::Shape& shape,
    bool shared_devices);

struct ProbeOptions {
  double seconds = 0.1;       ///< of each measurement of a rank or inside a node
  double link_seconds = 0.1;  ///< of each between nodes
  int adapters = 1;           ///< of each node
  bool one_machine = false;   ///< all nodes share the cores of one: scripts/cluster
  bool shared_devices = false;
  /// Told on every rank what comes next; afterwards all ranks have come that far.
  std::function<void(const std::string& stage)> next = [](const std::string&) {};
  /// Told when this rank has done its part of the stage and waits for the others.
  std::function<void()> done = [] {};
};

/// Measures all ranks and the links inside and between nodes. Collective; ranks that have no part
/// sleep.
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

[[nodiscard]] std::unique_ptr<Probe> make_probe(MPI_Comm world,
    const topology::Placement& place,
    std::span<const topology::RankPlace> ranks,
    ProbeOptions options,
    std::unique_ptr<Workbench> workbench);
}  // namespace minitaw::screen
