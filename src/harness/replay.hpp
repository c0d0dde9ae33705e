// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

#include "engine/runtime.hpp"

// Silent corruption: sums have a fixed order, so a step is the same to the bit wherever it runs.
namespace minitaw::harness {
/// The first wrong value of a chain of wrong values.
struct ReplayFinding {
  enum class Kind { computed, transferred, stored };
  Kind kind = Kind::computed;
  int run = 0, step = 0;       ///< counted from 0
  int rank = -1, action = -1;  ///< of the program: who wrote, received (transferred) or read (stored) it
  std::string tensor;          ///< "t0": slot of that rank, "optimiser state" or "loss"
  int job_rank = -1;           ///< that had the rank's place in that run; -1: the runs do not tell
  int sender = -1;             ///< rank of the job that sent what was received, where it is one
  std::string sentence;
};

struct ReplayReport {
  std::vector<ReplayFinding> findings;  ///< in the order of the data flow; rank 0 has them
  int runs = 0;
  std::int64_t actions = 0, tensors = 0, bytes = 0;  ///< that were summed, all runs and ranks together
};

struct ReplayOptions {
  int steps = 1;
  std::vector<std::string> places{};  ///< of each rank of the job, for sentences: "node 1, device 0"
  /// Asked before and after each action, before its sums are taken. Tests change buffers here.
  using Disturb = std::function<void(
      int run, int step, const engine::Runtime& runtime, const schedule::Action& action, bool after)>;
  Disturb disturb{};
};

/// Makes the runtime of a rank of the communicator, with StepOptions::repeatable.
using MakeRuntime = std::function<std::unique_ptr<engine::Runtime>(const Case& c, MPI_Comm comm)>;

/// Executes the first steps of a case twice, with the ranks of the program on other ranks of the job the
/// second time, and compares a check sum of all that every action reads and writes. If they differ, further
/// runs on yet other ranks decide by majority which one is wrong: in a job of two ranks, a fault that both
/// placements of a rank show alike names no rank. Takes attention and transport with a fixed order of sums;
/// throws InputError for a case that asks for others. Collective.
[[nodiscard]] ReplayReport replay(MPI_Comm world, Case c, const ReplayOptions& options, const MakeRuntime& make);
}  // namespace minitaw::harness
