// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/predict.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include "base/error.hpp"
#include "schedule/validate.hpp"

namespace minitaw::predict {
namespace {
using schedule::Action, schedule::Kind;

/// Seconds of the actions of a case on a device that they have for themselves; transfers are not
/// asked for. `program` and `machine` must live as long as the result.
schedule::Costs device_costs(const Case& c,
    const schedule::Program& program,
    const model::Layout& layout,
    const Machine& machine) {
  const model::Dtype dtype = c.shape.dtype;
  if (!machine.device.speeds.contains(dtype))
    throw InputError(fmt::format("{}: there is no table device.{}, the precision of the case",
        machine.path,
        model::name_of(dtype)));
  const double share = c.shape.micro_batch;
  return [=, &program, &machine, own = c.micro_batch_per_rank](int rank, const Action& a) {
    const double part = own.empty() || a.micro_batch < 0 ? 1 : own[rank] / share;
    if (a.kind == Kind::join)
      return 0.0;
    const Device& device = machine.device;
    const Speed& speed = device.speeds.at(dtype);
    const double longer = part / machine.own[rank].speed;
    if (const auto measured = speed.actions.find(visit_of(a)); measured != speed.actions.end())
      return longer * schedule::flops(a, layout) / measured->second;
    const double seconds =
        schedule::is_visit(a.kind) || a.kind == Kind::loss
            ? schedule::cost_of(a, layout, model::in_seconds(speed, device.memory_rate))
            : schedule::touched_bytes(program, rank, a, layout) / device.memory_rate;
    return device.overhead + longer * seconds;
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
  const auto ranks = static_cast<int>(program.ranks.size()) / 2;
  program.ranks.resize(ranks);
  for (schedule::Communicator& communicator : program.communicators) {
    std::erase_if(communicator.ranks, [&](int r) { return r >= ranks; });
    if (communicator.ranks.empty())
      communicator.ranks = {0};  // no rank calls it
  }
  program.groups = program.groups.within(0, ranks);
}

/// The part of a case that is simulated.
struct Prepared {
  Case simulated;   ///< two replicas, if one stands for all
  Machine machine;  ///< as much of it as those that are simulated use
  schedule::Program program;
  model::Layout layout;
  int replicas = 1;
};

Prepared prepare(const Case& c, const Machine& machine) {
  if (c.ranks > machine.ranks())
    throw InputError(
        fmt::format("{}: the machine has {} of {}, fewer than the {} ranks of the case",
            machine.path,
            counted(machine.nodes, "node"),
            counted(machine.ranks_per_node, "rank"),
            c.ranks));
  const bool alike = replicas_are_alike(c, machine);
  Prepared p{alike ? two_replicas(c) : c, machine, {}, {}, alike ? c.replicas : 1};
  p.program = schedule::build_valid(request_of(p.simulated));
  if (alike) {
    drop_second_replica(p.program);
    p.machine.nodes = static_cast<int>(p.program.ranks.size()) / machine.ranks_per_node;
  }
  p.layout = model::make_layout(c.shape, schedule::cut_of(p.program));
  return p;
}

std::vector<schedule::Footprint> memory_of(const Prepared& p) {
  return schedule::memory(p.program, p.layout, p.simulated.micro_batch_per_rank);
}

/// Returns whether each rank has enough; nothing if it is not known of one, and no other lacks any.
std::optional<bool> fits(const std::vector<schedule::Footprint>& memory, const Machine& machine) {
  bool known = true;
  for (int r = 0; r < std::ssize(memory); ++r) {
    const std::optional<std::uint64_t> has = machine.own[r].memory;
    if (has && memory[r].arena() > *has)
      return false;
    known &= has.has_value();
  }
  return known ? std::optional(true) : std::nullopt;
}

std::size_t worst(const std::vector<schedule::Footprint>& memory) {
  const auto most = std::ranges::max_element(memory, {}, &schedule::Footprint::arena);
  return most == memory.end() ? 0 : most->arena();
}

/// The bounds of a prepared case.
Floor floor_of(const Prepared& p) {
  const schedule::Costs costs = device_costs(p.simulated, p.program, p.layout, p.machine);
  const schedule::ByteMatrix bytes =
      schedule::bytes(p.program, p.layout, p.simulated.micro_batch_per_rank);
  const std::vector<schedule::Footprint> memory = memory_of(p);
  Floor floor{worst(memory), fits(memory, p.machine)};
  for (int r = 0; r < bytes.ranks(); ++r) {
    double computing = 0;
    for (const Action& a : p.program.ranks[r].actions)
      if (a.lane == schedule::Lane::compute)
        computing += costs(r, a);
    floor.compute = std::max(floor.compute, computing);
  }
  const auto nodes = topology::Groups(std::vector<int>(p.machine.nodes, p.machine.ranks_per_node));
  const topology::Groups used = nodes.within(0, bytes.ranks());
  for (int node = 0; node < used.count(); ++node) {
    const double most = std::max(bytes.leaving(used, node), bytes.entering(used, node));
    const auto first = p.machine.rates.begin() + node * p.machine.adapters;
    const double rate = std::accumulate(first, first + p.machine.adapters, 0.0);
    if (most > 0)
      floor.adapter = std::max(floor.adapter, most / rate);
  }
  return floor;
}
}  // namespace

std::size_t Prediction::worst_memory() const {
  return worst(memory);
}

bool replicas_are_alike(const Case& c, const Machine& machine) {
  return c.replicas > 2 && machine.topology == Topology::one_switch &&
         machine.pools == machine.nodes && c.ranks / c.replicas % machine.ranks_per_node == 0 &&
         c.micro_batch_per_rank.empty() && machine.alike;
}

std::vector<Floor> floors_of(const std::vector<Case>& cases, const Machine& machine) {
  Prepared p = prepare(cases.front(), machine);
  std::vector<Floor> floors;
  for (const Case& one : cases) {
    p.layout = model::make_layout(one.shape, schedule::cut_of(p.program));
    floors.push_back(floor_of(p));
  }
  return floors;
}

namespace {
Prediction predict_prepared(
    const Case& c, const Machine& machine, Prepared p, std::vector<schedule::Footprint> memory) {
  Prediction result = simulate(p.program,
      p.layout,
      p.machine,
      device_costs(p.simulated, p.program, p.layout, p.machine),
      p.replicas,
      p.simulated.micro_batch_per_rank);
  result.fits = fits(memory, p.machine);
  result.memory = std::move(memory);
  result.program = std::move(p.program);
  result.tokens_per_s = sequences_of_step(c) * c.shape.seq / result.seconds;
  const model::Flops flops = model::flops_per_token(c.shape);
  if (const double peak = machine.device.speeds.at(c.shape.dtype).peak; peak > 0)
    result.mfu = (flops.matmul + flops.attention_causal) * result.tokens_per_s / (c.ranks * peak);
  return result;
}
}  // namespace

Prediction predict(const Case& c, const Machine& machine) {
  Prepared p = prepare(c, machine);
  std::vector<schedule::Footprint> memory = memory_of(p);
  return predict_prepared(c, machine, std::move(p), std::move(memory));
}

std::optional<Prediction> predict_fitting(const Case& c, const Machine& machine) {
  Prepared p = prepare(c, machine);
  std::vector<schedule::Footprint> memory = memory_of(p);
  if (!fits(memory, p.machine).value_or(true))
    return std::nullopt;
  return predict_prepared(c, machine, std::move(p), std::move(memory));
}
}  // namespace minitaw::predict
