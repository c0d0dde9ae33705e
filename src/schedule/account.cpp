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

namespace {
/// Bytes of the cells whose groups, of sender and receiver, are chosen.
template <class Chosen, class Bytes>
std::uint64_t sum_of(const ByteMatrix& matrix,
    const Groups& groups,
    const Chosen& is_chosen,
    const Bytes& bytes_of_cell) {
  std::uint64_t sum = 0;
  for (const auto& [pair, cell] : matrix.cells())
    if (is_chosen(groups.group_of(pair.first), groups.group_of(pair.second)))
      sum += bytes_of_cell(cell);
  return sum;
}

std::uint64_t all_kinds(const ByteMatrix::Cell& cell) {
  return std::accumulate(cell.begin(), cell.end(), std::uint64_t{0});
}

auto of_kind(Traffic kind) {
  return [=](const ByteMatrix::Cell& cell) { return cell[index_of(kind)]; };
}
}  // namespace

std::uint64_t ByteMatrix::at(int from, int to, Traffic kind) const {
  const auto found = cells_.find({from, to});
  return found == cells_.end() ? 0 : found->second[index_of(kind)];
}

std::uint64_t ByteMatrix::inside(const Groups& groups, Traffic kind) const {
  return sum_of(*this, groups, std::equal_to(), of_kind(kind));
}

std::uint64_t ByteMatrix::between(const Groups& groups, Traffic kind) const {
  return sum_of(*this, groups, std::not_equal_to(), of_kind(kind));
}

std::uint64_t ByteMatrix::leaving(const Groups& groups, int group) const {
  const auto leaves = [=](int from, int to) { return from == group && to != group; };
  return sum_of(*this, groups, leaves, all_kinds);
}

std::uint64_t ByteMatrix::entering(const Groups& groups, int group) const {
  const auto enters = [=](int from, int to) { return from != group && to == group; };
  return sum_of(*this, groups, enters, all_kinds);
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

std::size_t optimiser_bytes(std::int64_t elements, const Layout& layout) {
  return rounded(model::optimiser_bytes(layout.shape.dtype, elements));
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
  for (const int shard : rank.owned_shards)
    result.optimiser.push_back(
        optimiser_bytes(held(program, number, SlotClass::owned, shard, layout).count, layout));
  std::set<Lane> staged;
  for (const Action& a : rank.actions) {
    if (is_reducing(a.kind))
      staged.insert(a.lane);
    if (a.kind == Kind::update && a.payload == Payload::embeddings)
      result.optimiser.push_back(optimiser_bytes(layout.embeddings.slice, layout));
  }
  result.workspace = rounded(model::plan_workspace(layout, duties_of(rank)).bytes);
  result.staging = 2 * chunk_bytes * staged.size();
  for (const int m : token_batches_of(rank))
    result.tokens += model::token_bytes(layout.shape_of(m));

  const auto add = [&](Memory kind, std::size_t bytes) { result.by_kind[index_of(kind)] += bytes; };
  for (const SlotSize& slot : result.slots)
    add(memory_of(slot.slot.cls), slot.bytes);
  for (const std::size_t bytes : result.optimiser)
    add(Memory::optimiser, bytes);
  add(Memory::buffers, result.scalars + result.workspace + result.staging);
  add(Memory::tokens, result.tokens);
  return result;
}
}  // namespace

RingSend ring_send(Kind kind, std::int64_t elements, int members, int member, int root) {
  const int next = (member + 1) % members;
  const int from_root = (member - root + members) % members;
  const auto without = [&](int slice_of) {
    return elements - slice(elements, members, slice_of).count;
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

ByteMatrix bytes(const Program& program, const Layout& layout) {
  ByteMatrix matrix;
  for (int r = 0; r < std::ssize(program.ranks); ++r) {
    for (const Action& a : program.ranks[r].actions) {
      if (a.kind != Kind::send && !is_collective(a.kind))
        continue;
      const std::int64_t elements = moved(a, layout).count;
      const std::size_t each = bytes_of(dtype_of(a[Operand::buffer].cls, layout.shape));
      if (a.kind == Kind::send) {
        matrix.add(r, a.peer, traffic_of(a.payload), elements * each);
        continue;
      }
      const Ranks& ring = program.communicators[a.communicator].ranks;
      const auto place_of = [&](int rank) { return std::ranges::find(ring, rank) - ring.begin(); };
      const int members = std::ssize(ring);
      const int root = is_rooted(a.kind) ? place_of(a.peer) : 0;
      const auto [to, sent] = ring_send(a.kind, elements, members, place_of(r), root);
      matrix.add(r, ring[to], traffic_of(a.payload), sent * each);
    }
  }
  return matrix;
}

model::Duties duties_of(const RankProgram& rank) {
  model::Duties duties;
  for (const Action& a : rank.actions) {
    duties.blocks |= is_visit(a.kind);
    duties.embedding |= a.kind == Kind::embed;
    duties.embedding_gradient |= a.kind == Kind::embed_backward;
    duties.loss |= a.kind == Kind::loss;
    duties.undivided_backward |=
        a.kind == Kind::backward || a.kind == Kind::backward_attend_weights;
  }
  return duties;
}

int kept_steps(const Program& program, int steps, std::size_t most) {
  std::size_t longest = 0;
  for (const RankProgram& rank : program.ranks)
    longest = std::max(longest, rank.actions.size());
  return longest * steps <= most ? steps : 1;
}

std::uint64_t process_bytes(const Program& program, int rank, int steps) {
  std::uint64_t actions = 0;
  for (const RankProgram& each : program.ranks)
    actions += each.actions.size();
  const std::uint64_t timed = program.ranks[rank].actions.size() * kept_steps(program, steps);
  return actions * sizeof(Action) + timed * sizeof(Span);
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
