// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/slowest/slowest.hpp"
#include <algorithm>
#include "comm/mpi/mpi.hpp"

namespace minitaw::slowest {
namespace {
using record::Row;
constexpr const char *rank_name = "slowest_rank", *ratio_name = "slowest_ratio";
/// A ratio that is worth a line.
constexpr double least_ratio = 1.1;
/// A share of a rank's cores that is worth a thought, and the seconds that the clock of a core may
/// be wrong by, at begin and end together.
constexpr double least_share = 0.05, clock_error = 0.02;

Slowest found_in(const Row& row) {
  return {row.integer(rank_name), row.real(ratio_name)};
}

std::string sentence(const std::vector<Row>& rows) {
  Slowest all;
  for (const Row& row : rows) {
    if (row.integer("ranks") == 1 || row.integer("samples") == 0)
      continue;
    const Slowest here = found_in(row);
    if (all.rank < 0)
      all = here;
    if (here.rank != all.rank || !(here.ratio > least_ratio))
      return {};
    all.ratio = std::min(all.ratio, here.ratio);
  }
  if (all.rank < 0)
    return {};
  return fmt::format("rank {} computes slowest in every case, at least {:.0f} % longer than the "
                     "median of the ranks; minitaw screen measures each alone",
      all.rank,
      100 * (all.ratio - 1));
}

/// Of a rank in a step: ends of a pipeline compute more than the rest.
double planned_flops(const engine::Runtime& runtime) {
  double sum = 0;
  for (const schedule::Action& a : runtime.own_program().actions)
    sum += schedule::flops(a, runtime.layout());
  return sum;
}
}  // namespace

void Comparison::begin_case(const harness::RunningCase& running) {
  rank_ = running.runtime.rank();
  steps_ = running.asked.steps;
}

void Comparison::before_step(int step) {
  if (step == 0)
    begin_ = rates::core_use(cores_, stat_);
}

void Comparison::after_step(int step) {
  if (step + 1 == steps_)
    end_ = rates::core_use(cores_, stat_);
}

void Comparison::after_case(const harness::RunningCase& running, CaseResult& result) {
  const auto uses = comm::mpi::gather(end_ - begin_, running.comm, "gathering loads of cores");
  const auto works =
      comm::mpi::gather(planned_flops(running.runtime), running.comm, "gathering FLOPs");
  if (rank_ != 0 || others_ran(places_, uses))
    return;
  std::vector<double> times;
  for (std::size_t rank = 0; rank < result.time.size(); ++rank)
    times.push_back(result.time[rank].compute / works[rank]);
  const Slowest found = slowest_of(times);
  result.found.emplace_back(rank_name, found.rank);
  result.found.emplace_back(ratio_name, found.ratio);
}

Slowest slowest_of(const std::vector<double>& times) {
  if (times.size() < 2)
    return {};
  const auto slowest = std::ranges::max_element(times);
  return {slowest - times.begin(), *slowest / median(times)};
}

bool others_ran(std::span<const topology::RankPlace> ranks, std::span<const rates::CoreUse> uses) {
  ranks = ranks.first(std::min(ranks.size(), uses.size()));
  for (int rank = 0; rank < std::ssize(ranks); ++rank)
    if (rates::share_of_others(ranks, uses, rank) > least_share + clock_error / uses[rank].elapsed)
      return true;
  return false;
}

record::Remark remark() {
  return {"slowest", sentence};
}
}  // namespace minitaw::slowest
