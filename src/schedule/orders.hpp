// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>
#include "schedule/visits.hpp"

/// Orders of pipelines, and their files: the CSV of PyTorch
/// (torch/distributed/pipelining/schedules.py: _PipelineScheduleRuntime._load_csv and _dump_csv,
/// _Action.from_str). A row is a rank, a cell an action or empty, without a header. An action is
/// stage, kind, micro-batch: "0F0", "1I2", "1W2", "0B3", with I for the input's half of the
/// backward pass, W for the weights', B for both. The form compute_comms has cells for
/// communication besides
/// ("0SEND_F0", "1UNSHARD"); "(0F1;1B0)OVERLAP_F_B" is two actions whose kernels may run together.
namespace minitaw::schedule {
/// The order of a pipeline's work: its program's messages, slots and waits follow from it. A rank
/// may have any stages.
struct Orders {
  Ranks rank_of;                           ///< by stage
  std::vector<std::vector<Visit>> visits;  ///< of each rank, in order; shards are stages
  int micro_batches = 0;

  int stages() const { return std::ssize(rank_of); }

  int ranks() const { return std::ssize(visits); }
};

/// Sets the ticks of all visits to when they begin if each takes one tick and messages none: a rank
/// continues as soon as the inputs of its next visit are there. Returns the first visit that never
/// begins, as ranks wait for one another there, or nullptr. Every stage must compute F and its
/// gradient once for each micro-batch, F first.
const Visit* set_ticks(Orders& orders);

/// Reads either form; ticks are columns, counted from 0. Cells of communication have no effect:
/// messages go where the order says, and weights stay with their stage. The parts of an overlapped
/// cell follow each other. Throws InputError "schedule: <name>, row 2, column 5: ..." (from 1) for
/// what is no action, where an action is there twice or missing or comes too early, a stage has two
/// ranks, or ranks wait for one another.
Orders read_torch_csv(const std::string& text, const std::string& name);
}  // namespace minitaw::schedule
