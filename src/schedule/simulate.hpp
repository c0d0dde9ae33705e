#pragma once

#include <functional>
#include <vector>

#include "model/layout.hpp"
#include "schedule/program.hpp"

namespace minitaw::schedule {

/// When an action of a step was ready to run, began and ended, measured or planned, in seconds since the step
/// began. Between `ready` (its lane got to it) and `begin` it waited for other lanes.
struct Span {
  double ready = 0;
  double begin = 0;
  double end = 0;
};

/// Seconds that an action takes once all of its sides are there. A message is asked for once, as its send; a
/// collective once, as the call of its communicator's first member.
using Costs = std::function<double(int rank, const Action& action)>;

/// Executes a program that validate() accepts with durations: spans[r][i] of action i of rank r. An action
/// is ready when the one before it in its lane has finished and starts when its waits are met; a message or
/// collective begins when all sides have started. Transfers do not slow each other down: only lanes and waits
/// order them. Time grows with the number of actions. Throws LogicError if the program stops before its end.
[[nodiscard]] std::vector<std::vector<Span>> simulate(const Program& program, const Costs& costs);

/// How much of a step the compute lanes stand still.
struct Idle {
  double seconds = 0;        ///< from the step's begin to the end of the last action of any rank
  std::vector<double> busy;  ///< per rank: seconds in which its compute lane works

  /// Of all ranks together, 0 to 1.
  [[nodiscard]] double share() const;
  [[nodiscard]] double share(int rank) const;
};
[[nodiscard]] Idle idle(const Program& program, const std::vector<std::vector<Span>>& spans);

/// A machine in four rates, for plans. The defaults are a node of eight NVIDIA H100 SXM (datasheets of H100
/// and DGX H100): 40% of 989 TFLOP/s in dense bf16, as training reaches; NVLink 900 GB/s both ways, half of
/// it each; one 400 Gbit/s adapter a device; 3.35 TB/s of HBM3.
struct Machine {
  double flops = 400e12;    ///< FLOP/s of a rank
  double inside = 450e9;    ///< bytes/s of a rank to others of its group, one direction
  double between = 50e9;    ///< bytes/s of a rank to other groups, one direction
  double nic = 0;           ///< bytes/s of all ranks of a group to others, one direction; 0: not known
  double memory = 3.35e12;  ///< bytes/s of a rank's memory, for what computes little: update, zero, add
};

/// FLOPs that a compute action executes. F of a block: 2 T (weights of its matrices) + 2 B S^2 A with causal
/// attention, T = B S tokens, A = heads head_dim. Of the backward pass, both halves have as many for the
/// matrices again; the input half has twice the attention of F, and what `recompute` says is computed again
/// (not the last matrix product, whose result nobody reads). Scores that an attention kernel recomputes by
/// itself do not count. The loss has the head's forward and backward. 0 for everything else.
[[nodiscard]] double flops(const Action& action, const model::Layout& layout);

/// Bytes of the message or, of a collective, the buffer that moves.
[[nodiscard]] double moved_bytes(const Action& action, const model::Layout& layout);

/// Durations of all actions on a machine, without its NICs, which messages share. Messages and collectives
/// take bytes over bandwidth: a rooted one as a chain of small pieces (its buffer once), all-gather and
/// reduce-scatter (n - 1) / n of it, all-reduce twice that; the slower rate if any of its links leaves a
/// group. `micro_batch_per_rank`: B of each rank, in place of the layout's. The program must live as long as
/// the result.
[[nodiscard]] Costs costs_of(const Program& program, const model::Layout& layout, const Machine& machine,
                             const std::vector<std::int64_t>& micro_batch_per_rank = {});

/// The same with transfers that take no time.
[[nodiscard]] Costs free_transfers(Costs costs);

}  // namespace minitaw::schedule
