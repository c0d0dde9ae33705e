// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include <mpi.h>
#include "case/result.hpp"
#include "engine/runtime.hpp"

// The one place where instruments look at cases while they run. An instrument never changes what a
// case does; what it finds, it adds to the result (CaseResult::found).
namespace minitaw::harness {
/// A case that this rank executes.
struct RunningCase {
  const Case& asked;
  engine::Runtime& runtime;
  MPI_Comm comm;  ///< of the ranks of the case
};

class Instrument {
public:
  virtual ~Instrument() = default;

  /// All ranks of the job have come to the begin or the end of a case.
  virtual void between_cases() {}

  /// This rank is about to execute a case. Collective over its ranks.
  virtual void begin_case(const RunningCase& /*running*/) {}

  // Before and after timed steps, numbered from 0. No time is taken here.

  virtual void before_step(int /*step*/) {}

  virtual void after_step(int /*step*/) {}

  /// Adds to the result of rank 0 what was found. Collective over the ranks of the case.
  virtual void after_case(const RunningCase& /*running*/, CaseResult& /*result*/) {}

  /// The case has ended, in whatever way, and its runtime is about to.
  virtual void end_case() {}

  /// The job stands still, says this rank's watchdog, whose thread calls this. Waits until a rank
  /// has printed what each is at; that rank returns the cause, if it is known, others an empty
  /// text. Nothing: no rank prints it.
  [[nodiscard]] virtual std::optional<std::string> explain_stall(const std::string& /*report*/) {
    return {};
  }
};

using Instruments = std::vector<std::shared_ptr<Instrument>>;
}  // namespace minitaw::harness
