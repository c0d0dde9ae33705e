// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <vector>
#include "instruments/predict/machine.hpp"

namespace simgrid::s4u {
class Host;
class NetZone;
}  // namespace simgrid::s4u

namespace minitaw::predict {
/// The links and processors of a machine as resources of SimGrid: flows share links fairly
/// (max-min, without TCP's window, cross traffic or overhead), a latency is paid before a flow
/// begins and loads nothing.
///
/// A process has one SimGrid with one clock, whose platform is fixed once it has run: one network
/// each. `done` is called when something has ended, never before the call that begins it returns.
class Network {
public:
  using Done = std::function<void()>;

  explicit Network(const Machine& machine);
  Network& operator=(Network&&) = delete;

  /// Moves bytes between ranks of a node.
  void flow(int from, int to, double bytes, Done done);
  /// Sends bytes from adapter to adapter.
  void between(int from, int to, double bytes, Done done);
  /// So many seconds of one of the processors that the rank shares with others; work that is
  /// `first` takes a processor from all other work, as interrupts and threads that wake up do.
  void work(int rank, double seconds, Done done, bool first = false);
  static void later(double seconds, Done done);

  /// Runs until nothing is under way. Callbacks may start more.
  static void run();
  /// Seconds.
  static double now();

private:
  using Zone = simgrid::s4u::NetZone;
  using Hosts = std::vector<simgrid::s4u::Host*>;

  void add_node(int node);
  void add_network();
  void add_processors();

  const Machine& machine_;
  Zone& root_;
  Hosts ranks_, adapters_;
  Hosts processors_;  ///< of each node
};
}  // namespace minitaw::predict
