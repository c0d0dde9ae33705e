// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/blame/listener.hpp"
#include <algorithm>
#include "comm/mpi/mpi.hpp"
#include "harness/collect.hpp"
#include "instruments/blame/blame.hpp"

namespace minitaw::blame {
namespace {
/// A share of the cores that is worth a word: as much as the smallest difference of two ranks that
/// is.
constexpr double least_share = 0.05;
/// Seconds of a core that its clock may be wrong by, at begin and end together.
constexpr double clock_error = 0.02;

/// Steps that are looked at: at most ten, fewer of programs with many actions, at least three.
int most_steps(const schedule::Program& program) {
  constexpr std::size_t most_actions = std::size_t{1} << 21;
  std::size_t actions = 0;
  for (const schedule::RankProgram& rank : program.ranks)
    actions += rank.actions.size();
  return static_cast<int>(std::clamp<std::size_t>(most_actions / actions, 3, 10));
}

/// The last steps that were kept, the accounted one first.
std::vector<trace::StepSpans> gather_steps(
    const harness::ExecutedCase& executed, const CaseResult& result) {
  const schedule::Program& program = executed.running.runtime.program();
  const harness::TimedSteps& steps = executed.steps;
  std::vector<trace::StepSpans> some = {executed.spans};
  if (!steps.keeps_all())
    return some;
  const auto end = static_cast<int>(steps.seconds().size());
  for (int step = std::max(0, end - most_steps(program)); step < end; ++step)
    if (step != result.accounted_step)
      some.push_back(steps.gather(program, step, executed.running.comm));
  return some;
}

class Listener final : public harness::CaseListener {
public:
  Listener(const Finder::Job& job, const harness::RunningCase& running)
      : job_(job),
        running_(running) {
    for (int r = 0; r < running.settings.ranks && r < std::ssize(job.places); ++r)
      places_.push_back(job.places[r]);
  }

  void before_step(int step) override {
    if (step == 0)
      begin_ = core_use();
  }

  void after_step(int step) override {
    if (step + 1 == running_.settings.steps)
      end_ = core_use();
  }

  void after_case(const harness::ExecutedCase& executed, CaseResult& result) override {
    const std::vector<rates::CoreUse> uses =
        comm::mpi::gather(end_ - begin_, running_.comm, "gathering loads of cores");
    const std::vector<trace::StepSpans> steps = gather_steps(executed, result);
    if (running_.runtime.rank() != 0)
      return;
    Surroundings around{
        job_.nodes, job_.shared_devices ? "ranks share a device" : topology::crowd(places_)};
    if (around.crowd.empty())
      around.crowd = taken_by_others(places_, uses);
    add(find_culprit(running_.runtime.program(),
            running_.runtime.layout(),
            running_.settings.micro_batch_per_rank,
            around,
            steps),
        result);
  }

private:
  rates::CoreUse core_use() const {
    return places_.empty() ? rates::CoreUse{}
                           : rates::core_use(places_[running_.runtime.rank()].cores, job_.stat);
  }

  const Finder::Job& job_;
  harness::RunningCase running_;
  std::vector<topology::RankPlace> places_;  ///< of the ranks of the case
  rates::CoreUse begin_, end_;
};
}  // namespace

std::string taken_by_others(
    std::span<const topology::RankPlace> ranks, std::span<const rates::CoreUse> uses) {
  double worst = 0;
  int who = 0;
  for (int rank = 0; rank < std::ssize(ranks); ++rank) {
    const double share = rates::share_of_others(ranks, uses, rank);
    if (share > worst && share > least_share + clock_error / uses[rank].elapsed) {
      worst = share;
      who = rank;
    }
  }
  if (worst == 0)
    return {};
  return fmt::format("other programs take {:.0f} % of the cores of rank {}", 100 * worst, who);
}

std::unique_ptr<harness::CaseListener> Finder::listen(const harness::RunningCase& running) {
  return std::make_unique<Listener>(job_, running);
}
}  // namespace minitaw::blame
