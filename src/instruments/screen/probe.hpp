// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <map>
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
  virtual double now() = 0;
  /// Of the cores that this rank may run on.
  virtual rates::CoreUse core_use() = 0;
  virtual std::vector<Kernel> kernels() const = 0;
  /// A block's weights to a rank of this node, and as much from it; amount: bytes of one direction.
  virtual Work exchange(int peer) = 0;
  /// Seconds of a word to a rank and back.
  virtual double round_trip(int peer) = 0;
  /// Seconds until so many messages of so many bytes are here from a rank, while as many go there.
  virtual double messages(int peer, int count, std::size_t bytes) = 0;
};

/// Kernels of this shape, the transport of the schedules inside nodes, and MPI from host memory
/// between them. Collective.
std::unique_ptr<Workbench> make_workbench(MPI_Comm world,
    const topology::Placement& place,
    const model::Shape& shape,
    bool shared_devices);

struct ProbeOptions {
  double seconds = 0.1;       ///< of each measurement of a rank or inside a node
  double link_seconds = 0.1;  ///< of each between nodes
  int threads = 1;            ///< that this rank computes with
  int adapters = 1;           ///< of each node
  bool one_machine = false;   ///< all nodes share the cores of one: scripts/cluster
  bool shared_devices = false;
  /// Told on every rank what comes next; afterwards all ranks have come that far.
  std::function<void(const std::string& stage)> next{};
  /// Told when this rank has done its part of the stage and waits for the others.
  std::function<void()> done{};
};

/// Steps of a tournament, in which each two of 0 .. n - 1 meet once (the circle method).
int steps_of_tournament(int n);
/// Whom `one` meets in a step; -1: no one.
int opponent_of(int one, int step, int n);

/// Measures all ranks and the links inside and between nodes. Collective; ranks that have no part
/// sleep.
class Probe {
public:
  /// `ranks`: of the job, on rank 0.
  Probe(MPI_Comm world,
      const topology::Placement& place,
      std::span<const topology::RankPlace> ranks,
      ProbeOptions options,
      std::unique_ptr<Workbench> workbench);

  const Wiring& wiring() const { return wiring_; }

  /// All that a round measures, in a fixed order.
  const std::vector<Quantity>& quantities() const { return quantities_; }

  /// One round: for each quantity its values, [rank][partner], on rank 0; empty on other ranks.
  std::vector<std::vector<double>> round();

private:
  void next(const std::string& stage);
  void keep(const std::string& quantity, double value, int partner = 0);
  void measure_kernels();
  void measure_inside();
  double rate_of_all(const Work& work);
  void measure_between();
  void choose_messages();
  std::pair<int, int> opponent(int step) const;

  bool has_pairs_inside() const { return wiring_.partners(Partner::inside) > 1; }

  double largest(double mine) const { return comm::mpi::largest(mine, own_.comm); }

  ProbeOptions options_;
  std::unique_ptr<Workbench> workbench_;
  std::vector<Kernel> kernels_;
  Wiring wiring_;
  std::vector<topology::RankPlace> ranks_;
  int rank_, node_, local_;
  comm::mpi::OwnComm own_;
  int at_once_ = 1;   ///< ranks of a node that may compute at the same time
  int messages_ = 0;  ///< of a measurement between nodes
  std::size_t message_bytes_ = 0;
  std::vector<Quantity> quantities_;
  /// Of this rank in this round, by the name of the quantity: [partner].
  std::map<std::string, std::vector<double>> values_;
};
}  // namespace minitaw::screen
