// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <stdexcept>
#include "comm/wait.hpp"
#include "engine/watchdog.hpp"
#include "harness/check.hpp"
#include "instruments/energy/meter.hpp"
#include "instruments/hang/hang_finder.hpp"
#include "topology/system.hpp"

namespace minitaw::harness {
/// A failure on some rank that every rank knows about: the job can continue.
struct AgreedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct AgreedOutOfMemory : AgreedError {
  using AgreedError::AgreedError;
};

/// Barrier in which ranks sleep, so that they do not take cores from ranks that still compute.
void wait_for_all(MPI_Comm comm);
/// Runs `work` on every rank of `comm` and waits for all. If it fails anywhere, every rank throws
/// what the lowest failing rank threw, as InputError, AgreedOutOfMemory or AgreedError. Collective;
/// `work` itself must not communicate.
void agree(MPI_Comm comm, const std::function<void()>& work);

/// Reason for stopping a case before its end, in ascending priority.
enum class StopReason : int { no, case_limit, time_limit, signal };

struct Limits {
  using Seconds = engine::Watchdog::Seconds;
  /// Time without progress after which a step, or what lies between, is reported by every rank and
  /// given up.
  Seconds stall_limit = engine::default_stall_limit;
  /// Time of the whole case; it stops after the step that exceeds it.
  Seconds whole = Seconds::max();
  /// Asked on every rank after every step; the case stops before the next one if any rank gives a
  /// reason.
  std::function<StopReason()> stop = [] { return StopReason::no; };
  /// Compare the first step with the serial reference if it costs little; that takes memory of rank
  /// 0.
  bool check = true;
};

struct Outcome {
  CaseResult result;                    ///< complete on rank 0 if the case was not left
  StopReason stopped = StopReason::no;  ///< the same on all ranks
};

/// A step is the same to the bit wherever it runs, as sums have a fixed order: else data are
/// corrupted silently.
struct ReplayReport {
  /// Where each chain of wrong values begins, in the order of the data flow; rank 0 has them: "run
  /// 1, step 2, rank 3 (node 1), in the place of rank 0: 'BW s1 m2 w0 a1 x0 g0' has a wrong g0 from
  /// right inputs".
  std::vector<std::string> findings{};
  int runs = 0;  ///< more than two: they differ
  std::int64_t actions = 0, tensors = 0,
               bytes = 0;  ///< that were summed, all runs and ranks together
};

/// Asked before and after each action, before its sums are taken: tests change buffers here.
using Disturb = std::function<void(
    int run, int step, const engine::Runtime& runtime, const schedule::Action& action, bool after)>;

struct RunnerOptions {
  /// Its `stall_limit` holds for verify(); run() takes that of Limits. Stalls go to standard error.
  engine::StepOptions step{};
  /// Some ranks use the same device, which NCCL refuses.
  bool shared_devices = false;
  std::optional<topology::Groups> nodes{};  ///< of the job; none: it has one
  /// Of each rank of the job. Times of ranks that share cores say nothing of a rank; none: they
  /// compute on devices.
  std::vector<topology::RankPlace> places{};
  std::filesystem::path stat = "/proc/stat";  ///< says how busy cores are; tests have another one
  bool timeline = false;
  std::shared_ptr<meters::Meter> meter = std::make_shared<meters::Meter>("no NVIDIA device");
  std::shared_ptr<meters::Meter> node_meter = std::make_shared<meters::Meter>("not asked for");
};

/// Runs cases one after the other on the ranks of an MPI job. Every method is collective over the
/// job.
class CaseRunner {
public:
  CaseRunner(MPI_Comm world, const RunnerOptions& options);
  /// Throws InputError for a case that this build or job cannot run.
  void require_possible(const Case& c) const;
  /// Executes one repetition of the case: a first step, compared with the serial reference if that
  /// is cheap, warm-up, timed steps. Other ranks wait. A failure before the first step becomes the
  /// status. A stall throws Stalled.
  [[nodiscard]] Outcome run(const Case& c, const Limits& limits);
  /// Sets what this rank does if something between steps, which guard() watches, does not end; else
  /// it prints an error and ends the job, rank 0 a few seconds earlier. `root`: the sentence of
  /// HangFinder, already printed, or empty.
  using OnHang = std::function<void(const std::string& report, const std::string& root)>;

  void on_hang(OnHang act) { hang_ = std::move(act); }

  [[nodiscard]] engine::Watchdog& guard() { return guard_; }

  /// For work outside of cases: all ranks come this far, one by one. Who does not is named when
  /// guard() ends the job.
  void advance() { finder_.next_case(); }

  /// Returns whether a serial step of the case is cheap enough for run() to check the case.
  [[nodiscard]] static bool has_time_to_check(const Case& c);
  /// Executes `steps` steps and compares losses and all gradients of the first and the last step
  /// with `reference` (rank 0), and the last weights with AdamW in double. `program`: in place of
  /// the case's own, with its ranks and slots.
  [[nodiscard]] Check verify(const Case& c,
      int steps,
      const Reference& reference,
      const schedule::Program* program = nullptr);

  /// Executes the steps of a case twice, with the ranks of the program on other ranks of the job
  /// the second time, and compares a check sum of all that every action reads and writes. If they
  /// differ, further runs on yet other ranks decide by majority: in a job of two ranks, a fault
  /// that both placements of a rank show names no rank. Sums have a fixed order; throws InputError
  /// for a case without. `places`: of each rank of the job: "node 1, device 0".
  [[nodiscard]] ReplayReport replay(
      Case c, const std::vector<std::string>& places, const Disturb& disturb = {});

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int ranks() const { return ranks_; }

private:
  /// `reference` (nullptr: none) is for the first step. `watch` has begun before the case has any
  /// memory. Returns why the case stops, the same on all ranks.
  StopReason execute(const Case& c,
      const Reference* reference,
      const Limits& limits,
      engine::MemoryWatch& watch,
      CaseResult& result);
  /// The runtime of rank `place` of the case, with a communicator; nullptr beyond its ranks. If one
  /// throws, all do.
  [[nodiscard]] std::unique_ptr<engine::Runtime> make_runtime(const Case& c,
      const schedule::Program* program,
      int place,
      comm::mpi::OwnComm& members,
      engine::StepOptions options);
  std::string on_stall(const std::string& report);

  MPI_Comm world_;
  RunnerOptions options_;
  int rank_, ranks_;
  HangFinder finder_;
  OnHang hang_;
  engine::Watchdog guard_;
  References references_;  ///< rank 0's; most cases of a sweep share a few
};
}  // namespace minitaw::harness
