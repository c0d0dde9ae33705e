// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/builder.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <ranges>
#include <utility>
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
    : groups_(groups_of_replica(request.groups, request.replicas)),
      drafts_(groups_.ranks()) {
  program_.groups = request.groups;
  program_.shards = shards;
  program_.micro_batches = request.micro_batches;
  program_.replicas = request.replicas;
  program_.clips = request.clips;
  program_.ranks.resize(groups_.ranks());
  for (RankProgram& rank : program_.ranks) {
    rank.slots[index_of(SlotClass::embeddings)] = 1;
    rank.slots[index_of(SlotClass::embeddings_accumulator)] = 1;
  }
}

void Builder::own(int rank, int shard) {
  RankProgram& r = program_.ranks[rank];
  drafts_[rank].owned_slot.resize(shards(), -1);
  drafts_[rank].owned_slot[shard] = static_cast<int>(r.owned_shards.size());
  r.owned_shards.push_back(shard);
  ++r.slots[index_of(SlotClass::owned)];
  ++r.slots[index_of(SlotClass::accumulator)];
}

void Builder::slice_owned(int count) {
  program_.owned_slices = count;
  cut_shards(count);
}

void Builder::cut_shards(int count) {
  program_.shard_parts = std::lcm(program_.shard_parts, count);
}

void Builder::keep_part(int rank, SlotClass cls, Part part) {
  (cls == SlotClass::kept ? program_.ranks[rank].kept : program_.ranks[rank].partial) = part;
  cut_shards(part.count);
}

void Builder::place_embeddings(int embedding_rank, int head_rank) {
  const bool split = embedding_rank != head_rank;
  program_.embeddings_split = split;
  for (int r = 0; r < ranks(); ++r) {
    RankProgram& rank = program_.ranks[r];
    const bool holds = r == embedding_rank || r == head_rank;
    rank.embeddings_slice = split && holds ? (r == head_rank ? 1 : 0) : -1;
    rank.slots[index_of(SlotClass::embeddings)] = holds ? 1 : 0;
    rank.slots[index_of(SlotClass::embeddings_accumulator)] = holds ? 1 : 0;
  }
  program_.embeddings_slices = split ? 2 : 1;
}

VirtualBuffer Builder::owned(int rank, int shard) const {
  const std::vector<int>& slots = drafts_[rank].owned_slot;
  return slots.empty() ? VirtualBuffer{} : VirtualBuffer{slots[shard], SlotClass::owned};
}

VirtualBuffer Builder::accumulator(int r, int shard) const {
  return {owned(r, shard).id, SlotClass::accumulator};
}

VirtualBuffer Builder::new_buffer(int rank, SlotClass cls) {
  return {drafts_[rank].next_buffer++, cls};
}

int Builder::communicator(const std::string& name, const std::vector<int>& ranks) {
  const auto [at, added] = communicators_.emplace(name, static_cast<int>(communicators_.size()));
  if (added)
    program_.communicators.push_back({name, ranks});
  return at->second;
}

std::vector<int> Builder::everyone() const {
  return list_of(std::views::iota(0, ranks()));
}

int Builder::world() {
  return communicator("world", everyone());
}

int Builder::group(int group) {
  return communicator(fmt::format("group{}", group), groups().members(group));
}

void Builder::add(int rank, Phase phase, const Action& action, std::initializer_list<Use> uses) {
  Emitted emitted{action, phase, {}};
  for (const auto& [operand, buffer] : uses)
    emitted.buffers[place_of(action.kind, operand)] = buffer;
  drafts_[rank].emitted.push_back(emitted);
}

void Builder::transfer(
    int tick, Phase phase, const MessageContent& content, Endpoint from, Endpoint to) {
  exchange(tick, phase, {{content, from, to}});
}

void Builder::exchange(int tick, Phase phase, const std::vector<Message>& messages) {
  for (const auto& [content, from, to] : messages) {
    const auto add_side = [&](Kind kind, const Endpoint& here, const Endpoint& there) {
      Action action = make_action(kind, tick, content.payload, content.shard, content.part);
      action.micro_batch = content.micro_batch;
      action.lane = lane_of(kind, content.payload, true);
      action.peer = there.rank;
      add(here.rank, phase, action, {{buffer, here.buffer}});
    };
    add_side(Kind::send, from, to);
    add_side(Kind::recv, to, from);
  }
}

void Builder::collective(Phase phase, int communicator, Action action, const RankBuffers& buffers) {
  const std::vector<int>& members = program_.communicators[communicator].ranks;
  const bool inside =
      std::ranges::all_of(members, [&](int r) { return groups().together(r, members[0]); });
  action.communicator = communicator;
  action.lane = lane_of(action.kind, action.payload, inside);
  for (std::size_t i = 0; i < members.size(); ++i)
    add(members[i], phase, action, {{buffer, buffers[i]}});
}

void Builder::sum_over_replicas(int rank, Phase phase, Action action, VirtualBuffer moved) {
  const bool inside = program_.groups.together(rank, program_.groups.ranks() - ranks() + rank);
  action.lane = lane_of(action.kind, action.payload, inside);
  action.communicator = among_replicas;
  add(rank, phase, action, {{buffer, moved}});
}

/// Each shard's gradient as soon as the last contribution of its own replica is in it.
void Builder::sum_shards_over_replicas(int rank, int tick) {
  std::vector<int> last(program_.ranks[rank].owned_shards.size(), -1);  // use, by owned slot
  for (const Emitted& e : drafts_[rank].emitted)
    for (const VirtualBuffer v : e.buffers)
      if (v.valid() && v.cls == SlotClass::accumulator)
        last[v.id] = std::max(last[v.id], e.action.tick);
  std::vector<std::pair<int, int>> by_time;  // tick, shard
  for (int s = 0; s < shards(); ++s)
    if (const VirtualBuffer sum = accumulator(rank, s); sum.valid())
      by_time.emplace_back(std::min(last[sum.id], tick), s);
  std::ranges::stable_sort(by_time);
  for (const auto& [when, s] : by_time)
    sum_over_replicas(rank,
        Phase::push_last,
        make_action(Kind::all_reduce, when, Payload::gradient, s, part(rank, SlotClass::owned)),
        accumulator(rank, s));
}

void Builder::square_gradients(int tick, bool together, const std::function<Part(int)>& part_of) {
  for (const int r : everyone()) {
    squares_.push_back(new_buffer(r, SlotClass::squares));
    const auto square = [&](Payload payload, int shard, VirtualBuffer of) {
      add(r,
          Phase::epilogue,
          make_action(Kind::square, tick, payload, shard),
          {{gradient, of}, {Operand::squares, squares_[r]}});
    };
    for (int s = 0; s < shards(); ++s)
      if (owned(r, s).valid())
        square(Payload::gradient, s, accumulator(r, s));
    if (program_.ranks[r].slots[index_of(SlotClass::embeddings)] > 0)
      square(Payload::embeddings_gradient, part_of(r).index, embeddings_accumulator());
  }
  if (together)
    collective(
        Phase::epilogue, world(), make_action(Kind::all_reduce, tick, Payload::squares), squares_);
}

void Builder::add_epilogue(int tick, EmbeddingsUpdate update) {
  const auto holds = [&](int r) {
    return program_.ranks[r].slots[index_of(SlotClass::embeddings)] > 0;
  };
  const bool split = program_.embeddings_split;
  const bool together = ranks() > 1 && !split && holds(0) && holds(ranks() - 1);
  const bool sliced = together && update == EmbeddingsUpdate::sliced;
  if (!split)
    program_.embeddings_slices = sliced ? ranks() : 1;
  const auto combine = [&](Kind kind, Payload payload, VirtualBuffer moved) {
    collective(
        Phase::epilogue, world(), make_action(kind, tick, payload), std::vector(ranks(), moved));
  };
  if (together)
    combine(sliced ? Kind::reduce_scatter : Kind::all_reduce,
        Payload::embeddings_gradient,
        embeddings_accumulator());
  // What a rank updates of the embeddings, or all that it holds.
  const auto part_of = [&](int r) {
    return split ? Part{program_.ranks[r].embeddings_slice, 2} : sliced ? Part{r, ranks()} : Part{};
  };
  for (const int r : everyone()) {
    if (program_.replicas > 1)
      sum_shards_over_replicas(r, tick);
    if (program_.replicas > 1 && holds(r))
      sum_over_replicas(r,
          Phase::epilogue,
          make_action(Kind::all_reduce, tick, Payload::embeddings_gradient, -1, part_of(r)),
          embeddings_accumulator());
  }
  // Where everybody has the whole gradient, everybody has its squares.
  if (program_.clips)
    square_gradients(tick, ranks() > 1 && (sliced || !together), part_of);
  for (const int r : everyone()) {
    const VirtualBuffer all_squares = program_.clips ? squares_[r] : VirtualBuffer{};
    for (int s = 0; s < shards(); ++s)
      if (owned(r, s).valid())
        add(r,
            Phase::epilogue,
            make_action(Kind::update, tick, Payload::weights, s),
            {{weights, owned(r, s)},
                {gradient, accumulator(r, s)},
                {Operand::squares, all_squares}});
    if (holds(r))
      add(r,
          Phase::epilogue,
          make_action(Kind::update, tick, Payload::embeddings, part_of(r).index),
          {{weights, embeddings()},
              {gradient, embeddings_accumulator()},
              {Operand::squares, all_squares}});
  }
  if (sliced)
    combine(Kind::all_gather, Payload::embeddings, embeddings());
  for (const int r : everyone())
    add(r, Phase::epilogue, make_action(Kind::join, tick, Payload::none), {});
}

void Builder::finish_rank(int r, Overlap overlap) {
  auto emitted = std::exchange(drafts_[r].emitted, {});
  std::ranges::stable_sort(
      emitted, {}, [](const Emitted& e) { return std::pair(e.action.tick, e.phase); });
  RankProgram& rank = program_.ranks[r];
  rank.actions = list_of(emitted, &Emitted::action);
  assign_slots(rank, list_of(emitted, &Emitted::buffers), drafts_[r].next_buffer);
  write_first_contributions(rank, program_.shard_parts);
  assign_waits(rank, r, overlap);
}

Program Builder::finish(int tick, EmbeddingsUpdate update, Overlap overlap) && {
  add_epilogue(tick, update);
  for (int r = 0; r < ranks(); ++r)
    finish_rank(r, overlap);
  if (program_.replicas > 1)
    make_replicas(program_);
  return std::move(program_);
}

void ComputeEmitter::visit(
    const Visit& v, VirtualBuffer of_weights, VirtualBuffer of_gradient, bool accumulate) {
  const auto add = [&](Kind what, int of_shard, std::initializer_list<Builder::Use> uses) {
    Action a = make_action(what, v.tick, Payload::none, of_shard);
    a.micro_batch = v.micro_batch;
    a.accumulates = accumulate && what == v.kind;
    builder_.add(rank_, Phase::compute, a, uses);
  };
  constexpr VirtualBuffer head = Builder::embeddings(),
                          head_gradient = Builder::embeddings_accumulator();
  VirtualBuffer& state = hidden_states_[v.micro_batch];
  Kept& kept = kept_[{v.micro_batch, v.shard}];
  if (v.kind == Kind::forward) {
    if (v.shard == 0) {
      state = builder_.new_buffer(rank_, SlotClass::hidden);
      add(Kind::embed, -1, {{hidden, state}, {weights, head}});
    }
    kept.saved = builder_.new_buffer(rank_, SlotClass::saved);
    add(v.kind, v.shard, {{weights, of_weights}, {saved, kept.saved}, {hidden, state}});
    if (v.shard == builder_.shards() - 1)
      add(Kind::loss, -1, {{hidden, state}, {weights, head}, {gradient, head_gradient}});
    return;
  }
  if (v.kind == Kind::backward_weight) {
    add(v.kind, v.shard, {{saved, kept.saved}, {deferred, kept.deferred}, {gradient, of_gradient}});
  } else {
    Builder::Use result{gradient, of_gradient};
    if (v.kind != Kind::backward) {
      kept.deferred = builder_.new_buffer(rank_, SlotClass::deferred);
      result = {deferred, kept.deferred};
    }
    add(v.kind, v.shard, {{weights, of_weights}, {saved, kept.saved}, {hidden, state}, result});
    if (v.shard == 0)
      add(Kind::embed_backward, -1, {{hidden, state}, {gradient, head_gradient}});
  }
  if (v.kind != Kind::backward_input)
    kept_.erase({v.micro_batch, v.shard});
}

LockstepRanks::LockstepRanks(
    Builder& builder, const std::vector<int>& ranks, int micro_batches_per_rank, int first_tick)
    : per_rank_(micro_batches_per_rank) {
  for (const int rank : ranks)
    emitters_.emplace_back(builder, rank);
  for (int m = ranks[0] * per_rank_; m < (ranks[0] + 1) * per_rank_; ++m) {
    for (int s = 0; s < builder.shards(); ++s)
      visits_.push_back({first_tick++, s, m, Kind::forward});
    for (int s = builder.shards() - 1; s >= 0; --s)
      visits_.push_back({first_tick++, s, m, Kind::backward});
  }
}

void LockstepRanks::compute(
    std::size_t i, const RankBuffers& weights, const RankBuffers& gradients) {
  Visit visit = visits_[i];
  for (std::size_t r = 0; r < emitters_.size(); ++r, visit.micro_batch += per_rank_)
    emitters_[r].visit(visit, weights[r], visit.backward() ? gradients[r] : VirtualBuffer{});
}
}  // namespace minitaw::schedule
