#include "record/remaining.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "record/result.hpp"

namespace minitaw::record {

namespace {

using Rows = std::map<std::string, const Row*>;

bool has(const Row& row, Status status) { return row.text("status") == name_of(status); }

bool failed(const Row& row) { return !has(row, Status::ok) && !has(row, Status::skipped); }

std::string kept_text(const Row& row) {
  std::string reason = row.text("reason");
  if (reason.ends_with('.')) reason.pop_back();
  return fmt::format("case {} ({}, {} ranks, {} tokens) stays as it ended, {}: {}; --retry runs it again",
                     row.integer("case"), row.text("schedule"), row.integer("ranks"), row.integer("seq"),
                     row.text("status"), reason);
}

/// Repetitions of it that need not run; a failed case that is to be tried again has none.
int done_before(const Row& row) { return has(row, Status::ok) ? repetitions_of(row) : 0; }

/// Fisher and Yates; a distribution of the standard library would give another order with another compiler.
void shuffle(std::vector<Run>& runs, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t i = runs.size(); i > 1; --i) std::swap(runs[i - 1], runs[random() % i]);
}

/// Repetitions of a case in the order in which they come.
void number(std::vector<Run>& runs, std::map<std::size_t, int> next) {
  for (Run& run : runs) run.repetition = next[run.index]++;
}

}  // namespace

int repetitions_of(const Row& row) {
  const std::int64_t steps = row.integer("steps");
  return steps < 1 ? 0 : static_cast<int>(row.integer("samples") / steps);
}

bool is_finished(const Row& row) {
  return has(row, Status::ok) && repetitions_of(row) >= row.integer("repeats");
}

RemainingRuns remaining_runs(const std::vector<deck::Case>& cases, const std::vector<Row>& rows,
                             const TodoOptions& options) {
  Rows known;
  for (const Row& row : rows) known[row.text("identity")] = &row;
  RemainingRuns remaining;
  std::map<std::size_t, int> next;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto at = known.find(deck::identity(cases[i]));
    if (at != known.end() && failed(*at->second) && !options.retry) {
      remaining.notes.push_back(kept_text(*at->second));
      continue;
    }
    next[i] = at == known.end() ? 0 : done_before(*at->second);
    for (int r = next[i]; r < cases[i].repeats; ++r) remaining.runs.push_back({i, r});
  }
  if (options.interleave) shuffle(remaining.runs, *options.interleave);
  if (!options.interrupted.empty())
    std::ranges::stable_partition(remaining.runs, [&](const Run& run) {
      return deck::identity(cases[run.index]) != options.interrupted;
    });
  number(remaining.runs, std::move(next));
  return remaining;
}

namespace {

double work_of(const deck::Case& c) {
  const model::Flops flops = model::flops_per_token(c.shape);
  return (flops.matmul + flops.attention_causal) * tokens_of(c) * (c.steps + c.warmup) / c.ranks;
}

}  // namespace

Progress::Progress(const std::vector<deck::Case>& runs, double least_rate) : least_rate_(least_rate) {
  for (const deck::Case& c : runs) work_.push_back(work_of(c));
  work_left_ = std::accumulate(work_.begin(), work_.end(), 0.0);
}

std::string Progress::after(double seconds) {
  seconds_ += seconds;
  work_done_ += work_.at(done_);
  leave_out();
  const double left = work_done_ > 0 ? seconds_ * work_left_ / work_done_ : 0;
  return fmt::format("[{}/{}, {} to go]", done_, work_.size(), clock_text(std::max(left, 0.0)));
}

void Progress::leave_out() { work_left_ -= work_.at(done_++); }

double Progress::expected(const deck::Case& c) const {
  return work_of(c) * (measured() ? seconds_ / work_done_ : 1 / least_rate_);
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace minitaw::record
