// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/predict.hpp"
#include <algorithm>
#include "base/error.hpp"
#include "schedule/validate.hpp"

namespace minitaw::predict {
namespace {
using schedule::Action, schedule::Kind;

/// Seconds of the actions of a step on a device that they have for themselves; transfers are not
/// asked for. The step must live as long as the result.
schedule::Costs device_costs(const Step& step) {
  const model::Shape& shape = step.layout.shape;
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
    const double seconds = schedule::is_visit(a.kind) || a.kind == Kind::loss
                               ? schedule::cost_of(a, step.layout, price)
                               : schedule::touched_bytes(step.program, rank, a, step.layout) / rate;
    return machine.overhead + seconds;
  };
}

/// The first two replicas of a case.
Case two_replicas(Case c) {
  c.micro_batches = c.micro_batches / c.replicas * 2;
  c.ranks = c.ranks / c.replicas * 2;
  c.replicas = 2;
  c.groups = c.groups.within(0, c.ranks);
  return c;
}

/// A program of two replicas without the second.
void drop_second_replica(schedule::Program& program) {
  const int ranks = program.ranks.size() / 2;
  program.ranks.resize(ranks);
  for (schedule::Communicator& communicator : program.communicators) {
    std::erase_if(communicator.ranks, [&](int r) { return r >= ranks; });
    if (communicator.ranks.empty())
      communicator.ranks = {0};  // no rank calls it
  }
  program.groups = program.groups.within(0, ranks);
}

/// The part of a case that is simulated, and as much of the machine as it uses.
Step step_of(const Case& c, const Machine& machine) {
  if (c.ranks > machine.ranks())
    throw InputError("{}: the machine has {} of {}, fewer than the {} ranks of the case",
        machine.path,
        counted(machine.nodes, "node"),
        counted(machine.ranks_per_node, "rank"),
        c.ranks);
  const bool alike = replicas_are_alike(c, machine);
  Step step{.program = schedule::build_valid(request_of(alike ? two_replicas(c) : c)),
      .layout = {},
      .machine = machine,
      .replicas = alike ? c.replicas : 1};
  if (alike) {
    drop_second_replica(step.program);
    step.machine.nodes = step.program.ranks.size() / machine.ranks_per_node;
  }
  step.layout = model::make_layout(c.shape, schedule::cut_of(step.program));
  return step;
}

/// Bytes of the rank that needs most.
std::size_t memory_of(const Step& step) {
  std::size_t most = 0;
  for (const schedule::Footprint& rank : schedule::memory(step.program, step.layout))
    most = std::max(most, rank.arena());
  return most;
}

Floor floor_of(const Step& step) {
  const schedule::Costs costs = device_costs(step);
  const schedule::ByteMatrix bytes = schedule::bytes(step.program, step.layout);
  Floor floor{.memory = memory_of(step)};
  const int ranks = step.program.ranks.size();
  for (int r = 0; r < ranks; ++r) {
    double computing = 0;
    for (const Action& a : step.program.ranks[r].actions)
      if (a.lane == schedule::Lane::compute)
        computing += costs(r, a);
    floor.compute = std::max(floor.compute, computing);
  }
  const Machine& machine = step.machine;
  const topology::Groups nodes(std::vector<int>(machine.nodes, machine.ranks_per_node));
  const topology::Groups used = nodes.within(0, ranks);
  double between = 0, busiest = 0;
  for (int node = 0; node < used.count(); ++node) {
    const double out = bytes.leaving(used, node), in = bytes.entering(used, node);
    between += out;
    busiest = std::max({busiest, out, in});
  }
  if (busiest > 0)
    floor.network =
        std::max(busiest / (machine.adapters * machine.rate), between / machine.core_rate());
  return floor;
}
}  // namespace

bool replicas_are_alike(const Case& c, const Machine& machine) {
  return c.replicas > 2 && machine.pools == machine.nodes &&
         c.ranks / c.replicas % machine.ranks_per_node == 0;
}

std::vector<Floor> floors_of(const std::vector<Case>& cases, const Machine& machine) {
  Step step = step_of(cases.front(), machine);
  std::vector<Floor> floors;
  for (const Case& one : cases) {
    step.layout = model::make_layout(one.shape, schedule::cut_of(step.program));
    floors.push_back(floor_of(step));
  }
  return floors;
}

Prediction predict(const Case& c, const Machine& machine) {
  Step step = step_of(c, machine);
  Prediction result = simulate(step, device_costs(step));
  result.traffic.between *= step.replicas;
  result.memory = memory_of(step);
  result.program = std::move(step.program);
  result.tokens_per_s = sequences_of_step(c) * c.shape.seq / result.seconds;
  if (const double peak = machine.speeds.at(c.shape.dtype).peak; peak > 0)
    result.mfu = model::flops_per_token(c.shape) * result.tokens_per_s / (c.ranks * peak);
  return result;
}
}  // namespace minitaw::predict
