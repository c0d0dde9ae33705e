// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <stdexcept>
#include "comm/mpi/mpi.hpp"
#include "comm/wait.hpp"
#include "harness/check.hpp"
#include "harness/instrument.hpp"
#include "topology/memory.hpp"

namespace minitaw::harness {
/// A failure on some rank that every rank knows about: the job can continue, or end in order. After
/// any other exception of a rank nobody knows what the others wait for, so the job must be ended.
struct AgreedError : std::runtime_error {
  enum class Cause : char { input, memory, other } cause;

  AgreedError(Cause why, const std::string& what) : std::runtime_error(what), cause(why) {}
};

/// Barrier in which ranks sleep, so that they do not take cores from ranks that still compute.
void wait_for_all(MPI_Comm comm);
/// Runs `work` on every rank of `comm` and waits for all. If it fails anywhere, every rank throws
/// AgreedError: what the lowest failing rank threw, after that rank and its `host` unless all
/// failed alike. Collective; `work` itself must not communicate, or else fail on all ranks.
void agree(MPI_Comm comm, const std::function<void()>& work, const std::string& host = "");
/// The same for work of rank 0 alone.
void agree_on_root(MPI_Comm comm, const std::function<void()>& work);

/// Reason for stopping a case before its end, in ascending priority.
enum class StopReason : int { no, time_limit, signal };

struct Limits {
  /// Asked on every rank after every step. A reason of any rank ends the case.
  std::function<StopReason()> stop = [] { return StopReason::no; };
  /// Compare the first step with the serial reference, if that is cheap; it takes memory of rank 0.
  bool check = true;
};

struct Outcome {
  CaseResult result;                    ///< complete on rank 0 if the case was not left
  StopReason stopped = StopReason::no;  ///< the same on all ranks
};

struct RunnerOptions {
  engine::StepOptions step{};  ///< its watchdog also watches what lies between steps
  /// Some ranks use the same device, which NCCL refuses.
  bool shared_devices = false;
  /// Results keep when every action of one step ran.
  bool timeline = false;
  Instruments instruments{};
  std::string host{};  ///< of this rank, for messages
};

/// A case on a rank that has a part in it. Its end tells instruments, also after an exception.
struct BegunCase {
  comm::mpi::OwnComm members;
  std::unique_ptr<engine::Runtime> runtime;
  RunningCase running;
  const Instruments& instruments;

  ~BegunCase();
};

/// Runs cases one after the other on the ranks of an MPI job. Every method is collective over the
/// job.
class CaseRunner {
public:
  CaseRunner(MPI_Comm world, const RunnerOptions& options);
  /// Throws InputError for a case that this build or job cannot run.
  void require_possible(const Case& c) const;
  /// Executes one repetition of the case: warm-up and timed steps, the first of all compared with
  /// the serial reference if that is cheap. Ranks without a part in it wait. A failure before the
  /// first step becomes the status.
  [[nodiscard]] Outcome run(const Case& c, const Limits& limits);
  /// Tells instruments that this rank has come to the begin or the end of a case, or of other work
  /// of all ranks. They can then name a rank that does not come this far.
  void tell_between_cases();

  /// The plan of a case. It is made once: repetitions and budgets share it.
  Plan plan(const Case& c) { return planner_.plan(c); }

  /// Returns whether a serial step of the case is cheap enough for run() to check the case.
  static bool has_time_to_check(const Case& c);
  /// Executes `steps` steps and compares losses and all gradients of the first and the last step
  /// with `reference` (rank 0), and the last weights with AdamW in double. `instead`: a plan
  /// used in place of the case's own, with the same ranks and slots.
  [[nodiscard]] Check verify(
      const Case& c, int steps, const Training& reference, const Plan& instead = nullptr);
  /// Executes the first step of a case so many times from the same state, with sums in a fixed
  /// order. Returns on rank 0 which losses, gradients and weights, rank by rank, have other bits
  /// than in the first repetition: "rank 3, repetition 2: the gradient of layers.0.w13".
  /// Throws InputError for a case without a fixed order.
  [[nodiscard]] std::vector<std::string> repeat(const Case& asked, int times);

  int rank() const { return rank_; }

  int ranks() const { return ranks_; }

private:
  /// The plan of a case on each rank that has a part in it, nullptr on others. Collective.
  Plan agreed_plan(const Case& c);
  /// Makes the runtime of each rank that has a part in the case; nothing on others. If a runtime
  /// cannot be made, all ranks throw.
  std::unique_ptr<BegunCase> begin(const Plan& plan, const engine::StepOptions& options);
  /// `reference`: for the first step; nullptr: none. `watch` began before any memory of the case.
  /// Returns why the case stops, the same on all ranks.
  StopReason execute(const RunningCase& running,
      const Training* reference,
      const Limits& limits,
      topology::MemoryWatch& watch,
      CaseResult& result);

  void agreed(const std::function<void()>& work) { agree(world_, work, options_.host); }

  void phase(const std::string& name);
  void pause();

  MPI_Comm world_;
  RunnerOptions options_;
  int rank_, ranks_;
  Planner planner_;
  References references_;  ///< rank 0's; most cases of a sweep share a few
};
}  // namespace minitaw::harness
