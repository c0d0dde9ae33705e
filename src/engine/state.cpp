#include "engine/state.hpp"

#include <algorithm>

#include "base/bf16.hpp"
#include "schedule/extent.hpp"

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

/// Host values into device memory.
template <class T>
void store(model::Buffer buffer, const std::vector<T>& values) {
  using Device = Kokkos::View<T*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
  using Host = Kokkos::View<const T*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
  Kokkos::deep_copy(Device(buffer.as<T>(), values.size()), Host(values.data(), values.size()));
}

/// The same as weights of the compute type.
void store_weights(model::Buffer buffer, const std::vector<float>& values, model::Dtype dtype) {
  if (dtype == model::Dtype::fp32) return store(buffer, values);
  std::vector<Bf16> narrow(values.size());
  std::ranges::transform(values, narrow.begin(), to_bf16);
  store(buffer, narrow);
}

}  // namespace

model::EndsPart ends_part_of(const schedule::Program& program, int rank, const model::Layout& layout) {
  if (program.ranks[rank].slots[static_cast<std::size_t>(SlotClass::ends)] == 0) return {0, 0};
  const schedule::Extent part = held(program, rank, SlotClass::ends, -1, layout);
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
  const model::Shard& shard = layout_.shards[homes_[home]];
  std::vector<float> values(shard.elements, 0.0F);
  model::initialise(values, shard, layout_.shape, seed);
  const auto begin = values.begin() + slice() * shard_elements(home);
  const std::vector<float> own(begin, begin + shard_elements(home));
  store_weights(weights(home), own, layout_.shape.dtype);
  zero(arena_.optimiser(home));
  if (const model::Buffer master = shard_optimiser(home).master; master.bytes > 0) store(master, own);
}

void State::initialise_ends(std::uint64_t seed) {
  std::vector<float> values(layout_.ends.elements, 0.0F);
  model::initialise(values, layout_.ends, layout_.shape, seed);
  const auto begin = values.begin() + ends_part_.first;
  store_weights(ends(), std::vector<float>(begin, begin + ends_part_.elements), layout_.shape.dtype);
  zero(arena_.optimiser(static_cast<int>(homes_.size())));
  if (const model::Buffer master = ends_optimiser().master; master.bytes > 0) {
    const auto slice = values.begin() + ends_slice_ * layout_.ends.slice;
    store(master, std::vector<float>(slice, slice + layout_.ends.slice));
  }
}

model::Buffer State::weights(int home) const {
  return arena_.slot({SlotClass::home, static_cast<std::int16_t>(home)});
}
model::Buffer State::total(int home) const {
  return arena_.slot({SlotClass::total, static_cast<std::int16_t>(home)});
}
model::Buffer State::ends() const {
  return holds_ends() ? arena_.slot({SlotClass::ends, 0}) : model::Buffer{};
}
model::Buffer State::ends_total() const {
  return holds_ends() ? arena_.slot({SlotClass::ends_total, 0}) : model::Buffer{};
}

model::OptimiserState State::shard_optimiser(int home) const {
  return model::optimiser_state(arena_.optimiser(home), layout_.shape.dtype, shard_elements(home));
}

model::OptimiserState State::ends_optimiser() const {
  return model::optimiser_state(arena_.optimiser(static_cast<int>(homes_.size())), layout_.shape.dtype,
                                layout_.ends.slice);
}

}  // namespace minitaw::engine
