// SPDX-License-Identifier: BSD-3-Clause
#include "case_plan.hpp"
#include <algorithm>
#include <numeric>
#include "base/error.hpp"
#include "model/plan.hpp"

namespace minitaw::app {
namespace {
using schedule::Program;

/// What driver, kernels and NCCL take of a device; an estimate.
constexpr std::uint64_t context_bytes = std::uint64_t{1} << 30;

/// The largest S, a multiple of 128 that falls into chunks, with which the case fits; 0: none.
std::int64_t largest_seq(const Case& c, const Program& program, std::uint64_t available) {
  constexpr std::int64_t longest_seq = std::int64_t{1} << 26;
  const std::int64_t seq_step = std::lcm(128, 2 * c.shape.context.count);
  const auto fits = [&](std::int64_t seq) {
    Case other = c;
    other.shape.seq = seq;
    try {
      return worst_on_device(other, program).total() <= available;
    } catch (const InputError&) {  // larger than any buffer can be
      return false;
    }
  };
  // Memory grows with S, so halving finds the last that fits.
  std::int64_t fitting = 0, beyond = longest_seq / seq_step + 1;
  while (beyond - fitting > 1) {
    const std::int64_t middle = fitting + (beyond - fitting) / 2;
    (fits(middle * seq_step) ? fitting : beyond) = middle;
  }
  return fitting * seq_step;
}

void plan_traffic(CasePlan& plan, const Program& program, const model::Layout& layout) {
  const topology::Groups& groups = program.groups;
  const schedule::ByteMatrix bytes = schedule::bytes(program, layout);
  for (int k = 0; k < schedule::traffic_kinds; ++k) {
    plan.inside[k] = bytes.inside(groups, static_cast<schedule::Traffic>(k));
    plan.between[k] = bytes.between(groups, static_cast<schedule::Traffic>(k));
  }
  for (int g = 0; g < groups.count(); ++g)
    plan.groups.push_back({g, groups.size(g), bytes.leaving(groups, g), bytes.entering(groups, g)});
}

void plan_memory(CasePlan& plan, const Program& program, const AssumedMachine& machine) {
  const Case& c = plan.settings;
  const std::vector<schedule::Footprint> memory = memory_of(c, program);
  plan.memory = list_of(memory, &schedule::Footprint::by_kind);
  plan.host = needs_on_host(c, program, memory, 1);
  for (Need& rank : plan.host)
    rank.beside += schedule::process_base;
  plan.worst = std::ranges::max_element(plan.memory, {}, total<MemoryBytes>) - plan.memory.begin();
  plan.slots = program.ranks[plan.worst].slots;
  if (const auto available = machine.device_memory)
    plan.device = {
        *available, worst_on_device(c, program), largest_seq(c, program, *available), {}};
}
}  // namespace

Need worst_on_device(const Case& c, const Program& program) {
  Need worst = std::ranges::max(
      needs_on_device(c, memory_of(c, program)), {}, [](const Need& need) { return need.step; });
  worst.beside += context_bytes;
  return worst;
}

const GroupTraffic& CasePlan::busiest(std::uint64_t GroupTraffic::* bytes) const {
  return *std::ranges::max_element(groups, {}, bytes);
}

CasePlan plan_case(
    const Case& c, std::size_t number, const Program& program, const AssumedMachine& machine) {
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  const schedule::Costs costs = schedule::costs_of(program, layout, machine.device);
  CasePlan plan;
  plan.settings = c;
  plan.number = number;
  plan.shards = program.shards;
  plan.ticks = schedule::ticks(program);
  plan.idle = schedule::idle(program, schedule::simulate(program, costs));
  plan_traffic(plan, program, layout);
  plan_memory(plan, program, machine);
  return plan;
}
}  // namespace minitaw::app
