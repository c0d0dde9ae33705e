// SPDX-License-Identifier: BSD-3-Clause
#include "progress.hpp"
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <random>
#include "deck/deck.hpp"

namespace minitaw::app {
using record::CaseRuns, record::Row;

namespace {
bool is_death(const Row& row) {
  return row.text("reason").starts_with(record::job_died);
}

bool failed(const CaseRuns& known) {
  return !known.ended_ok() && known.last().text("status") != name_of(Status::skipped);
}

/// "case 3 (ddp) ended oom: a reason"
std::string end_text(const Row& row) {
  std::string reason = row.text("reason");
  if (reason.ends_with('.'))
    reason.pop_back();
  return fmt::format("case {} ({}) ended {}: {}",
      row.integer("case"),
      row.text("schedule"),
      row.text("status"),
      reason);
}

/// Fisher and Yates; a distribution of the standard library would give another order with another
/// compiler.
void shuffle(std::vector<Run>& runs) {
  std::mt19937_64 random(1);
  for (std::size_t i = runs.size(); i > 1; --i)
    std::swap(runs[i - 1], runs[random() % i]);
}

constexpr double longest_ending = 30;

/// Seconds from now to the moment that Slurm names; nothing if it names none.
std::optional<double> slurm_moment(const char* variable) {
  const char* const moment = std::getenv(variable);
  if (moment == nullptr || std::atoll(moment) <= 0)
    return std::nullopt;
  return std::atoll(moment) - std::time(nullptr);
}

/// Returns the seconds to the end of the Slurm job, at least 1; 0 if it is not known.
double left_in_slurm() {
  const auto end = slurm_moment("SLURM_JOB_END_TIME");
  return end ? std::max(*end, 1.0) : 0;
}
}  // namespace

RemainingRuns remaining_runs(
    const std::vector<Case>& cases, const std::vector<Row>& rows, const RunOrder& order) {
  const std::vector<CaseRuns> in_file = record::by_case(rows);
  std::map<std::string, const CaseRuns*> known;
  for (const CaseRuns& one : in_file)
    known[one.last().text("identity")] = &one;
  RemainingRuns remaining;
  std::map<std::string, int> deaths;
  for (const Row& row : rows)
    deaths[row.text("identity")] += is_death(row) ? 1 : 0;
  std::map<std::size_t, int> next;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (const auto at = known.find(deck::identity(cases[i])); at != known.end()) {
      const CaseRuns& runs = *at->second;
      const bool died_once = is_death(runs.last()) && deaths[at->first] == 1;
      if (failed(runs) && !order.retry && !died_once) {
        remaining.notes.push_back(end_text(runs.last()) + "; --retry runs it again");
        continue;
      }
      if (died_once)
        remaining.last.push_back(end_text(runs.last()) + "; it comes last, and once more only");
      next[i] = runs.next();
    }
    for (int r = next[i]; r < cases[i].repeats; ++r)
      remaining.runs.push_back({i, r});
  }
  if (order.interleave)
    shuffle(remaining.runs);
  std::ranges::stable_partition(remaining.runs,
      [&](const Run& run) { return deaths[deck::identity(cases[run.index])] == 0; });
  for (Run& run : remaining.runs)
    run.repetition = next[run.index]++;  // in the order in which they come
  return remaining;
}

TimeLimit::TimeLimit(std::optional<double> seconds)
    : length_(seconds ? *seconds : left_in_slurm()),
      whole_(seconds || -slurm_moment("SLURM_JOB_START_TIME").value_or(0) < length_),
      name_(seconds ? fmt::format("the time limit of {} s", length_)
                    : "the Slurm job's time limit") {}

double TimeLimit::left() const {
  if (length_ == 0)
    return std::numeric_limits<double>::infinity();
  const std::chrono::duration<double> passed = Clock::now() - start_;
  return length_ - std::min(longest_ending, length_ / 10) - passed.count();
}
}  // namespace minitaw::app
