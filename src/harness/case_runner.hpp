#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "case/result.hpp"
#include "comm/wait.hpp"
#include "engine/runtime.hpp"
#include "engine/watchdog.hpp"
#include "harness/check.hpp"
#include "meters/meter.hpp"

namespace minitaw::harness {

/// Something failed on some rank, and every rank knows: the job can go on without it.
struct AgreedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Memory ran out on some rank.
struct AgreedOutOfMemory : AgreedError {
  using AgreedError::AgreedError;
};

/// A barrier for ranks that may wait long: they sleep instead of taking the cores of those that still
/// compute.
void wait_for_all(MPI_Comm comm);

/// Runs `work` on every rank of `comm` and waits for all. If it fails anywhere, every rank throws what the
/// lowest failing rank threw: as InputError if it was one there, as AgreedOutOfMemory if memory ran out, else
/// as AgreedError. Collective; `work` itself must not communicate.
void agree(MPI_Comm comm, const std::function<void()>& work);

/// Why a case is left before its end, what counts most last.
enum class StopReason : int { no, case_limit, time_limit, signal };

/// Limits of time and memory of a case.
struct Limits {
  using Seconds = engine::Watchdog::Seconds;
  /// A step in which nothing moves for this long is reported on standard error, rank by rank, and given up;
  /// so is anything between steps that takes so long.
  Seconds stall_limit = engine::default_stall_limit;
  /// The case is left after the step in which it takes longer than this.
  Seconds whole = Seconds::max();
  /// Asked on every rank after every step but the last; one that wants to leave is enough.
  std::function<StopReason()> leave = [] { return StopReason::no; };
  /// Compare the first step with the serial reference if it costs little; that takes memory of rank 0.
  bool check = true;
};

/// The result of a case, and why it stopped.
struct Outcome {
  CaseResult result;                 ///< complete on rank 0 if the case was not left
  StopReason left = StopReason::no;  ///< on all ranks
};

struct RunnerOptions {
  /// Options of a step. `stall_limit` holds for verify(); run() takes its own from Limits. Reports of stalls
  /// go to standard error.
  engine::StepOptions step{};
  /// Some ranks use the same device, which NCCL refuses.
  bool shared_devices = false;
  /// Results of run() hold the timeline of a step.
  bool timeline = false;
  /// Meter of this rank's device.
  std::shared_ptr<meters::Meter> meter = std::make_shared<meters::Meter>("no NVIDIA device");
};

/// Runs cases one after the other on the ranks of an MPI job. Every method is collective over the job.
class CaseRunner {
public:
  CaseRunner(MPI_Comm world, const RunnerOptions& options);

  /// Throws InputError for a case that this build or place cannot run, whatever its memory.
  void require_possible(const Case& c) const;

  /// Executes one repetition of the case: a first step that is checked against the serial reference when that
  /// is affordable, warm-up, timed steps. Ranks beyond the case's wait. What fails on some rank before the
  /// first step is the result's status; a step that stalls throws Stalled, after which the job cannot go on.
  [[nodiscard]] Outcome run(const Case& c, const Limits& limits);

  /// Sets what this rank does if something between steps, which guard() watches, does not end. By default it
  /// prints an error and ends the job, on rank 0 a few seconds earlier than on the others.
  void on_hang(engine::Watchdog::OnExpiry act) { hang_ = std::move(act); }
  [[nodiscard]] engine::Watchdog& guard() { return guard_; }

  /// Returns whether a serial step of the case is cheap enough for run() to check the case.
  [[nodiscard]] static bool has_time_to_check(const Case& c);

  /// Executes `steps` steps and compares losses and every gradient tensor of the first and the last step with
  /// `reference` (needed on rank 0 only), and the weights after the last with AdamW in double precision.
  [[nodiscard]] Check verify(const Case& c, int steps, const Reference& reference);
  /// Executes `program`, whose ranks, slots and communicators are those of the case, in place of the case's
  /// own.
  [[nodiscard]] Check verify(const Case& c, const schedule::Program& program, int steps,
                             const Reference& reference);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }

private:
  /// The part of run() that only the ranks of the case take part in. `reference` (nullptr: none) is for the
  /// first step. Returns why they leave the case, alike on all.
  StopReason execute(const Case& c, MPI_Comm comm, const Reference* reference, const Limits& limits,
                     CaseResult& result);
  /// `program`: nullptr for that of the case.
  [[nodiscard]] std::unique_ptr<engine::Runtime> make_runtime(const Case& c, const schedule::Program* program,
                                                              MPI_Comm comm, Limits::Seconds stall_limit);
  Check verify(const Case& c, const schedule::Program* program, int steps, const Reference& reference);
  void on_stall(const std::string& report);

  MPI_Comm world_;
  RunnerOptions options_;
  int rank_;
  int ranks_;
  engine::Watchdog::OnExpiry hang_;
  engine::Watchdog guard_;
  References references_;  ///< rank 0's; most cases of a sweep share a few
};

}  // namespace minitaw::harness
