#include "engine/state.hpp"

#include "schedule/account.hpp"

namespace minitaw::engine {
namespace {

using schedule::Slot;
using schedule::SlotClass;

int slice_of(const schedule::RankProgram& rank) {
  for (const schedule::Action& action : rank.actions)
    if (action.kind == schedule::Kind::update && action.payload == schedule::Payload::ends)
      return action.shard;
  return 0;
}

void zero(model::Buffer buffer) {
  if (buffer.bytes == 0) return;
  const model::ExecutionSpace exec;
  Kokkos::deep_copy(exec,
                    Kokkos::View<std::byte*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>(
                        buffer.data, buffer.bytes),
                    std::byte{0});
  exec.fence("minitaw::engine::zero");
}

}  // namespace

model::EndsPart ends_part_of(const schedule::Program& program, int rank, const model::Layout& layout) {
  if (program.ranks[rank].slots[static_cast<std::size_t>(SlotClass::ends)] == 0) return {0, 0};
  const Range part = held(program, rank, SlotClass::ends, -1, layout);
  return {part.begin, part.count};
}

State::State(const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena)
    : program_(program), rank_(program.ranks[rank]), layout_(layout), arena_(arena), homes_(rank_.homes),
      ends_part_(ends_part_of(program, rank, layout)), ends_slice_(slice_of(rank_)) {}

void State::initialise(std::uint64_t seed) {
  for (int k = 0; k < static_cast<int>(homes_.size()); ++k) initialise_shard(k, seed);
  if (holds_ends()) initialise_ends(seed);
}

void State::initialise_shard(int home, std::uint64_t seed) {
  zero(arena_.optimiser(home));
  const std::int64_t count = shard_elements(home);
  model::draw(weights(home), shard_optimiser(home).master, layout_.shards[homes_[home]].tensors,
              {slice() * count, count}, layout_.shape, seed);
}

void State::initialise_ends(std::uint64_t seed) {
  zero(arena_.optimiser(static_cast<int>(homes_.size())));
  const std::vector<model::Tensor>& tensors = layout_.ends.tensors;
  model::draw(ends(), {}, tensors, ends_part_, layout_.shape, seed);
  const std::int64_t slice = layout_.ends.slice;
  model::draw({}, ends_optimiser().master, tensors, {ends_slice_ * slice, slice}, layout_.shape, seed);
}

model::Buffer State::weights(int home) const {
  return arena_.slot({SlotClass::owned, static_cast<std::int16_t>(home)});
}
model::Buffer State::total(int home) const {
  return arena_.slot({SlotClass::accumulator, static_cast<std::int16_t>(home)});
}
model::Buffer State::ends() const {
  return holds_ends() ? arena_.slot({SlotClass::ends, 0}) : model::Buffer{};
}
model::Buffer State::ends_total() const {
  return holds_ends() ? arena_.slot({SlotClass::ends_accumulator, 0}) : model::Buffer{};
}

model::OptimiserState State::shard_optimiser(int home) const {
  return model::optimiser_state(arena_.optimiser(home), layout_.shape.dtype, shard_elements(home));
}

model::OptimiserState State::ends_optimiser() const {
  return model::optimiser_state(arena_.optimiser(static_cast<int>(homes_.size())), layout_.shape.dtype,
                                layout_.ends.slice);
}

}  // namespace minitaw::engine
