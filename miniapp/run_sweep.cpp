#include "run_sweep.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "base/error.hpp"
#include "comm/mpi/check.hpp"
#include "engine/agree.hpp"
#include "memory_budget.hpp"
#include "signals.hpp"
#include "speaker.hpp"
#include "time_limit.hpp"

namespace minitaw::app {
namespace {

using deck::Case;
using engine::Leave;
using record::Run;
using record::Status;
using Seconds = std::chrono::duration<double>;

/// A step or a case may take this many times what is expected of it.
constexpr double tolerance = 10;

/// What rank 0 has all ranks do next.
struct Order {
  enum Kind : int { play, stop } kind = stop;
  std::size_t index = 0;           ///< of the case
  double patience = 0, whole = 0;  ///< seconds, of engine::Limits
  bool check = false;              ///< of engine::Limits
};

class Sweep {
public:
  Sweep(const deck::Deck& deck, const RunOptions& options, MpiJob& mpi)
      : deck_(deck), mpi_(mpi), time_(options.time_limit), budget_(mpi) {
    engine::agree(MPI_COMM_WORLD, [&] {
      if (mpi.speaks()) speaker_.emplace(deck, options, mpi);
    });
    if (speaker_) mpi.job().on_hang([this](const std::string& report) { hang(report); });
  }

  int run() {
    for (Order order = next(); order.kind == Order::play; order = next()) play(order);
    mpi_.job().guard().expect("ending the sweep", Seconds(mpi_.watchdog()));
    int code = speaker_ ? speaker_->close(why_stopped_) : 0;
    comm::mpi::check(MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
    return code;
  }

private:
  /// The same on all ranks. What rank 0 cannot write ends the sweep on all of them.
  Order next() {
    mpi_.job().guard().expect("agreeing on the next case", Seconds(mpi_.watchdog()));
    Order order;
    engine::agree(MPI_COMM_WORLD, [&] {
      if (speaker_) order = choose();
    });
    comm::mpi::check(MPI_Bcast(&order, sizeof order, MPI_BYTE, 0, MPI_COMM_WORLD), "sharing the next case");
    return order;
  }

  /// Rank 0: the next run that can begin; what cannot is recorded or left.
  Order choose() {
    if (noted_signal() != 0) why_stopped_ = by_signal();
    for (; why_stopped_.empty() && at_ < speaker_->runs().size(); ++at_) {
      const Run& run = speaker_->runs()[at_];
      if (speaker_->has_failed(run)) {
        speaker_->progress().leave_out();
        continue;
      }
      if (const std::string reason = budget_.reason_against(speaker_->case_of(run)); !reason.empty()) {
        speaker_->failed(run, Status::skipped, reason);
        continue;
      }
      if (!has_time(speaker_->case_of(run))) break;
      const bool check = may_check(speaker_->case_of(run));
      speaker_->begins(run);
      return order_for(run, check);
    }
    return {};
  }

  /// Whether the case is likely to end before the time limit; the first one is tried anyway.
  bool has_time(const Case& c) {
    const record::Progress& progress = speaker_->progress();
    if (time_.left() > (progress.measured() ? progress.expected(c) : 0)) return true;
    why_stopped_ = by_time();
    return false;
  }

  /// Whether rank 0 has the memory for a reference, that of earlier cases left aside if need be. `run` checks
  /// small cases only; of those that it does not for lack of memory it speaks once.
  bool may_check(const Case& c) {
    if (!engine::Job::has_time_to_check(c)) return false;
    const engine::ReferenceMemory needed = engine::memory_of_check(c);
    engine::References& held = mpi_.job().references();
    engine::ReferenceMemory with_held = needed;
    with_held.alone += held.bytes();
    with_held.beside += held.bytes();
    if (budget_.reason_against(c, with_held).empty()) return true;
    held.forget();
    const std::string reason = budget_.reason_against(c, needed);
    if (!reason.empty() && unchecked_.insert(deck::identity(c)).second)
      speaker_->note(
          fmt::format("the next case is not checked: with the serial reference on rank 0 it {}", reason));
    return reason.empty();
  }

  Order order_for(const Run& run, bool check) {
    const Case& c = deck_.cases[run.index];
    const double expected = speaker_->progress().expected(c);
    const double patience = std::max(mpi_.watchdog(), tolerance * expected / (c.steps + c.warmup));
    return {Order::play, run.index, patience, patience + tolerance * expected, check};
  }

  /// All ranks.
  void play(const Order& order) {
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] { return Seconds(std::chrono::steady_clock::now() - begin).count(); };
    engine::Played played;
    try {
      played = mpi_.job().run(deck_.cases[order.index],
                              {Seconds(order.patience), Seconds(order.whole), leaving(seconds), order.check});
    } catch (const engine::Stalled& stall) {
      if (speaker_) speaker_->give_up(Status::timeout, stall.what());
      throw;
    } catch (const std::exception& error) {
      if (speaker_) speaker_->give_up(Status::error, error.what());
      throw;
    }
    mpi_.job().guard().expect("recording a case", Seconds(order.patience));
    engine::agree(MPI_COMM_WORLD, [&] {
      if (speaker_) settle(played, order, seconds());
    });
  }

  /// Asked after every step: rank 0 knows the time, any rank may have got a signal.
  [[nodiscard]] std::function<Leave()> leaving(std::function<double()> seconds) const {
    return [this, seconds, steps = 0]() mutable {
      if (noted_signal() != 0) return Leave::signal;
      const double step = seconds() / ++steps;
      return speaker_ && time_.left() < step ? Leave::time_limit : Leave::no;
    };
  }

  /// Rank 0: what a run has come to; one that was left for another time has come to nothing.
  void settle(engine::Played& played, const Order& order, double seconds) {
    const Run& run = speaker_->runs()[at_];
    switch (played.left) {
    case Leave::no:
      ++finished_;
      speaker_->finished(run, std::move(played.result), seconds);
      break;
    case Leave::case_limit:
      speaker_->failed(run, Status::timeout,
                       fmt::format("it took longer than {}, {:g} times what was expected",
                                   record::clock_text(order.whole), tolerance),
                       seconds);
      break;
    case Leave::time_limit:
      why_stopped_ = by_time();
      if (finished_ > 0 || !time_.is_whole()) return;
      speaker_->failed(run, Status::timeout, fmt::format("it does not end within {}", time_.name()), seconds);
      break;
    case Leave::signal:
      why_stopped_ = by_signal();
      return;
    }
    ++at_;
  }

  [[nodiscard]] std::string by_time() const { return fmt::format("stopped before {}", time_.name()); }
  /// The signal may have come to another rank only.
  static std::string by_signal() {
    const int signal = noted_signal();
    return "stopped by " + (signal == 0 ? "a signal" : name_of_signal(signal));
  }

  void hang(const std::string& report) {
    fmt::print(stderr, "minitaw: rank 0: {}\n", report);
    speaker_->give_up(Status::timeout, report);
  }

  const deck::Deck& deck_;
  MpiJob& mpi_;
  TimeLimit time_;
  MemoryBudget budget_;
  std::optional<Speaker> speaker_;   ///< rank 0
  std::size_t at_ = 0;               ///< of its runs
  int finished_ = 0;                 ///< runs of this session
  std::string why_stopped_;          ///< rank 0
  std::set<std::string> unchecked_;  ///< rank 0: cases that have been said to be
};

}  // namespace

int run_sweep(const RunOptions& options, MpiJob& mpi) {
  mpi.job().guard().expect("reading deck and result file", Seconds(mpi.watchdog()));
  const deck::Deck deck = mpi.read(options.deck, options.overrides);
  for (const Case& c : deck.cases) mpi.job().require_possible(c);
  return Sweep(deck, options, mpi).run();
}

}  // namespace minitaw::app
