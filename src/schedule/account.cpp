// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/account.hpp"
#include <algorithm>
#include <numeric>
#include <set>
#include "base/error.hpp"
#include "model/plan.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::schedule {
namespace {
/// Elements of a shard, the embeddings, a hidden state, or all keys and values of a block, or of
/// the blocks of a shard.
std::int64_t elements_of(Data data, int shard, int micro_batch, const Layout& layout) {
  const model::Shape& shape = layout.shape_of(micro_batch);
  switch (data) {
  case Data::shard: return layout.shards[shard].elements;
  case Data::embeddings: return layout.embeddings.elements;
  case Data::micro_batch: return shape.tokens() * shape.hidden;
  case Data::keys: return shape.span_seq() * shape.micro_batch * shape.key_values();
  case Data::prefix: return layout.shards[shard].layers * model::prefix_elements(shape);
  default: return 1;
  }
}
}  // namespace

Range moved(const Action& a, const Layout& layout) {
  if (a.payload == Payload::none)
    throw LogicError("a transfer of nothing");
  return range_of(
      elements_of(row_of(a.payload).data, a.shard, a.micro_batch, layout), {a.part, a.parts});
}

model::Dtype dtype_of(SlotClass cls, const model::Shape& shape) {
  switch (row_of(cls).precision) {
  case Precision::transit: return shape.grad_dtype();
  case Precision::shared: return shape.key_gradient_dtype();
  case Precision::sum: return model::Dtype::fp32;
  default: return shape.dtype;
  }
}

Range held(const Program& program,
    int rank,
    SlotClass cls,
    int shard,
    const Layout& layout,
    int micro_batch) {
  return range_of(
      elements_of(row_of(cls).data, shard, micro_batch, layout), part_of(program, rank, cls));
}

std::uint64_t ByteMatrix::at(int from, int to, Traffic kind) const {
  const auto found = cells_.find({from, to});
  return found == cells_.end() ? 0 : found->second[index_of(kind)];
}

std::uint64_t ByteMatrix::sum(const Groups& groups, Traffic kind, bool inside) const {
  std::uint64_t sum = 0;
  for (const auto& [pair, cell] : cells_)
    if (groups.together(pair.first, pair.second) == inside)
      sum += cell[index_of(kind)];
  return sum;
}

std::vector<ByteMatrix::OfGroup> ByteMatrix::by_group(const Groups& groups) const {
  std::vector<OfGroup> all(groups.count());
  for (const auto& [pair, cell] : cells_) {
    if (groups.together(pair.first, pair.second))
      continue;
    const std::uint64_t sum = std::accumulate(cell.begin(), cell.end(), std::uint64_t{0});
    all[groups.group_of(pair.first)].out += sum;
    all[groups.group_of(pair.second)].in += sum;
  }
  return all;
}

Ticks ticks(const Program& program) {
  Ticks result;
  std::set<int> all;
  for (const RankProgram& rank : program.ranks) {
    std::set<int> busy;
    for (const Action& a : rank.actions) {
      if (is_visit(a.kind))
        busy.insert(a.tick);
      if (is_visit(a.kind) || is_communication(a.kind))
        all.insert(a.tick);
    }
    result.busy.push_back(std::ssize(busy));
  }
  result.total = all.empty() ? 0 : *all.rbegin() - *all.begin() + 1;
  return result;
}

namespace {
constexpr std::size_t arena_alignment = 256;

std::size_t rounded(std::size_t bytes) {
  return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

/// Returns the bytes that an action has in a slot of this class.
std::size_t content_bytes(
    const Program& program, int rank, SlotClass cls, const Action& a, const Layout& layout) {
  const int slice = slice_of(program, a.micro_batch);
  const model::Shape& shape = layout.shape_of(slice);
  switch (cls) {
  case SlotClass::saved: return layout.shards[a.shard].layers * model::plan_saved(shape).bytes;
  case SlotClass::deferred:
    return layout.shards[a.shard].layers * model::plan_deferred(shape).bytes;
  case SlotClass::squares: return model::squares_bytes;
  default:
    return held(program, rank, cls, a.shard, layout, slice).count *
           bytes_of(dtype_of(cls, layout.shape));
  }
}

/// The slots of a rank, each as large as the largest content that an action has in it.
std::vector<SlotSize> slots_of(const Program& program, int number, const Layout& layout) {
  const RankProgram& rank = program.ranks[number];
  std::vector<SlotSize> slots;
  std::array<std::size_t, slot_classes> first{};  // of each class
  for (const SlotClassRow& row : table_of<SlotClass>) {
    first[index_of(row.value)] = slots.size();
    for (int i = 0; i < rank.slots[index_of(row.value)]; ++i)
      slots.push_back({{row.value, static_cast<std::int16_t>(i)}, 0});
  }
  for (const Action& a : rank.actions)
    for (const Access& access : accesses(a, number)) {
      const auto [cls, index] = access.slot;
      std::size_t& bytes = slots[first[index_of(cls)] + index].bytes;
      bytes = std::max(bytes, rounded(content_bytes(program, number, cls, a, layout)));
    }
  return slots;
}

Footprint footprint_of(const Program& program, int number, const Layout& layout) {
  const RankProgram& rank = program.ranks[number];
  Footprint result;
  result.slots = slots_of(program, number, layout);
  const auto add_optimiser = [&](std::int64_t elements) {
    result.optimiser.push_back(rounded(model::optimiser_bytes(layout.shape.dtype, elements)));
  };
  for (const int shard : rank.owned_shards)
    add_optimiser(held(program, number, SlotClass::owned, shard, layout).count);
  std::set<Lane> staged;
  for (const Action& a : rank.actions) {
    if (is_reducing(a.kind))
      staged.insert(a.lane);
    if (a.kind == Kind::update && a.payload == Payload::embeddings)
      add_optimiser(layout.embeddings.part);
  }
  result.workspace = rounded(model::plan_workspace(layout, duties_of(rank)).bytes);
  result.staging = 2 * piece_bytes * staged.size();
  for (const int m : token_batches_of(rank))
    result.tokens += model::token_bytes(layout.shape_of(m));

  const auto of = [&](Memory kind) -> std::size_t& { return result.by_kind[index_of(kind)]; };
  for (const auto& [slot, bytes] : result.slots)
    of(memory_of(slot.cls)) += bytes;
  for (const std::size_t bytes : result.optimiser)
    of(Memory::optimiser) += bytes;
  of(Memory::buffers) += result.scalars + result.workspace + result.staging;
  of(Memory::tokens) = result.tokens;
  return result;
}
}  // namespace

RingSend ring_send(Kind kind, std::int64_t elements, int members, int member, int root) {
  const int next = (member + 1) % members;
  const int from_root = (member - root + members) % members;
  const auto without = [&](int other) {
    return elements - share_of(elements, members, other).count;
  };
  switch (kind) {
  case Kind::broadcast: return {next, from_root + 1 < members ? elements : 0};
  case Kind::reduce: return {(member - 1 + members) % members, from_root > 0 ? elements : 0};
  case Kind::all_gather: return {next, without(next)};
  case Kind::reduce_scatter: return {next, without(member)};
  case Kind::all_reduce: return {next, without(member) + without(next)};
  default: throw LogicError("{} is no collective", name_of(kind));
  }
}

ByteMatrix bytes_of_rank(const Program& program, const Layout& layout, int job_rank) {
  ByteMatrix matrix;
  const int rank = program.rank_of(job_rank), replica = program.replica_of(job_rank);
  for (const Action& a : program.ranks[rank].actions) {
    if (a.kind != Kind::send && !is_collective(a.kind))
      continue;
    int to = program.job_rank(replica, a.peer);
    std::int64_t elements = moved(a, layout).count;
    if (is_collective(a.kind)) {
      const Communicator& ring = program.communicators[a.communicator];
      const bool joint = ring.among_replicas();
      const RingSend sent = ring_send(a.kind,
          elements,
          joint ? program.replicas : std::ssize(ring.ranks),
          joint ? replica : ring.index_of(rank),
          is_rooted(a.kind) ? ring.index_of(a.peer) : 0);
      to = joint ? program.job_rank(sent.to, rank) : program.job_rank(replica, ring.ranks[sent.to]);
      elements = sent.elements;
    }
    const std::size_t each = bytes_of(dtype_of(a[Operand::buffer].cls, layout.shape));
    matrix.add(job_rank, to, traffic_of(a.payload), elements * each);
  }
  return matrix;
}

ByteMatrix bytes(const Program& program, const Layout& layout) {
  ByteMatrix matrix;
  for (int rank = 0; rank < program.job_ranks(); ++rank)
    matrix.add(bytes_of_rank(program, layout, rank));
  return matrix;
}

model::Duties duties_of(const RankProgram& rank) {
  model::Duties duties;
  for (const Action& a : rank.actions) {
    duties.blocks |= is_visit(a.kind);
    duties.embedding |= a.kind == Kind::embed;
    duties.embedding_gradient |= a.kind == Kind::embed_backward;
    duties.loss |= a.kind == Kind::loss;
    duties.undivided_backward |= a.kind == Kind::backward;
  }
  return duties;
}

int kept_steps(const Program& program, int steps, std::size_t most) {
  const bool all = std::ranges::all_of(
      program.ranks, [=](const RankProgram& rank) { return rank.actions.size() * steps <= most; });
  return all ? steps : 1;
}

std::uint64_t program_bytes(const Program& program) {
  std::uint64_t actions = 0;
  for (const RankProgram& each : program.ranks)
    actions += each.actions.size();
  return actions * sizeof(Action);
}

std::uint64_t span_bytes(const Program& program, int rank, int steps) {
  return program.ranks[rank].actions.size() * kept_steps(program, steps) * sizeof(Span);
}

std::size_t Footprint::total() const {
  return std::accumulate(by_kind.begin(), by_kind.end(), std::size_t{0});
}

std::vector<Footprint> memory(const Program& program, const Layout& layout) {
  std::vector<Footprint> result;
  for (const int r : indices(program.ranks))
    result.push_back(footprint_of(program, r, layout));
  return result;
}
}  // namespace minitaw::schedule
