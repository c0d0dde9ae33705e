// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/predict.hpp"
#include <algorithm>
#include "base/error.hpp"

namespace minitaw::predict {
namespace {
using schedule::Action, schedule::Kind;

/// Seconds of the actions of a step on a device that they have for themselves; transfers are not
/// asked for. The step must live as long as the result.
schedule::Costs device_costs(const SimulatedStep& step) {
  const model::Layout& layout = step.plan->layout;
  const model::Shape& shape = layout.shape;
  const Machine& machine = step.machine;
  const auto speed = machine.speeds.find(shape.dtype);
  if (speed == machine.speeds.end())
    throw InputError("{}: there is no table device.{}, the precision of the case",
        machine.path,
        model::name_of(shape.dtype));
  const double rate = machine.memory_rate;
  return [&, rate, price = model::in_seconds(speed->second, rate)](int rank, const Action& a) {
    if (a.kind == Kind::join)
      return 0.0;
    const double seconds =
        schedule::is_visit(a.kind) || a.kind == Kind::loss
            ? schedule::cost_of(a, layout, price)
            : schedule::touched_bytes(*step.plan->program, rank, a, layout) / rate;
    return machine.overhead + seconds;
  };
}

/// The part of a case that is simulated, and as much of the machine as it uses.
SimulatedStep step_of(const Plan& plan, const Machine& machine) {
  const Case& c = plan->asked;
  if (c.ranks > machine.ranks())
    throw InputError("{}: the machine has {} of {}, fewer than the {} ranks of the case",
        machine.path,
        counted(machine.nodes, "node"),
        counted(machine.ranks_per_node, "rank"),
        c.ranks);
  SimulatedStep step{plan, machine, !replicas_are_alike(c, machine)};
  if (!step.all_replicas)
    step.machine.nodes = c.ranks / c.replicas / machine.ranks_per_node;
  return step;
}

/// Bytes of the rank that needs most.
std::size_t memory_of(const PlannedCase& plan) {
  return std::ranges::max(plan.memory, {}, &schedule::Footprint::arena).arena();
}
}  // namespace

bool replicas_are_alike(const Case& c, const Machine& machine) {
  return c.replicas > 1 && c.ranks / c.replicas % machine.ranks_per_node == 0;
}

Floor floor_of(const Plan& plan, const Machine& machine) {
  const SimulatedStep step = step_of(plan, machine);
  const schedule::Program& program = *plan->program;
  const schedule::Costs costs = device_costs(step);
  Floor floor{.memory = memory_of(*plan)};
  for (const int r : indices(program.ranks)) {
    double computing = 0;
    for (const Action& a : program.ranks[r].actions)
      if (a.lane == schedule::Lane::compute)
        computing += costs(r, a);
    floor.compute = std::max(floor.compute, computing);
  }
  const topology::Groups nodes(std::vector<int>(machine.nodes, machine.ranks_per_node));
  const topology::Groups used = nodes.within(0, program.job_ranks());
  double between = 0, busiest = 0;
  for (const auto& [out, in] : schedule::bytes(program, plan->layout).by_group(used)) {
    between += out;
    busiest = std::max({busiest, 1.0 * out, 1.0 * in});
  }
  if (busiest > 0)
    floor.network =
        std::max(busiest / (machine.adapters * machine.rate), between / machine.core_rate());
  return floor;
}

Prediction predict(const SimulatedStep& step) {
  const Case& c = step.plan->asked;
  Prediction result = simulate(step, device_costs(step));
  result.traffic.between *= c.replicas / step.replicas();
  result.memory = memory_of(*step.plan);
  result.tokens_per_s = tokens_of_step(c) / result.seconds;
  if (const double peak = step.machine.speeds.at(c.shape.dtype).peak; peak > 0)
    result.mfu = model::flops_per_token(c.shape) * result.tokens_per_s / (c.ranks * peak);
  return result;
}

Prediction predict(const Plan& plan, const Machine& machine) {
  return predict(step_of(plan, machine));
}
}  // namespace minitaw::predict
