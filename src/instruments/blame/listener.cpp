// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/blame/listener.hpp"
#include <algorithm>
#include "harness/collect.hpp"
#include "instruments/blame/columns.hpp"
#include "instruments/blame/core_load.hpp"

namespace minitaw::blame {
namespace {
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
        running_(running),
        ranks_(of_case(job.ranks, running.settings.ranks)),
        load_(ranks_, job.stat) {}

  void before_step(int step) override {
    if (step == 0)
      load_.begin(running_.comm);
  }

  void after_step(int step) override {
    if (step + 1 == running_.settings.steps)
      load_.end();
  }

  void after_case(const harness::ExecutedCase& executed, CaseResult& result) override {
    const std::string others = load_.taken_by_others(running_.comm);
    const std::vector<trace::StepSpans> steps = gather_steps(executed, result);
    if (running_.runtime.rank() != 0)
      return;
    trace::Surroundings around{
        job_.nodes, job_.shared_devices ? "ranks share a device" : topology::crowd(ranks_)};
    if (around.crowd.empty())
      around.crowd = others;
    const trace::Blame found = trace::find_blame(running_.runtime.program(),
        running_.runtime.layout(),
        running_.settings.micro_batch_per_rank,
        around,
        steps);
    add(found, result);
  }

private:
  static std::span<const topology::RankPlace> of_case(
      const std::vector<topology::RankPlace>& job, int ranks) {
    return std::span(job).first(std::min(static_cast<std::size_t>(ranks), job.size()));
  }

  const Finder::Job& job_;
  harness::RunningCase running_;
  std::span<const topology::RankPlace> ranks_;
  CoreWatch load_;
};
}  // namespace

std::unique_ptr<harness::CaseListener> Finder::listen(const harness::RunningCase& running) {
  return std::make_unique<Listener>(job_, running);
}
}  // namespace minitaw::blame
