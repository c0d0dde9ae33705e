#pragma once

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "record/progress.hpp"
#include "record/recorder.hpp"
#include "record/table.hpp"
#include "record/todo.hpp"
#include "record/verdict.hpp"
#include "run_sweep.hpp"

namespace minitaw::app {

/// Rank 0's part of a sweep: what is still to do, the file, and what people read on standard output.
class Speaker {
public:
  Speaker(const deck::Deck& deck, const RunOptions& options, const MpiJob& mpi);

  [[nodiscard]] const std::vector<record::Run>& runs() const { return todo_.runs; }
  [[nodiscard]] record::Progress& progress() { return *progress_; }
  [[nodiscard]] const deck::Case& case_of(const record::Run& run) const { return deck_.cases[run.index]; }
  /// Whether this session has seen the case fail.
  [[nodiscard]] bool has_failed(const record::Run& run) const { return failed_.contains(run.index); }

  void begins(const record::Run& run);
  /// The run has ended, well or not, after so many seconds.
  void finished(const record::Run& run, record::CaseResult result, double seconds);
  /// The run does not begin, or ends without any result of its own.
  void failed(const record::Run& run, record::Status status, const std::string& reason, double seconds = 0);
  /// From any thread: what is running will not end, because the job cannot go on.
  void give_up(record::Status status, const std::string& reason);
  void note(const std::string& sentence);

  /// The exit code: of all cases of the deck, also those that an earlier run has measured.
  [[nodiscard]] int close(const std::string& why_stopped);

private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    fmt::print("{}", text);
    std::fflush(stdout);
    recorder_.log(text);
  }
  void open(const MpiJob& mpi);
  void record(const record::Run& run, record::CaseResult result, double seconds);
  [[nodiscard]] record::CaseResult without_result(const record::Run& run, record::Status status,
                                                  const std::string& reason) const;
  [[nodiscard]] std::vector<record::Row> own_rows() const;

  const deck::Deck& deck_;
  const record::HostNames& hosts_;
  std::string output_;
  record::Recorder recorder_;
  record::Todo todo_;
  std::optional<record::Progress> progress_;
  std::optional<record::Table> table_;
  std::set<std::size_t> failed_;  ///< cases
  std::optional<record::Run> running_;
  int position_ = 0;  ///< runs that this session has begun
  std::mutex mutex_;  ///< give_up() comes from another thread
};

}  // namespace minitaw::app
