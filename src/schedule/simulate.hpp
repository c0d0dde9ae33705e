// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <span>
#include "model/cost.hpp"
#include "schedule/program.hpp"

namespace minitaw::schedule {
/// Times of an action of a step, s since its begin: its lane got to it (`ready`), then waited for
/// others until `begin`.
struct Span {
  double ready = 0, begin = 0, end = 0;
};

/// Seconds of an action once all sides are there. A message is asked for as its send, a collective
/// as its first call.
using Costs = std::function<double(int rank, const Action& action)>;

/// Executes a replica of a program that validate() accepts with durations: spans[r][i] of action i
/// of rank r; sums over replicas are done when it is there. An action is ready when the one before
/// it in its lane has finished and starts when its waits are met; a message or collective begins
/// when all sides have started. Transfers do not slow each other down: only lanes and waits order
/// them. Time grows with the number of actions. Throws LogicError if the program stops before its
/// end.
std::vector<std::vector<Span>> simulate(const Program& program, const Costs& costs);

struct Idle {
  double seconds = 0;        ///< from the step's begin to the end of the last action of any rank
  std::vector<double> busy;  ///< per rank: seconds in which its compute lane works

  /// Returns the idle share of all ranks together, 0 to 1.
  double share() const { return share(busy); }

  double share(int rank) const { return share({&busy[rank], 1}); }

private:
  double share(std::span<const double> of) const;
};

/// The idle times of one replica, or of several.
Idle idle(const Program& program, const std::vector<std::vector<Span>>& spans);

/// A device in two rates, by default an NVIDIA H100 SXM: 40% of its 989 TFLOP/s in dense bf16,
/// and 3.35 TB/s of HBM3.
struct Device {
  double flops = 400e12;    ///< FLOP/s
  double memory = 3.35e12;  ///< bytes/s, for what computes little: update, zero, add
};

/// Cost of a visit or of the loss, by model/cost.hpp, in the unit of the price; else 0.
double cost_of(const Action& action, const Layout& layout, const model::Price& price);
/// FLOPs of a visit or of the loss; 0 for everything else.
double flops(const Action& action, const Layout& layout);
/// Bytes that an action reads and writes, where that takes its time: update, zero, add, load,
/// embed; else 0.
double touched_bytes(const Program& program, int rank, const Action& action, const Layout& layout);
/// Bytes of the message or, of a collective, the buffer that moves.
double moved_bytes(const Action& action, const Layout& layout);
/// Durations where transfers take no time. The program outlives the result.
Costs costs_of(const Program& program, const Layout& layout, const Device& device);
}  // namespace minitaw::schedule
