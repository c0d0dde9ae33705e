// SPDX-License-Identifier: BSD-3-Clause
#include "sweep.hpp"
#include <fmt/format.h>
#include <mutex>
#include <set>
#include <string.h>
#include "base/error.hpp"
#include "budget.hpp"
#include "instruments.hpp"
#include "progress.hpp"
#include "record/recorder.hpp"
#include "record/table.hpp"
#include "signals.hpp"

namespace minitaw::app {
using harness::StopReason, record::Row;

namespace {
/// Rank 0's part of a sweep: what is still to do, the file, and what people read on standard
/// output.
class ResultWriter {
public:
  ResultWriter(const deck::Deck& deck,
      const SweepOptions& options,
      const Invocation& invocation,
      const MpiJob& mpi)
      : deck_(deck),
        mpi_(mpi),
        options_(options),
        recorder_(
            options.output, mpi.provenance(deck, invocation.arguments()), remarks(), deck.cases),
        remaining_(
            remaining_runs(deck.cases, recorder_.rows(), {options.retry, options.interleave})),
        table_(record::make_table(record::preview(deck.cases), true)) {
    print(mpi.head_text(deck));
    if (!recorder_.note().empty())
      note(recorder_.note());
    std::set<std::size_t> left;
    for (const Run& run : remaining_.runs)
      left.insert(run.index);
    if (const auto known = deck.cases.size() - left.size() - remaining_.notes.size(); known > 0)
      note(fmt::format("{} has {} of {} already",
          options.output,
          known,
          counted(std::ssize(deck.cases), "case")));
    for (const auto* sentences : {&remaining_.notes, &remaining_.last})
      for (const std::string& sentence : *sentences)
        note(sentence);
    print(table_.header());
  }

  const std::vector<Run>& runs() const { return remaining_.runs; }

  /// The next run is not executed, and has no row.
  void leave_out() { ++done_; }

  bool has_failed(const Run& run) const { return failed_.contains(run.index); }

  void note(const std::string& sentence) { print(fmt::format("# {}\n", sentence)); }

  void begins(const Run& run) {
    const std::scoped_lock lock(mutex_);
    running_ = run;
    recorder_.begin_case(deck_.cases[run.index]);
  }

  /// The run has ended, well or not.
  void finished(const Run& run, CaseResult result) {
    const std::scoped_lock lock(mutex_);
    add(run, std::move(result));
  }

  /// The run does not begin, or ends without any result of its own.
  void failed(const Run& run, Status status, const std::string& reason) {
    finished(run, failure(run, status, reason));
  }

  /// From any thread: what is running will not end, because the job cannot go on.
  void give_up(Status status, const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    if (const std::optional<Run> run = running_)
      add(*run, failure(*run, status, reason));
    recorder_.finish();
  }

  /// The exit code: of all cases of the deck, also those that an earlier run has measured.
  [[nodiscard]] int close(const std::string& why_stopped) {
    const std::scoped_lock lock(mutex_);
    const std::vector<std::string> cases = list_of(deck_.cases, deck::identity);
    const record::Asked asked(cases.begin(), cases.end());
    std::vector<Row> rows = recorder_.rows();  // the file may have other cases
    std::erase_if(rows, [&](const Row& row) { return !asked.contains(row.text("identity")); });
    for (const std::string& sentence : deck_.left_out)
      note(sentence);
    if (!why_stopped.empty())
      recorder_.stop(why_stopped);
    print(record::closing_text(rows, remarks(), asked, why_stopped));
    note("results: " + options_.output);
    recorder_.finish();
    return record::is_valid(record::verdict(rows, asked, why_stopped)) ? 0 : 1;
  }

private:
  CaseResult failure(const Run& run, Status status, const std::string& reason) const {
    CaseResult result;
    result.asked = deck_.cases[run.index];
    result.status = status;
    result.reason = reason;
    result.started = utc_now();
    return result;
  }

  void add(const Run& run, CaseResult result) {
    running_.reset();
    result.peak = peak_of(result.asked);
    if (result.status != Status::ok)
      failed_.insert(run.index);
    result.reason = mpi_.hosts.hidden(result.reason);  // MPI's own words may name them
    std::string line = table_.row(recorder_.append(result, run.repetition));
    line.pop_back();
    if (const int repeats = deck_.cases[run.index].repeats; repeats > 1)
      line += fmt::format("  repetition {}/{}", run.repetition + 1, repeats);
    print(fmt::format("{}  [{}/{}]\n", line, ++done_, remaining_.runs.size()));
    if (!result.reason.empty())
      note(result.reason);
    if (!result.remark.empty() && told_.insert(result.remark).second)
      note(result.remark);
  }

  /// The result file has it too, so the run goes on where this cannot be written.
  void print(const std::string& text) {
    const std::string fault = try_stdout(text);
    if (!fault.empty() && told_.insert(fault).second)
      print_error(fmt::format("{}; the run goes on, {} has it all", fault, options_.output));
  }

  /// FLOP/s of a rank's device for this case.
  double peak_of(const Case& c) const {
    if (!std::isnan(options_.peak))
      return options_.peak;
    const std::vector<std::string> units = list_of(mpi_.ranks, &topology::RankPlace::unit);
    return topology::common_peak(
        std::span(units).first(c.ranks), c.shape.dtype == model::Dtype::bf16);
  }

  const deck::Deck& deck_;
  const MpiJob& mpi_;
  const SweepOptions& options_;
  record::Recorder recorder_;
  RemainingRuns remaining_;
  std::size_t done_ = 0;  ///< of these runs
  TextTable<Row> table_;
  std::set<std::size_t> failed_;  ///< cases
  std::set<std::string> told_;    ///< remarks and faults that were printed
  std::optional<Run> running_;
  std::mutex mutex_;  ///< give_up() comes from another thread
};

/// The next thing that all ranks do, as rank 0 decides.
struct Order {
  bool execute = false;   ///< else the sweep ends
  std::size_t index = 0;  ///< of the case in the deck
  bool check = false;     ///< the first step is compared with a serial reference on rank 0
};

class Sweep {
public:
  Sweep(const deck::Deck& deck,
      const SweepOptions& options,
      const Invocation& invocation,
      MpiJob& mpi)
      : deck_(deck),
        mpi_(mpi),
        time_(options.time_limit),
        budget_(mpi) {
    harness::agree_on_root(
        MPI_COMM_WORLD, [&] { writer_.emplace(deck, options, invocation, mpi); });
    mpi.record_by([this](const std::string& reason) { give_up(Status::timeout, reason); });
  }

  Sweep& operator=(Sweep&&) = delete;

  ~Sweep() { mpi_.record_by(); }

  int run() {
    for (Order order = next(); order.execute; order = next())
      execute(order);
    mpi_.watchdog.phase("ending the sweep");
    return mpi_.on_root([this] { return writer_->close(why_stopped_); });
  }

private:
  /// Returns the next order, the same on all ranks. An error of rank 0 in writing ends the sweep
  /// everywhere.
  Order next() {
    mpi_.watchdog.phase("agreeing on the next case");
    find_signal();
    return mpi_.on_root([this] { return choose(); });
  }

  /// Rank 0 tells of a signal even if the step ended before it was passed on.
  void find_signal() {
    const auto largest = [](int value) {
      return static_cast<int>(comm::mpi::largest(value, MPI_COMM_WORLD));
    };
    const int own = caught_signal();
    signal_ = largest(own);
    if (signal_ == 0)
      return;
    const int rank = largest(own == signal_ ? mpi_.environment.rank() : 0);
    if (writer_)
      pass_on_signal(rank, signal_);
  }

  /// Rank 0: the next run that can begin; what cannot is recorded or left.
  Order choose() {
    for (; why_stopped_.empty() && at_ < writer_->runs().size(); ++at_) {
      if (signal_ != 0) {
        why_stopped_ = fmt::format("stopped by SIG{}", sigabbrev_np(signal_));
        break;
      }
      const Run& run = writer_->runs()[at_];
      const Case& c = deck_.cases[run.index];
      if (writer_->has_failed(run)) {
        writer_->leave_out();
        continue;
      }
      if (const std::string reason = budget_.reason_against(c); !reason.empty()) {
        writer_->failed(run, Status::skipped, reason);
        continue;
      }
      if (time_.left() <= 0) {
        why_stopped_ = by_time();
        break;
      }
      writer_->begins(run);
      const bool check = harness::CaseRunner::has_time_to_check(c) &&
                         budget_.reason_against(c, memory_of_check(c)).empty();
      return {true, run.index, check};
    }
    return {};
  }

  void execute(const Order& order) {
    const Case& c = deck_.cases[order.index];
    harness::Outcome executed;
    try {
      executed = mpi_.runner.run(c, {stop_of(c), order.check});
    } catch (const std::exception& error) {
      give_up(Status::error, error.what());
      throw;
    }
    mpi_.watchdog.phase("recording a case");
    harness::agree_on_root(MPI_COMM_WORLD, [&] { settle(executed); });
  }

  /// Rank 0: the job cannot go on.
  void give_up(Status status, const std::string& reason) {
    if (writer_)
      writer_->give_up(status, reason);
  }

  /// Asked after every step: rank 0 knows the time, any rank may have got a signal. The first case
  /// of the session has all its time; a later one is left as soon as it will not end in time.
  std::function<StopReason()> stop_of(const Case& c) {
    using Clock = std::chrono::steady_clock;
    return [this, begin = Clock::now(), steps = 0, all = c.warmup + c.steps]() mutable {
      if (caught_signal() != 0)
        return StopReason::signal;
      const std::chrono::duration<double> passed = Clock::now() - begin;
      const double step = passed.count() / ++steps;
      const double needed = finished_ == 0 ? step : step * (all - steps);
      return writer_ && time_.left() < needed ? StopReason::time_limit : StopReason::no;
    };
  }

  /// Rank 0: what a run has come to; one that was left for another time has come to nothing.
  void settle(harness::Outcome& executed) {
    const Run& run = writer_->runs()[at_];
    switch (executed.stopped) {
    case StopReason::no:
      ++finished_;
      writer_->finished(run, std::move(executed.result));
      break;
    case StopReason::time_limit:
      why_stopped_ = by_time();
      if (finished_ > 0 || !time_.is_whole())
        return;
      writer_->failed(run, Status::timeout, fmt::format("it does not end within {}", time_.name()));
      break;
    case StopReason::signal: return;  // choose() says which
    }
    ++at_;
  }

  std::string by_time() const { return fmt::format("stopped before {}", time_.name()); }

  const deck::Deck& deck_;
  MpiJob& mpi_;
  TimeLimit time_;
  MemoryBudget budget_;
  std::optional<ResultWriter> writer_;  ///< rank 0
  std::size_t at_ = 0;                  ///< of its runs
  int finished_ = 0;                    ///< runs of this session
  int signal_ = 0;                      ///< of some rank
  std::string why_stopped_;             ///< rank 0
};
}  // namespace

int run_sweep(const deck::Deck& deck,
    const SweepOptions& options,
    const Invocation& invocation,
    MpiJob& mpi) {
  return Sweep(deck, options, invocation, mpi).run();
}
}  // namespace minitaw::app
