// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/builder.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <ranges>
#include <utility>
#include "base/error.hpp"
#include "schedule/passes.hpp"

namespace minitaw::schedule {
using enum Operand;

Action make_action(Kind kind, int tick, Payload payload, int shard, Part part) {
  return {.kind = kind,
      .payload = payload,
      .tick = tick,
      .shard = shard,
      .part = static_cast<std::int16_t>(part.index),
      .parts = static_cast<std::int16_t>(part.count)};
}

Builder::Builder(const Request& request, int shards)
    : layers_(request.layers),
      costs_(request.costs),
      replicas_in_group_(request.groups.count() == 1) {
  program_.groups = request.groups_of_replica();
  drafts_.resize(ranks());
  squares_.resize(ranks());
  program_.shards = shards;
  if (const std::string slices = request.spec.value("slices"); !slices.empty())
    program_.slices = std::stoi(slices);
  program_.even_slices = program_.slices > 1 && request.spec.value("cut") == "even";
  program_.micro_batches = request.micro_batches / request.replicas * program_.slices;
  program_.replicas = request.replicas;
  program_.clips = request.clips;
  program_.context = request.context;
  program_.key_parts = request.key_parts;
  program_.tied = request.tied;
  program_.ranks.resize(ranks());
  for (RankProgram& rank : program_.ranks) {
    rank.slots[index_of(SlotClass::embeddings)] = 1;
    rank.slots[index_of(SlotClass::embeddings_accumulator)] = 1;
  }
}

void Builder::own(int rank, int shard) {
  RankProgram& r = program_.ranks[rank];
  r.owned_shards.push_back(shard);
  ++r.slots[index_of(SlotClass::owned)];
  ++r.slots[index_of(SlotClass::accumulator)];
}

void Builder::own_part(int rank, Part part) {
  program_.ranks[rank].part = part.index;
  program_.owned_parts = part.count;
  cut_shards(part.count);
}

void Builder::keep_part(int rank, SlotClass cls, Part part) {
  (cls == SlotClass::kept ? program_.ranks[rank].kept : program_.ranks[rank].partial) = part;
  cut_shards(part.count);
}

void Builder::cut_shards(int count) {
  program_.shard_parts = std::lcm(program_.shard_parts, count);
}

void Builder::split_embeddings(const Ranks& embedding, const Ranks& head) {
  const bool apart = embedding != head, split = apart && !program_.tied;
  program_.embeddings_split = split;
  program_.embeddings_parts = split ? 2 : 1;
  for (std::size_t i = 0; apart && !split && i < head.size(); ++i)
    copies_.push_back({embedding[i], head[i]});
  for (const int r : everyone()) {
    RankProgram& rank = program_.ranks[r];
    const bool has_head = std::ranges::find(head, r) != head.end();
    const bool has = has_head || std::ranges::find(embedding, r) != embedding.end();
    for (const SlotClass cls : {SlotClass::embeddings, SlotClass::embeddings_accumulator})
      rank.slots[index_of(cls)] = has ? 1 : 0;
    if (apart && has)
      rank.embeddings_part = split && has_head ? 1 : 0;
  }
}

VirtualBuffer Builder::owned(int rank, int shard) const {
  const std::vector<int>& owned = program_.ranks[rank].owned_shards;
  const auto at = std::ranges::find(owned, shard);
  const int index = at == owned.end() ? -1 : at - owned.begin();
  return {index, SlotClass::owned};
}

VirtualBuffer Builder::accumulator(int rank, int shard) const {
  return {owned(rank, shard).id, SlotClass::accumulator};
}

RankBuffers Builder::owned(const Ranks& ranks, int shard) const {
  return list_of(ranks, [&](int rank) { return owned(rank, shard); });
}

RankBuffers Builder::accumulators(const Ranks& ranks, int shard) const {
  return list_of(ranks, [&](int rank) { return accumulator(rank, shard); });
}

VirtualBuffer Builder::new_buffer(int rank, SlotClass cls) {
  return {drafts_[rank].next_buffer++, cls};
}

RankBuffers Builder::new_buffers(const Ranks& ranks, SlotClass cls) {
  return list_of(ranks, [&](int rank) { return new_buffer(rank, cls); });
}

int Builder::communicator(const std::string& name, const Ranks& ranks) {
  std::vector<Communicator>& all = program_.communicators;
  const auto [at, added] = communicators_.emplace(name, all.size());
  if (added)
    all.push_back({name, ranks});
  if (all[at->second].ranks != ranks)
    throw LogicError("two communicators of the name {}", name);
  return at->second;
}

Ranks Builder::everyone() const {
  return list_of(std::views::iota(0, ranks()));
}

std::vector<Ranks> Builder::context_groups() const {
  std::vector<Ranks> all;
  for (int first = 0; first < ranks(); first += context())
    all.push_back(list_of(std::views::iota(first, first + context())));
  return all;
}

int Builder::blocks(int shard) {
  if (program_.blocks.empty())
    program_.blocks = model::shard_lengths(layers_, costs_, cut_of(program_));
  return program_.blocks[shard];
}

int Builder::world() {
  return communicator("world", everyone());
}

void Builder::add(
    int rank, Phase phase, const Action& action, const std::vector<Argument>& arguments) {
  Emitted emitted{action, phase, {}};
  for (const auto& [operand, buffer] : arguments)
    emitted.buffers[index_of(action, operand)] = buffer;
  drafts_[rank].emitted.push_back(emitted);
}

void Builder::local(int rank,
    Phase phase,
    Action action,
    bool inside,
    VirtualBuffer source,
    VirtualBuffer destination) {
  if (action.parts == 1) {
    const Part from = part_of(program_, rank, source.cls);
    const Part to = part_of(program_, rank, destination.cls);
    const Part finer = from.count > to.count ? from : to;
    action.part = finer.index;
    action.parts = finer.count;
  }
  action.lane = lane_of(action.kind, action.payload, inside);
  add(rank, phase, action, {{Operand::source, source}, {Operand::destination, destination}});
}

void Builder::transfer(Phase phase, Action message, Endpoint from, Endpoint to) {
  const auto add_side = [&](Kind kind, const Endpoint& here, const Endpoint& there) {
    message.kind = kind;
    message.lane = lane_of(kind, message.payload, true);
    message.peer = there.rank;
    add(here.rank, phase, message, {{buffer, here.buffer}});
  };
  add_side(Kind::send, from, to);
  add_side(Kind::recv, to, from);
}

void Builder::collective(Phase phase, int communicator, Action action, const RankBuffers& buffers) {
  const Ranks& members = program_.communicators[communicator].ranks;
  const bool inside =
      std::ranges::all_of(members, [&](int r) { return groups().together(r, members[0]); });
  action.communicator = communicator;
  action.lane = lane_of(action.kind, action.payload, inside);
  for (const int i : indices(members))
    add(members[i], phase, action, {{buffer, buffers[i]}});
}

void Builder::collective_of_sequence(
    const Ranks& ranks, Action action, const RankBuffers& buffers) {
  const std::string name = fmt::format("context{}", ranks[0] / context());
  const int heads = communicator(name, ranks);
  const int tails = communicator(name + ".tails", {ranks.rbegin(), ranks.rend()});
  const RankBuffers reversed(buffers.rbegin(), buffers.rend());
  action.parts = 2 * key_parts();
  for (action.part = 0; action.part < action.parts; ++action.part) {
    const bool of_tails = action.part % 2 == 1;
    collective(Phase::compute, of_tails ? tails : heads, action, of_tails ? reversed : buffers);
  }
}

void Builder::sum_over_context(const Ranks& ranks, int tick) {
  if (context() == 1)
    return;
  summed_over_context_ = true;
  const int group = communicator(fmt::format("context{}", ranks[0] / context()), ranks);
  for (const Updated& u : updated_by(ranks[0]))
    if (!of_embeddings(u.gradient) || !embeddings_shared())
      collective(
          Phase::push_last, group, sum_of(u, tick), std::vector(ranks.size(), u.gradient_buffer));
}

void Builder::epilogue_of_all(Kind kind, int tick, Payload payload, VirtualBuffer moved) {
  collective(
      Phase::epilogue, world(), make_action(kind, tick, payload), std::vector(ranks(), moved));
}

Part Builder::embeddings_part(int rank) const {
  if (program_.embeddings_parts == 1)
    return {};
  const int part = program_.ranks[rank].embeddings_part;
  return {part < 0 ? rank : part, program_.embeddings_parts};
}

std::vector<Builder::Updated> Builder::updated_by(int rank) const {
  std::vector<Updated> all;
  for (const int shard : program_.ranks[rank].owned_shards)
    all.push_back({Payload::weights,
        Payload::gradient,
        shard,
        part_of(program_, rank, SlotClass::owned),
        owned(rank, shard),
        accumulator(rank, shard)});
  if (program_.ranks[rank].has_embeddings())
    all.push_back({Payload::embeddings,
        Payload::embeddings_gradient,
        embeddings_part(rank).index,
        embeddings_part(rank),
        all_embeddings,
        all_embeddings_gradient});
  return all;
}

Action Builder::sum_of(const Updated& updated, int tick) {
  const int shard = of_embeddings(updated.gradient) ? -1 : updated.number;
  return make_action(Kind::all_reduce, tick, updated.gradient, shard, updated.part);
}

/// Each shard's gradient as soon as the last contribution of its own replica is in it.
void Builder::sum_over_replicas(int rank, int tick) {
  std::map<int, int> last;  // by accumulator: tick of its last use
  for (const Emitted& e : drafts_[rank].emitted)
    for (const VirtualBuffer v : e.buffers)
      if (v.valid() && v.cls == SlotClass::accumulator)
        last[v.id] = std::max(last[v.id], e.action.tick);
  for (const Updated& u : updated_by(rank)) {
    const bool at_end = of_embeddings(u.gradient);
    Action sum = sum_of(u, at_end ? tick : std::min(last[u.gradient_buffer.id], tick));
    sum.communicator = communicator("replicas", {});
    sum.lane = lane_of(sum.kind, sum.payload, replicas_in_group_);
    add(rank, at_end ? Phase::epilogue : Phase::push_last, sum, {{buffer, u.gradient_buffer}});
  }
}

void Builder::sum_copies(int tick) {
  const Action sum = make_action(Kind::all_reduce, tick, Payload::embeddings_gradient);
  for (const int i : indices(copies_))
    collective(Phase::epilogue,
        communicator(fmt::format("ends{}", i), copies_[i]),
        sum,
        {all_embeddings_gradient, all_embeddings_gradient});
}

bool Builder::is_second_copy(int rank) const {
  return std::ranges::any_of(copies_, [=](const Ranks& pair) { return pair.back() == rank; });
}

/// Squares of all parts of the model are summed over ranks that together own each once: with the
/// same place in their context groups where the ranks of one own the same.
void Builder::square_gradients(int tick, bool together) {
  for (const int r : everyone()) {
    squares_[r] = new_buffer(r, SlotClass::squares);
    for (const Updated& u : updated_by(r))
      if (!of_embeddings(u.gradient) || !is_second_copy(r))
        add(r,
            Phase::epilogue,
            make_action(Kind::square, tick, u.gradient, u.number),
            {{gradient, u.gradient_buffer}, {squares, squares_[r]}});
  }
  const Action sum = make_action(Kind::all_reduce, tick, Payload::squares);
  if (together && !summed_over_context_)
    collective(Phase::epilogue, world(), sum, squares_);
  for (int i = 0; together && summed_over_context_ && i < context(); ++i) {
    const Ranks ranks = list_of(context_groups(), [=](const Ranks& group) { return group[i]; });
    if (ranks.size() > 1)
      collective(Phase::epilogue,
          communicator(fmt::format("place{}", i), ranks),
          sum,
          list_of(ranks, [&](int r) { return squares_[r]; }));
  }
}

bool Builder::embeddings_shared() const {
  return ranks() > 1 && std::ranges::all_of(program_.ranks, [](const RankProgram& rank) {
    return rank.has_embeddings() && rank.embeddings_part < 0;
  });
}

/// Each rank updates a part of the embeddings that all have, but all of them where it does so with
/// all shards.
void Builder::add_epilogue(int tick) {
  const bool shared = embeddings_shared();
  const bool owns_all =
      program_.owned_parts == 1 && std::ssize(program_.ranks[0].owned_shards) == program_.shards;
  const bool divided = shared && !owns_all;
  if (divided)
    program_.embeddings_parts = ranks();
  if (shared)
    epilogue_of_all(divided ? Kind::reduce_scatter : Kind::all_reduce,
        tick,
        Payload::embeddings_gradient,
        all_embeddings_gradient);
  if (program_.replicas > 1)
    for (const int r : everyone())
      sum_over_replicas(r, tick);
  // Last, so that both copies stay the same to the bit.
  sum_copies(tick);
  // Where every rank has the whole gradient, every rank has its squares.
  if (program_.clips)
    square_gradients(tick, ranks() > 1 && (divided || !shared));
  for (const int r : everyone())
    for (const Updated& u : updated_by(r))
      add(r,
          Phase::epilogue,
          make_action(Kind::update, tick, u.weights, u.number),
          {{weights, u.weights_buffer}, {gradient, u.gradient_buffer}, {squares, squares_[r]}});
  if (divided)
    epilogue_of_all(Kind::all_gather, tick, Payload::embeddings, all_embeddings);
  for (const int r : everyone())
    add(r, Phase::epilogue, make_action(Kind::join, tick, Payload::none), {});
}

Program Builder::finish(int tick, Overlap overlap) && {
  add_epilogue(tick);
  for (int r = 0; r < ranks(); ++r) {
    auto& [emitted, buffers] = drafts_[r];
    std::ranges::stable_sort(
        emitted, {}, [](const Emitted& e) { return std::pair(e.action.tick, e.phase); });
    RankProgram& rank = program_.ranks[r];
    rank.actions = list_of(emitted, &Emitted::action);
    assign_slots(rank, list_of(emitted, &Emitted::buffers), buffers);
    write_first_contributions(rank, program_);
    assign_waits(rank, r, overlap);
    emitted = {};
  }
  return std::move(program_);
}
}  // namespace minitaw::schedule
