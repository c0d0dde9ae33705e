#include "schedule/account.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "model/plan.hpp"

namespace minitaw::schedule {

Range moved(const Action& a, const model::Layout& layout) {
  switch (a.payload) {
  case Payload::weights:
  case Payload::gradient:
    return range_of(layout.shards[a.shard].elements, {a.part, a.parts});
  case Payload::embeddings:
  case Payload::embeddings_gradient:
    return range_of(layout.embeddings.elements, {a.part, a.parts});
  case Payload::activation:
  case Payload::activation_grad:
    return {0, layout.shape.tokens() * layout.shape.hidden};
  case Payload::none:
    break;
  }
  throw LogicError("a transfer of nothing");
}

std::size_t element_bytes(SlotClass cls, model::Dtype dtype) {
  const bool total = cls == SlotClass::accumulator || cls == SlotClass::embeddings_accumulator;
  return total ? sizeof(float) : model::bytes_of(dtype);
}

Range held(const Program& program, int rank, SlotClass cls, int shard, const model::Layout& layout) {
  const RankProgram& r = program.ranks[rank];
  if (of_embeddings(cls))
    return r.embeddings_slice < 0
               ? Range{0, layout.embeddings.elements}
               : range_of(layout.embeddings.elements, {r.embeddings_slice, program.embeddings_slices});
  const bool slice = cls == SlotClass::owned || cls == SlotClass::accumulator;
  return range_of(layout.shards[shard].elements, slice ? Part{r.slice, program.owned_slices} : Part{});
}

std::string name_of(Traffic kind) {
  static constexpr std::array<const char*, traffic_kinds> names = {"weights", "gradients", "activations",
                                                                   "embeddings"};
  return names[static_cast<std::size_t>(kind)];
}

Traffic traffic_of(Payload payload) {
  switch (payload) {
  case Payload::gradient:
    return Traffic::gradients;
  case Payload::activation:
  case Payload::activation_grad:
    return Traffic::activations;
  case Payload::embeddings:
  case Payload::embeddings_gradient:
    return Traffic::embeddings;
  case Payload::none:
  case Payload::weights:
    break;
  }
  return Traffic::weights;
}

ByteMatrix::ByteMatrix(int ranks) : ranks_(ranks), cells_(static_cast<std::size_t>(ranks) * ranks) {}

void ByteMatrix::add(int from, int to, Traffic kind, std::uint64_t bytes) {
  cells_[static_cast<std::size_t>(from) * ranks_ + to][static_cast<std::size_t>(kind)] += bytes;
}

std::uint64_t ByteMatrix::at(int from, int to, Traffic kind) const {
  return cells_[static_cast<std::size_t>(from) * ranks_ + to][static_cast<std::size_t>(kind)];
}

std::uint64_t ByteMatrix::inside(const topology::Groups& groups, Traffic kind) const {
  std::uint64_t sum = 0;
  for (int from = 0; from < ranks_; ++from) {
    const int first = groups.first(groups.group_of(from)), size = groups.size(groups.group_of(from));
    for (int to = first; to < first + size; ++to) sum += at(from, to, kind);
  }
  return sum;
}

std::uint64_t ByteMatrix::between(const topology::Groups& groups, Traffic kind) const {
  std::uint64_t sum = 0;
  for (const auto& cell : cells_) sum += cell[static_cast<std::size_t>(kind)];
  return sum - inside(groups, kind);
}

std::uint64_t ByteMatrix::leaving(const topology::Groups& groups, int group) const {
  return across(groups, group, true);
}

std::uint64_t ByteMatrix::entering(const topology::Groups& groups, int group) const {
  return across(groups, group, false);
}

std::uint64_t ByteMatrix::across(const topology::Groups& groups, int group, bool leaves) const {
  std::uint64_t sum = 0;
  for (int near = groups.first(group); near < groups.first(group) + groups.size(group); ++near)
    for (int far = 0; far < ranks_; ++far) {
      if (groups.group_of(far) == group) continue;
      for (int kind = 0; kind < traffic_kinds; ++kind)
        sum += at(leaves ? near : far, leaves ? far : near, static_cast<Traffic>(kind));
    }
  return sum;
}

namespace {

void count(MessageCounts& counts, const Action& a, int rank, const topology::Groups& groups) {
  const bool root = a.peer == rank;
  if (a.kind == Kind::broadcast && root) ++counts.broadcasts;
  if (a.kind == Kind::reduce && root) ++counts.reduces;
  if (a.kind != Kind::send) return;
  const bool inside = groups.together(rank, a.peer);
  if (a.payload == Payload::weights) ++(inside ? counts.weights_inside : counts.weights_between);
  if (a.payload == Payload::gradient) ++(inside ? counts.gradients_inside : counts.gradients_between);
}

int busy_ticks(const RankProgram& rank) {
  std::vector<int> ticks;
  for (const Action& a : rank.actions)
    if (is_visit(a.kind)) ticks.push_back(a.tick);
  std::ranges::sort(ticks);
  return static_cast<int>(std::ranges::unique(ticks).begin() - ticks.begin());
}

}  // namespace

MessageCounts messages(const Program& program) {
  MessageCounts counts;
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    for (const Action& a : program.ranks[r].actions) count(counts, a, r, program.groups);
  return counts;
}

Ticks ticks(const Program& program) {
  Ticks result;
  int first = std::numeric_limits<int>::max(), last = std::numeric_limits<int>::min();
  for (const RankProgram& rank : program.ranks) {
    for (const Action& a : rank.actions) {
      if (!is_visit(a.kind) && !is_communication(a.kind)) continue;
      first = std::min(first, a.tick);
      last = std::max(last, a.tick);
    }
    result.busy.push_back(busy_ticks(rank));
  }
  result.total = first <= last ? last - first + 1 : 0;
  return result;
}

namespace {

/// A buffer as the transports see it.
struct Moved {
  std::int64_t elements = 0;
  std::uint64_t element_bytes = 0;

  [[nodiscard]] std::uint64_t bytes() const { return elements * element_bytes; }
  [[nodiscard]] std::uint64_t without(int members, int slice) const {
    return (elements - minitaw::slice(elements, members, slice).count) * element_bytes;
  }
};

Moved moved_by(const Action& a, const model::Layout& layout) {
  return {moved(a, layout).count, element_bytes(a.slots[0].cls, layout.shape.dtype)};
}

class Counter {
public:
  Counter(const Program& program, const model::Layout& layout)
      : program_(program), layout_(layout), matrix_(static_cast<int>(program.ranks.size())) {}

  ByteMatrix run() {
    for (int r = 0; r < matrix_.ranks(); ++r)
      for (const Action& a : program_.ranks[r].actions)
        if (is_communication(a.kind)) count(a, r);
    return std::move(matrix_);
  }

private:
  void count(const Action& a, int rank) {
    if (a.kind == Kind::send) matrix_.add(rank, a.peer, traffic_of(a.payload), moved_by(a, layout_).bytes());
    else if (is_collective(a.kind)) count_collective(a, rank);
  }

  /// Once per collective: at its root, or at the first member.
  void count_collective(const Action& a, int rank) {
    const std::vector<int>& ring = program_.communicators[a.communicator].ranks;
    const bool rooted = is_rooted(a.kind);
    if (rank != (rooted ? a.peer : ring.front())) return;
    if (rooted) count_chain(a, ring, moved_by(a, layout_).bytes());
    else count_ring(a, ring, moved_by(a, layout_));
  }

  void count_chain(const Action& a, const std::vector<int>& ring, std::uint64_t bytes) {
    const std::size_t root = std::ranges::find(ring, a.peer) - ring.begin();
    for (std::size_t i = 0; i + 1 < ring.size(); ++i) {
      const int near = ring[(root + i) % ring.size()], far = ring[(root + i + 1) % ring.size()];
      const bool outwards = a.kind == Kind::broadcast;
      matrix_.add(outwards ? near : far, outwards ? far : near, traffic_of(a.payload), bytes);
    }
  }

  void count_ring(const Action& a, const std::vector<int>& ring, const Moved& moved) {
    const int members = static_cast<int>(ring.size());
    if (members == 1) return;
    for (int i = 0; i < members; ++i) {
      std::uint64_t bytes = 0;
      if (a.kind != Kind::all_gather) bytes += moved.without(members, i);
      if (a.kind != Kind::reduce_scatter) bytes += moved.without(members, i + 1);
      matrix_.add(ring[i], ring[(i + 1) % members], traffic_of(a.payload), bytes);
    }
  }

  const Program& program_;
  const model::Layout& layout_;
  ByteMatrix matrix_;
};

}  // namespace

ByteMatrix bytes(const Program& program, const model::Layout& layout) {
  return Counter(program, layout).run();
}

namespace {

constexpr std::size_t arena_alignment = 256;

std::size_t rounded(std::size_t bytes) {
  return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

std::size_t optimiser_bytes(std::int64_t elements, const model::Layout& layout) {
  return rounded(model::optimiser_bytes(layout.shape.dtype, elements));
}

bool is_reducing(Kind kind) {
  return kind == Kind::reduce || kind == Kind::reduce_scatter || kind == Kind::all_reduce;
}

class Measure {
public:
  Measure(const Program& program, int number, const model::Layout& layout)
      : program_(program), rank_(program.ranks[number]), number_(number), layout_(layout) {}

  Footprint run() {
    lay_out_slots();
    for (const int shard : rank_.owned_shards)
      result_.optimiser.push_back(
          optimiser_bytes(held(program_, number_, SlotClass::owned, shard, layout_).count, layout_));
    for (const Action& a : rank_.actions) measure(a);
    for (SlotSize& slot : result_.slots) slot.bytes = rounded(slot.bytes);
    result_.workspace = rounded(model::workspace_bytes(layout_));
    result_.staging = 2 * chunk_bytes * std::ranges::count(reduces_, true);
    sum_up();
    return std::move(result_);
  }

private:
  void lay_out_slots() {
    for (int c = 0; c < slot_classes; ++c) {
      first_[c] = result_.slots.size();
      for (int i = 0; i < rank_.slots[c]; ++i)
        result_.slots.push_back({{static_cast<SlotClass>(c), static_cast<std::int16_t>(i)}, 0});
    }
  }

  /// Bytes of what an action that works on `shard` has in a slot of this class.
  [[nodiscard]] std::size_t content_bytes(SlotClass cls, int shard) const {
    switch (cls) {
    case SlotClass::saved:
      return model::saved_bytes(layout_, shard);
    case SlotClass::deferred:
      return model::deferred_bytes(layout_, shard);
    case SlotClass::hidden:
      return model::hidden_bytes(layout_.shape);
    default:
      return held(program_, number_, cls, shard, layout_).count * element_bytes(cls, layout_.shape.dtype);
    }
  }

  void measure(const Action& a) {
    for (const Access& access : accesses(a, number_)) {
      std::size_t& bytes =
          result_.slots[first_[static_cast<std::size_t>(access.slot.cls)] + access.slot.index].bytes;
      bytes = std::max(bytes, content_bytes(access.slot.cls, a.shard));
    }
    if (is_reducing(a.kind)) reduces_[static_cast<std::size_t>(a.lane)] = true;
    if (a.kind == Kind::update && a.payload == Payload::embeddings)
      result_.optimiser.push_back(optimiser_bytes(layout_.embeddings.slice, layout_));
  }

  void sum_up() {
    const auto add = [&](Memory kind, std::size_t bytes) {
      result_.by_kind[static_cast<std::size_t>(kind)] += bytes;
    };
    for (const SlotSize& slot : result_.slots) add(memory_of(slot.slot.cls), slot.bytes);
    for (const std::size_t bytes : result_.optimiser) add(Memory::optimiser, bytes);
    add(Memory::buffers, result_.scalars + result_.workspace + result_.staging);
  }

  const Program& program_;
  const RankProgram& rank_;
  int number_;
  const model::Layout& layout_;
  Footprint result_;
  std::array<std::size_t, slot_classes> first_{};
  std::array<bool, lanes> reduces_{};
};

}  // namespace

Memory memory_of(SlotClass cls) {
  switch (cls) {
  case SlotClass::owned:
  case SlotClass::weights:
  case SlotClass::embeddings:
    return Memory::weights;
  case SlotClass::accumulator:
  case SlotClass::gradient:
  case SlotClass::contribution:
  case SlotClass::embeddings_accumulator:
    return Memory::gradients;
  case SlotClass::saved:
  case SlotClass::deferred:
  case SlotClass::hidden:
    break;
  }
  return Memory::activations;
}

std::string name_of(Memory kind) {
  static constexpr std::array<const char*, memory_kinds> names = {"weights", "gradients", "optimiser",
                                                                  "activations", "buffers"};
  return names[static_cast<std::size_t>(kind)];
}

std::size_t Footprint::total() const {
  return std::accumulate(by_kind.begin(), by_kind.end(), std::size_t{0});
}

std::vector<Footprint> memory(const Program& program, const model::Layout& layout) {
  return memory(program, layout, std::vector(program.ranks.size(), layout.shape.micro_batch));
}

std::vector<Footprint> memory(const Program& program, const model::Layout& layout,
                              const std::vector<std::int64_t>& micro_batch_per_rank) {
  std::vector<Footprint> result;
  model::Layout own = layout;
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    own.shape.micro_batch = micro_batch_per_rank[r];
    result.push_back(Measure(program, r, own).run());
  }
  return result;
}

}  // namespace minitaw::schedule
