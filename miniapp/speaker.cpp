#include "speaker.hpp"

#include <algorithm>
#include <set>

#include "comm/mpi/texts.hpp"
#include "libraries.hpp"
#include "record/environment.hpp"

namespace minitaw::app {
namespace {

using deck::Case;
using record::CaseResult;
using record::Row;
using record::Run;
using record::Status;

/// What one thread of a host, or a device, is trusted to do at least, FLOP/s; only for limits of time.
constexpr double least_rate_of_thread = 5e8;
constexpr double least_rate_of_device = 1e12;

double least_rate(const MpiJob& mpi) {
  return mpi.device_uuids().front().empty() ? least_rate_of_thread * mpi.threads() : least_rate_of_device;
}

record::Provenance provenance(const deck::Deck& deck, const RunOptions& options, const MpiJob& mpi) {
  record::Provenance p = record::collect(deck, options.arguments, mpi.hosts());
  mpi.describe(p);
  p.kokkos = kokkos_version();
  p.mpi = comm::mpi::library_version();
  p.nccl = engine::nccl_version();
  p.cuda = topology::runtime_version();
  p.driver = topology::driver_version();
  p.libraries = library_texts();
  return p;
}

}  // namespace

Speaker::Speaker(const deck::Deck& deck, const RunOptions& options, const MpiJob& mpi)
    : deck_(deck), hosts_(mpi.hosts()), output_(options.output),
      recorder_(options.output, provenance(deck, options, mpi)),
      todo_(record::make_todo(deck.cases, recorder_.rows(),
                              {options.retry, options.interleave, recorder_.interrupted()})) {
  std::vector<Case> runs;
  for (const Run& run : todo_.runs) runs.push_back(case_of(run));
  progress_.emplace(runs, least_rate(mpi));
  table_.emplace(record::preview(deck.cases));
  open(mpi);
}

void Speaker::open(const MpiJob& mpi) {
  say("# {}\n", record::version_text());
  say("{}", mpi.map_text());
  say("{}", record::settings_text(record::preview(deck_.cases)));
  say("{}", record::links_text(record::shaped_links()));
  for (const std::string& sentence : deck_.notes) note(sentence);
  for (const std::string& sentence : recorder_.notes()) note(sentence);
  const auto known = std::ranges::count_if(own_rows(), record::is_finished);
  if (known > 0)
    say("# {} of {} cases are in {} already and are not run again\n", known, deck_.cases.size(), output_);
  for (const std::string& sentence : todo_.notes) note(sentence);
  if (!recorder_.interrupted().empty() && !todo_.runs.empty())
    note("a job died while a case was running; if that case is still to do, it comes last now");
  say("{}", table_->header());
}

void Speaker::note(const std::string& sentence) { say("# {}\n", sentence); }

void Speaker::begins(const Run& run) {
  const std::scoped_lock lock(mutex_);
  running_ = run;
  recorder_.begin_case(case_of(run));
}

void Speaker::record(const Run& run, CaseResult result, double seconds) {
  running_.reset();
  result.position = {position_++};
  if (result.status != Status::ok) failed_.insert(run.index);
  result.reason = hosts_.hidden(result.reason);  // MPI's own words may name them
  const std::string reason = result.status == Status::ok ? "" : result.reason;
  const Row row = recorder_.append(std::move(result), run.repetition);
  std::string line = table_->row(row);
  if (!line.empty() && line.back() == '\n') line.pop_back();
  const int repeats = case_of(run).repeats;
  if (repeats > 1) line += fmt::format("  repetition {}/{}", run.repetition + 1, repeats);
  say("{}  {}\n", line, progress_->after(seconds));
  if (!reason.empty()) note(reason);
}

void Speaker::finished(const Run& run, CaseResult result, double seconds) {
  const std::scoped_lock lock(mutex_);
  record(run, std::move(result), seconds);
}

CaseResult Speaker::without_result(const Run& run, Status status, const std::string& reason) const {
  CaseResult result;
  result.settings = case_of(run);
  result.status = status;
  result.reason = reason;
  result.started = record::utc_now();
  return result;
}

void Speaker::failed(const Run& run, Status status, const std::string& reason, double seconds) {
  finished(run, without_result(run, status, reason), seconds);
}

void Speaker::give_up(Status status, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  // record() forgets what is running
  if (const std::optional<Run> run = running_) record(*run, without_result(*run, status, reason), 0);
  recorder_.finish();
}

std::vector<Row> Speaker::own_rows() const {
  std::set<std::string> mine;
  for (const Case& c : deck_.cases) mine.insert(deck::identity(c));
  std::vector<Row> rows;
  for (const Row& row : recorder_.rows())
    if (mine.contains(row.text("identity"))) rows.push_back(row);
  return rows;
}

int Speaker::close(const std::string& why_stopped) {
  const std::scoped_lock lock(mutex_);
  const std::vector<Row> rows = own_rows();
  // What is there and ok, but lacks repetitions, is missing too.
  const auto whole = std::ranges::count_if(rows, [](const Row& row) {
    return record::is_finished(row) || row.text("status") != name_of(Status::ok);
  });
  const record::Missing missing{deck_.cases.size() - static_cast<std::size_t>(whole), why_stopped};
  say("{}", record::closing_text(rows, missing));
  say("# results: {}\n", output_);
  recorder_.finish();
  return record::verdict(rows, missing).valid() ? 0 : 1;
}

}  // namespace minitaw::app
