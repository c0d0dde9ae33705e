#include "run_sweep.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "comm/mpi/check.hpp"
#include "engine/agree.hpp"
#include "record/progress.hpp"
#include "record/recorder.hpp"
#include "record/table.hpp"
#include "record/verdict.hpp"

namespace minitaw::app {
namespace {

using deck::Case;

record::Provenance provenance(const deck::Deck& deck, const RunOptions& options, const MpiJob& mpi) {
  record::Provenance p = record::collect(deck, options.arguments);
  p.kokkos = kokkos_version();
  p.mpi = mpi_version();
  p.hosts = mpi.hosts();
  p.devices = mpi.devices();
  p.nccl = engine::nccl_version();
  p.cuda = topology::runtime_version();
  p.driver = topology::driver_version();
  p.libraries = library_texts();
  return p;
}

/// Rank 0's part: the file, and what people read on standard output.
class Speaker {
public:
  Speaker(const deck::Deck& deck, const RunOptions& options, const MpiJob& mpi)
      : deck_(deck), output_(options.output), recorder_(options.output, provenance(deck, options, mpi)) {
    const std::set<std::string> finished = recorder_.finished();
    for (const Case& c : deck.cases) todo_.push_back(finished.contains(deck::identity(c)) ? 0 : 1);
    progress_.emplace(left());
    table_.emplace(record::preview(deck.cases));
    open(mpi);
  }

  [[nodiscard]] const std::vector<char>& todo() const { return todo_; }

  void finished(const record::CaseResult& result, double seconds) {
    const record::Row row = recorder_.append(result);
    std::string line = table_->row(row);
    if (!line.empty() && line.back() == '\n') line.pop_back();
    say("{}  {}\n", line, progress_->after(seconds));
    if (result.status != record::Status::ok) say("# {}\n", result.reason);
  }

  /// The exit code: of all cases of the deck, also those that an earlier run has measured.
  [[nodiscard]] int close() const {
    std::vector<record::Row> mine;
    for (const record::Row& row : recorder_.rows())
      if (belongs(row)) mine.push_back(row);
    say("{}", record::closing_text(mine));
    say("# results: {}\n", output_);
    return record::verdict(mine).valid() ? 0 : 1;
  }

private:
  template <class... Args>
  static void say(fmt::format_string<Args...> format, Args&&... args) {
    fmt::print(format, std::forward<Args>(args)...);
    std::fflush(stdout);
  }

  [[nodiscard]] std::vector<Case> left() const {
    std::vector<Case> cases;
    for (std::size_t i = 0; i < todo_.size(); ++i)
      if (todo_[i] != 0) cases.push_back(deck_.cases[i]);
    return cases;
  }

  void open(const MpiJob& mpi) const {
    say("# {}\n", record::version_text());
    say("{}", mpi.map_text());
    say("{}", record::settings_text(record::preview(deck_.cases)));
    for (const std::string& note : deck_.notes) say("# {}\n", note);
    for (const std::string& note : recorder_.notes()) say("# {}\n", note);
    const std::size_t known = todo_.size() - left().size();
    if (known > 0)
      say("# {} of {} cases are in {} already and are not run again\n", known, todo_.size(), output_);
    say("{}", table_->header());
  }

  [[nodiscard]] bool belongs(const record::Row& row) const {
    const std::string& identity = row.text("identity");
    for (const Case& c : deck_.cases)
      if (deck::identity(c) == identity) return true;
    return false;
  }

  const deck::Deck& deck_;
  std::string output_;
  record::Recorder recorder_;
  std::vector<char> todo_;
  std::optional<record::Progress> progress_;
  std::optional<record::Table> table_;
};

}  // namespace

int run_sweep(const RunOptions& options, MpiJob& mpi) {
  const deck::Deck deck = mpi.read(options.deck, options.overrides);
  std::optional<Speaker> speaker;
  engine::agree(MPI_COMM_WORLD, [&] {
    if (mpi.speaks()) speaker.emplace(deck, options, mpi);
  });
  std::vector<char> todo = speaker ? speaker->todo() : std::vector<char>(deck.cases.size());
  comm::mpi::check(MPI_Bcast(todo.data(), static_cast<int>(todo.size()), MPI_CHAR, 0, MPI_COMM_WORLD),
                   "MPI_Bcast");
  for (std::size_t i = 0; i < deck.cases.size(); ++i) {
    if (todo[i] == 0) continue;
    const auto begin = std::chrono::steady_clock::now();
    const record::CaseResult result = mpi.job().run(deck.cases[i]);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    engine::agree(MPI_COMM_WORLD, [&] {
      if (speaker) speaker->finished(result, took.count());
    });
  }
  int code = speaker ? speaker->close() : 0;
  comm::mpi::check(MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
  return code;
}

}  // namespace minitaw::app
