#include "engine/timed_steps.hpp"

#include <algorithm>
#include <numeric>

#include "comm/mpi/size.hpp"
#include "engine/clock_offset.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;

static_assert(sizeof(Span) == 3 * sizeof(double), "spans travel as doubles");

std::size_t longest(const schedule::Program& program) {
  std::size_t actions = 0;
  for (const schedule::RankProgram& rank : program.ranks) actions = std::max(actions, rank.actions.size());
  return actions;
}

void shift(StepSpans& spans, const std::vector<double>& started) {
  const double first = *std::ranges::min_element(started);
  for (std::size_t r = 0; r < spans.size(); ++r)
    for (Span& span : spans[r]) {
      span.ready += started[r] - first;
      span.begin += started[r] - first;
      span.end += started[r] - first;
    }
}

}  // namespace

TimedSteps::TimedSteps(const schedule::Program& program, int steps, std::size_t most)
    : program_(program), keeps_all_(longest(program) * static_cast<std::size_t>(steps) <= most) {}

void TimedSteps::add(const Player& player, StepTime time) {
  seconds_.push_back(time.total);
  if (keeps_all_ || kept_.empty()) kept_.emplace_back();
  kept_.back().started = player.started();
  kept_.back().spans = player.spans();
}

int TimedSteps::choose(const std::vector<double>& lengths) const {
  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  if (!keeps_all_) return order.back();
  std::ranges::stable_sort(order, {}, [&](int step) { return lengths[step]; });
  return order[(order.size() - 1) / 2];
}

StepSpans TimedSteps::gather(int step, MPI_Comm comm) const {
  const int rank = comm::mpi::rank_in(comm);
  const Kept& mine = kept(step);
  const double start = mine.started + clock_offset(comm);
  std::vector<double> started(rank == 0 ? program_.ranks.size() : 0);
  check(MPI_Gather(&start, 1, MPI_DOUBLE, started.data(), 1, MPI_DOUBLE, 0, comm), "gathering starts");
  // One rank after the other: together they may be more doubles than an int can count.
  constexpr int tag = 0;
  const auto doubles = [](const std::vector<Span>& spans) { return static_cast<int>(3 * spans.size()); };
  if (rank != 0) {
    check(MPI_Send(mine.spans.data(), doubles(mine.spans), MPI_DOUBLE, 0, tag, comm), "sending spans");
    return {};
  }
  StepSpans all = {mine.spans};
  for (int from = 1; from < static_cast<int>(started.size()); ++from) {
    std::vector<Span>& spans = all.emplace_back(program_.ranks[from].actions.size());
    check(MPI_Recv(spans.data(), doubles(spans), MPI_DOUBLE, from, tag, comm, MPI_STATUS_IGNORE),
          "gathering spans");
  }
  shift(all, started);
  return all;
}

}  // namespace minitaw::engine
