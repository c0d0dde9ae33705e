// SPDX-License-Identifier: BSD-3-Clause
#include "predict/predict.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/error.hpp"
#include "schedule/validate.hpp"

namespace minitaw::predict {
namespace {
using schedule::Action;
using schedule::Kind;

/// Seconds of the actions of a case on a device that they have for themselves; transfers are not asked for.
/// `program` and `machine` must live as long as the result.
schedule::Costs device_costs(
    const Case& c, const schedule::Program& program, const model::Layout& layout, const Machine& machine) {
  const model::Dtype dtype = c.shape.dtype;
  if (!machine.device.speeds.contains(dtype))
    throw InputError(
        fmt::format("{}: there is no table device.{}, the precision of the case", machine.path, model::name_of(dtype)));
  const double share = static_cast<double>(c.shape.micro_batch);
  return [=, &program, &machine, own = c.micro_batch_per_rank](int rank, const Action& a) {
    const double part = own.empty() || a.micro_batch < 0 ? 1 : static_cast<double>(own[rank]) / share;
    if (a.kind == Kind::join) return 0.0;
    const Device& device = machine.device_of(rank);
    const Speed& speed = device.speeds.at(dtype);
    if (const auto measured = speed.actions.find(a.kind); measured != speed.actions.end())
      return part * schedule::flops(a, layout) / measured->second;
    const double seconds = schedule::is_visit(a.kind) || a.kind == Kind::loss
                               ? schedule::seconds_of(a, layout, speed, device.memory_rate)
                               : schedule::touched_bytes(program, rank, a, layout) / device.memory_rate;
    return device.overhead + part * seconds;
  };
}

/// Returns whether every replica has nodes of its own, with only one switch between them. All replicas then
/// do the same at the same time, and each sends to the next one what it gets from the one before.
bool replicas_are_alike(const Case& c, const Machine& machine) {
  return c.replicas > 2 && machine.topology == Topology::one_switch && !machine.one_machine &&
         c.ranks / c.replicas % machine.ranks_per_node == 0 && c.micro_batch_per_rank.empty() && machine.rate > 0 &&
         machine.unlike.empty() && machine.unlike_adapters.empty();
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
  std::vector<int> number;  // of each communicator, once those of the second replica are gone
  std::vector<schedule::Communicator> kept;
  for (schedule::Communicator& communicator : program.communicators) {
    std::erase_if(communicator.ranks, [&](int r) { return r >= ranks; });
    number.push_back(static_cast<int>(kept.size()));
    if (!communicator.ranks.empty()) kept.push_back(std::move(communicator));
  }
  program.communicators = std::move(kept);
  for (schedule::RankProgram& rank : program.ranks)
    for (Action& a : rank.actions)
      if (a.communicator >= 0) a.communicator = number[a.communicator];
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
    throw InputError(fmt::format("{}: the machine has {} of {}, fewer than the {} ranks of the case", machine.path,
        counted(machine.nodes, "node"), counted(machine.ranks_per_node, "rank"), c.ranks));
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
  for (int r = 0; r < static_cast<int>(memory.size()); ++r) {
    const std::optional<std::uint64_t> has = machine.device_of(r).memory;
    if (has && memory[r].total() > *has) return false;
    known &= has.has_value();
  }
  return known ? std::optional(true) : std::nullopt;
}

std::size_t worst(const std::vector<schedule::Footprint>& memory) {
  const auto most = std::ranges::max_element(memory, {}, &schedule::Footprint::total);
  return most == memory.end() ? 0 : most->total();
}
}  // namespace

std::size_t Prediction::worst_memory() const { return worst(memory); }

Floor floor_of(const Case& c, const Machine& machine) {
  const Prepared p = prepare(c, machine);
  const schedule::Costs costs = device_costs(p.simulated, p.program, p.layout, p.machine);
  const schedule::ByteMatrix bytes = schedule::bytes(p.program, p.layout);
  const std::vector<schedule::Footprint> memory = memory_of(p);
  Floor floor{worst(memory), fits(memory, p.machine)};
  std::vector<double> out(p.machine.nodes), in = out;
  for (int r = 0; r < bytes.ranks(); ++r) {
    double computing = 0;
    for (const Action& a : p.program.ranks[r].actions)
      if (a.lane == schedule::Lane::compute) computing += costs(r, a);
    floor.compute = std::max(floor.compute, computing);
    for (int to = 0; to < bytes.ranks(); ++to)
      if (const int here = p.machine.node_of(r), there = p.machine.node_of(to); here != there)
        for (int kind = 0; kind < schedule::traffic_kinds; ++kind) {
          const auto moved = static_cast<double>(bytes.at(r, to, static_cast<schedule::Traffic>(kind)));
          out[here] += moved;
          in[there] += moved;
        }
  }
  for (int node = 0; node < p.machine.nodes; ++node) {
    double rate = 0;
    for (int i = 0; i < p.machine.adapters; ++i) rate += p.machine.adapter(node * p.machine.adapters + i).rate;
    if (const double most = std::max(out[node], in[node]); most > 0)
      floor.adapter = std::max(floor.adapter, most / rate);
  }
  return floor;
}

Prediction predict(const Case& c, const Machine& machine) {
  Prepared p = prepare(c, machine);
  Prediction result =
      simulate(p.program, p.layout, p.machine, device_costs(p.simulated, p.program, p.layout, p.machine), p.replicas);
  result.memory = memory_of(p);
  result.fits = fits(result.memory, p.machine);
  result.program = std::move(p.program);
  result.tokens_per_s = static_cast<double>(sequences_of_step(c) * c.shape.seq) / result.seconds;
  const model::Flops flops = model::flops_per_token(c.shape);
  double peak = 0;  // of all ranks; of some alone it would say nothing
  for (int r = 0; r < c.ranks; ++r) {
    const double own = machine.device_of(r).speeds.at(c.shape.dtype).peak;
    if (!(own > 0)) return result;
    peak += own;
  }
  result.mfu = (flops.matmul + flops.attention_causal) * result.tokens_per_s / peak;
  return result;
}
}  // namespace minitaw::predict
