#include "engine/arena.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "base/error.hpp"

namespace minitaw::engine {

using schedule::Memory;

namespace {

/// Of every buffer; Kokkos keeps 128 bytes of its own before what it hands out.
constexpr std::size_t alignment = 256;

}  // namespace

Arena::Arena(const schedule::Footprint& footprint)
    : memory_(Kokkos::view_alloc(model::ExecutionSpace{}, Kokkos::WithoutInitializing, "minitaw::arena"),
              footprint.total() + alignment),
      used_((alignment - reinterpret_cast<std::uintptr_t>(memory_.data()) % alignment) % alignment),
      end_(used_ + footprint.total()) {
  for (const schedule::SlotSize& size : footprint.slots) {
    auto& slots = slots_[static_cast<std::size_t>(size.slot.cls)];
    slots.resize(std::max<std::size_t>(slots.size(), size.slot.index + 1));
    slots[size.slot.index] = cut(size.bytes, schedule::memory_of(size.slot.cls));
  }
  for (const std::size_t bytes : footprint.optimiser) optimiser_.push_back(cut(bytes, Memory::optimiser));
  scalars_ = cut(footprint.scalars, Memory::buffers);
  workspace_ = cut(footprint.workspace, Memory::buffers);
  staging_ = cut(footprint.staging, Memory::buffers);
}

model::Buffer Arena::slot(schedule::Slot slot) const {
  return slots_[static_cast<std::size_t>(slot.cls)][slot.index];
}

model::Buffer Arena::cut(std::size_t bytes, Memory kind) {
  if (used_ + bytes > end_)
    throw LogicError(fmt::format("arena: {} bytes asked for, {} of {} left; the accounting is wrong", bytes,
                                 end_ - used_, memory_.size() - alignment));
  const model::Buffer buffer{memory_.data() + used_, bytes};
  used_ += bytes;
  measured_[static_cast<std::size_t>(kind)] += bytes;
  return buffer;
}

}  // namespace minitaw::engine
