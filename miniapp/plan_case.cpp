#include "plan_case.hpp"

#include <algorithm>
#include <numeric>

#include "deck/schedule_name.hpp"
#include "schedule/validate.hpp"

namespace minitaw::app {

int CasePlan::worst_rank() const {
  const auto at = std::ranges::max_element(memory, {}, &schedule::Footprint::total);
  return static_cast<int>(at - memory.begin());
}

CasePlan::Busiest CasePlan::busiest(std::uint64_t (schedule::ByteMatrix::*direction)(const topology::Groups&,
                                                                                     int) const) const {
  Busiest found;
  for (int group = 0; group < settings.groups.count(); ++group) {
    const std::uint64_t here = (bytes.*direction)(settings.groups, group);
    if (here > found.bytes) found = {group, here};
  }
  return found;
}

std::optional<double> CasePlan::nic_seconds() const {
  if (machine.nic == 0) return std::nullopt;
  const std::uint64_t most =
      std::max(busiest(&schedule::ByteMatrix::leaving).bytes, busiest(&schedule::ByteMatrix::entering).bytes);
  return static_cast<double>(most) / machine.nic;
}

double CasePlan::idle_ticks_share() const {
  const int busy = std::accumulate(ticks.busy.begin(), ticks.busy.end(), 0);
  return ticks.total == 0
             ? 0
             : 1 - static_cast<double>(busy) / (static_cast<double>(ticks.total) * settings.ranks);
}

std::vector<schedule::Footprint> memory_of(const deck::Case& c, const schedule::Program& program,
                                           const model::Layout& layout) {
  return c.micro_batch_per_rank.empty() ? schedule::memory(program, layout)
                                        : schedule::memory(program, layout, c.micro_batch_per_rank);
}

schedule::Costs costs_of(const deck::Case& c, const schedule::Program& program, const model::Layout& layout,
                         const schedule::Machine& machine) {
  return c.micro_batch_per_rank.empty()
             ? schedule::costs_of(program, layout, machine)
             : schedule::costs_of(program, layout, machine, c.micro_batch_per_rank);
}

CasePlan plan_case(const deck::Case& c, const schedule::Machine& machine) {
  schedule::Program program = schedule::build(deck::request_of(c));
  schedule::require_valid(program);
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  schedule::ByteMatrix bytes = schedule::bytes(program, layout);
  const schedule::MessageCounts messages = schedule::messages(program);
  schedule::Ticks ticks = schedule::ticks(program);
  std::vector<schedule::Footprint> memory = memory_of(c, program, layout);
  const schedule::Costs costs = schedule::free_transfers(costs_of(c, program, layout, machine));
  schedule::Idle idle = schedule::idle(program, schedule::simulate(program, costs));
  return {c,       std::move(program), std::move(bytes), messages, std::move(ticks), std::move(memory),
          machine, std::move(idle)};
}

}  // namespace minitaw::app
