#include "schedule/extent.hpp"

#include "base/error.hpp"

namespace minitaw::schedule {
namespace {

/// Part `index` of `count`; slices and parts are equal by the layout's making.
Extent part_of(std::int64_t elements, int index, int count) {
  const std::int64_t each = elements / count;
  return {index * each, each};
}

}  // namespace

Extent moved(const Action& a, const model::Layout& layout) {
  switch (a.payload) {
  case Payload::weights:
  case Payload::gradient:
    return part_of(layout.shards[a.shard].elements, a.part, a.parts);
  case Payload::ends:
  case Payload::ends_gradient:
    return part_of(layout.ends.elements, a.part, a.parts);
  case Payload::activation:
  case Payload::activation_grad:
    return {0, layout.shape.tokens() * layout.shape.hidden};
  case Payload::none:
    break;
  }
  throw LogicError("a transfer of nothing");
}

std::size_t element_bytes(SlotClass cls, model::Dtype dtype) {
  const bool total = cls == SlotClass::total || cls == SlotClass::ends_total;
  return total ? sizeof(float) : model::bytes_of(dtype);
}

Extent held(const Program& program, int rank, SlotClass cls, int shard, const model::Layout& layout) {
  const RankProgram& r = program.ranks[rank];
  if (cls == SlotClass::ends || cls == SlotClass::ends_total)
    return r.ends_slice < 0 ? Extent{0, layout.ends.elements}
                            : part_of(layout.ends.elements, r.ends_slice, program.ends_slices);
  const bool slice = cls == SlotClass::home || cls == SlotClass::total;
  return part_of(layout.shards[shard].elements, slice ? r.slice : 0, slice ? program.home_slices : 1);
}

}  // namespace minitaw::schedule
