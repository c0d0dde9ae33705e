#include <algorithm>
#include <numeric>

#include "model/footprint.hpp"
#include "schedule/account.hpp"
#include "schedule/extent.hpp"

namespace minitaw::schedule {
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
    for (const int shard : rank_.homes)
      result_.optimiser.push_back(
          optimiser_bytes(held(program_, number_, SlotClass::home, shard, layout_).count, layout_));
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
    case SlotClass::kept:
      return model::kept_bytes(layout_, shard);
    case SlotClass::stash:
      return model::stash_bytes(layout_, shard);
    case SlotClass::flow:
      return model::flow_bytes(layout_.shape);
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
    if (a.kind == Kind::update && a.payload == Payload::ends)
      result_.optimiser.push_back(optimiser_bytes(layout_.ends.slice, layout_));
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
  case SlotClass::home:
  case SlotClass::weights:
  case SlotClass::ends:
    return Memory::weights;
  case SlotClass::total:
  case SlotClass::gradient:
  case SlotClass::contribution:
  case SlotClass::ends_total:
    return Memory::gradients;
  case SlotClass::kept:
  case SlotClass::stash:
  case SlotClass::flow:
    break;
  }
  return Memory::activations;
}

std::string name_of(Memory kind) {
  switch (kind) {
  case Memory::weights:
    return "weights";
  case Memory::gradients:
    return "gradients";
  case Memory::optimiser:
    return "optimiser";
  case Memory::activations:
    return "activations";
  case Memory::buffers:
    return "buffers";
  }
  return "";
}

std::size_t Footprint::total() const {
  return std::accumulate(by_kind.begin(), by_kind.end(), std::size_t{0});
}

std::vector<Footprint> memory(const Program& program, const model::Layout& layout) {
  std::vector<Footprint> result;
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    result.push_back(Measure(program, r, layout).run());
  return result;
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
