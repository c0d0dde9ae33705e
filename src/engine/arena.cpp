// SPDX-License-Identifier: BSD-3-Clause
#include "engine/arena.hpp"
#include <algorithm>
#include <fmt/format.h>
#include "base/error.hpp"

namespace minitaw::engine {
using schedule::Memory, schedule::SlotClass;

std::string label_of(Memory kind) {
  return "minitaw::" + std::string(schedule::name_of(kind));
}

Arena::Arena(const schedule::Footprint& footprint, std::optional<std::byte> fill) {
  for (const auto& [kind, name] : schedule::table_of<Memory>) {
    const std::size_t k = index_of(kind), bytes = footprint.by_kind[k];
    if (kind == Memory::tokens || bytes == 0)
      continue;
    memory_[k] = Block(
        Kokkos::view_alloc(model::ExecutionSpace{}, Kokkos::WithoutInitializing, label_of(kind)),
        bytes + alignment);
    used_[k] =
        (alignment - reinterpret_cast<std::uintptr_t>(memory_[k].data()) % alignment) % alignment;
    if (fill)
      Kokkos::deep_copy(memory_[k], *fill);
  }
  for (const auto& [slot, bytes] : footprint.slots) {
    auto& slots = slots_[index_of(slot.cls)];
    slots.resize(std::max<std::size_t>(slots.size(), slot.index + 1));
    const Written written = slot.cls == SlotClass::squares        ? Written::some
                            : slot.cls == SlotClass::contribution ? Written::in_parts
                                                                  : Written::all;
    slots[slot.index] = cut(schedule::memory_of(slot.cls), bytes, name_of(slot), written);
  }
  for (const std::size_t bytes : footprint.optimiser)
    optimiser_.push_back(
        cut(Memory::optimiser, bytes, fmt::format("optimiser state {}", optimiser_.size())));
  scalars_ = cut(Memory::buffers, footprint.scalars, "scalars");
  workspace_ = cut(Memory::buffers, footprint.workspace, "workspace");
  staging_ = cut(Memory::buffers, footprint.staging, "staging", Written::some);
}

model::Buffer Arena::slot(schedule::Slot slot) const {
  const auto& slots = slots_[index_of(slot.cls)];
  return static_cast<std::size_t>(slot.index) < slots.size() ? slots[slot.index] : model::Buffer{};
}

model::Buffer Arena::cut(Memory kind, std::size_t bytes, const std::string& name, Written written) {
  const std::size_t k = index_of(kind), held = memory_[k].size();
  if (bytes == 0)
    return {};
  if (used_[k] + bytes > held)
    throw LogicError("arena: {} bytes asked for {}, {} of {} left; the accounting is wrong",
        bytes,
        name,
        held - std::min(held, used_[k]),
        label_of(kind));
  const model::Buffer buffer{memory_[k].data() + used_[k], bytes};
  used_[k] += bytes;
  buffers_.push_back({name, buffer, written});
  return buffer;
}

std::string Arena::untouched(std::byte fill, std::size_t spare) const {
  const std::size_t granule = 256 + spare;  // sizes are rounded up to 256
  for (const auto& [name, buffer, written] : buffers_) {
    if (written == Written::some)
      continue;
    const std::size_t least =
        written == Written::in_parts ? std::max(granule, buffer.bytes) : granule;
    const auto bytes = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view_of(buffer));
    std::size_t run = 0;
    for (std::size_t i = 0; i < buffer.bytes; ++i) {
      run = bytes[i] == fill ? run + 1 : 0;
      const bool ends = i + 1 == buffer.bytes || bytes[i + 1] != fill;
      if (ends && run >= least)
        return fmt::format("{} of {} bytes of {}, from byte {} on, were never written",
            run,
            buffer.bytes,
            name,
            i + 1 - run);
    }
  }
  return {};
}

void initialise(const schedule::Program& program,
    int rank,
    const model::Layout& layout,
    const Arena& arena,
    std::uint64_t seed) {
  const auto draw = [&](model::Buffer weights,
                        model::Buffer state,
                        const std::vector<model::Tensor>& tensors,
                        Range part) {
    model::Buffer master;
    if (state.bytes > 0) {
      Kokkos::deep_copy(view_of(state), std::byte{0});
      master = model::OptimiserState(state, layout.shape.dtype, part.count).master;
    }
    model::draw(weights, master, tensors, part, layout.shape, seed);
  };
  const schedule::RankProgram& own = program.ranks[rank];
  const int shards = static_cast<int>(own.owned_shards.size());
  for (int k = 0; k < shards; ++k) {
    const model::Shard& shard = layout.shards[own.owned_shards[k]];
    draw(arena.slot({SlotClass::owned, static_cast<std::int16_t>(k)}),
        arena.optimiser(k),
        shard.tensors,
        range_of(shard.elements, {own.part, program.owned_parts}));
  }
  if (!own.has_embeddings())
    return;
  const auto& embeddings = layout.embeddings;
  draw(arena.slot({SlotClass::embeddings, 0}),
      {},
      embeddings.tensors,
      held(program, rank, SlotClass::embeddings, -1, layout));
  for (const schedule::Action& a : own.actions)
    if (a.kind == schedule::Kind::update && of_embeddings(a.payload))
      draw({},
          arena.optimiser(shards),
          embeddings.tensors,
          range_of(embeddings.elements, {a.shard, program.embeddings_parts}));
}
}  // namespace minitaw::engine
