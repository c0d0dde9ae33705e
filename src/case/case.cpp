// SPDX-License-Identifier: BSD-3-Clause
#include "case/case.hpp"
#include <algorithm>
#include <fmt/format.h>
#include "schedule/validate.hpp"

namespace minitaw {
void set_schedule(Case& c, const std::string& text) {
  const schedule::Spec spec = schedule::parse_spec(text);
  c.schedule = schedule::to_text(spec);
  c.shape.slices = schedule::number_of(spec, "slices");
  c.shape.even_slices = spec.value("cut") == "even";
}

std::string ranks_text(int ranks, int replicas) {
  return replicas > 1 ? fmt::format("{}x{}", replicas, ranks / replicas) : fmt::format("{}", ranks);
}

model::Shape shape_of_rank(const Case& c, int rank) {
  model::Shape shape = c.shape;
  shape.context.index = rank % shape.context.count;
  return shape;
}

std::int64_t sequences_of_step(const Case& c) {
  return c.micro_batches * c.shape.micro_batch;
}

double tokens_of_step(const Case& c) {
  return sequences_of_step(c) * c.shape.seq;
}

int sharers_of(const Case& c) {
  return c.ranks / c.shape.context.count;
}

Case on_one_rank(Case c) {
  c.ranks = 1;
  c.groups = topology::Groups({1});
  c.replicas = 1;
  c.shape.context = {};
  c.shape.key_parts = 1;
  c.shape.slices = 1;
  c.shape.even_slices = false;
  c.shape.fp32_key_gradients = false;
  return c;
}

schedule::Request request_of(const Case& c) {
  return {schedule::parse_spec(c.schedule),
      c.groups,
      c.micro_batches,
      c.shape.layers,
      c.replicas,
      c.clip_norm > 0,
      c.folder,
      c.shape.context.count,
      c.shape.key_parts,
      c.shape.tied,
      c.shape.shares_sequences() ? model::block_costs(c.shape) : model::BlockCosts()};
}

PlannedCase::PlannedCase(Case c, std::shared_ptr<const schedule::Program> of_case)
    : asked(std::move(c)),
      program(std::move(of_case)),
      layout(model::make_layout(asked.shape, schedule::cut_of(*program))),
      memory(schedule::memory(*program, layout)) {}

Plan plan_of(const Case& c) {
  return Planner().plan(c);
}

Plan Planner::plan(const Case& c) {
  constexpr std::uint64_t most = std::uint64_t{32} << 20;
  const auto asked_of = [](const Known& known) -> const Case& { return known.plan->asked; };
  if (const auto same = std::ranges::find(known_, c, asked_of); same != known_.end())
    return same->plan;

  if (bytes_ > most) {
    known_.clear();
    bytes_ = 0;
  }
  const schedule::Request request = request_of(c);
  std::shared_ptr<const schedule::Program> program;
  if (const auto like = std::ranges::find(known_, request, &Known::request); like != known_.end()) {
    program = like->plan->program;
  } else {
    program = std::make_shared<schedule::Program>(schedule::build_valid(request));
    bytes_ += schedule::program_bytes(*program);
  }
  known_.push_back({request, std::make_shared<PlannedCase>(c, program)});
  return known_.back().plan;
}
}  // namespace minitaw
