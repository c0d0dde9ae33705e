#pragma once

#include <functional>
#include <memory>

#include "predict/machine.hpp"

namespace minitaw::predict {

/// The links and processors of a machine as resources of SimGrid: flows share links fairly (max-min, without
/// TCP's window, cross traffic or overhead), a latency is paid before a flow begins and loads nothing.
///
/// A process has one SimGrid with one clock, whose platform is fixed once it has run: one network each.
class Network {
public:
  using Done = std::function<void()>;

  /// Throws InputError if the adapters do not fit the topology.
  explicit Network(const Machine& machine);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  /// Moves bytes from rank to rank of a node; `done` is called when they have arrived, never before this
  /// returns.
  void flow(int from, int to, double bytes, Done done);
  /// The same between adapters.
  void between(int adapter, int other, double bytes, Done done);
  /// So many seconds of one of the processors that the rank shares with others; work that is `first` takes a
  /// processor from all other work, as interrupts and threads that wake up do.
  void work(int rank, double seconds, Done done, bool first = false);
  static void later(double seconds, Done done);

  /// Until nothing is under way. What is called may begin more.
  static void run();
  [[nodiscard]] static double now();

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minitaw::predict
