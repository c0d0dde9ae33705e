#include "engine/state.hpp"

#include <algorithm>

#include "base/bf16.hpp"

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

State::State(const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena)
    : layout_(layout), arena_(arena), homes_(program.ranks[rank].homes),
      ends_slice_(slice_of(program.ranks[rank])) {}

void State::initialise(std::uint64_t seed) {
  std::vector<float> values;
  for (int k = 0; k < static_cast<int>(homes_.size()); ++k) {
    const model::Shard& shard = layout_.shards[homes_[k]];
    values.assign(shard.elements, 0.0F);
    model::initialise(values, shard, layout_.shape, seed);
    store_weights(weights(k), values, layout_.shape.dtype);
    zero(arena_.optimiser(k));
    if (const model::Buffer master = shard_optimiser(k).master; master.bytes > 0) store(master, values);
  }
  values.assign(layout_.ends.elements, 0.0F);
  model::initialise(values, layout_.ends, layout_.shape, seed);
  store_weights(ends(), values, layout_.shape.dtype);
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
model::Buffer State::ends() const { return arena_.slot({SlotClass::ends, 0}); }
model::Buffer State::ends_total() const { return arena_.slot({SlotClass::ends_total, 0}); }

model::OptimiserState State::shard_optimiser(int home) const {
  return model::optimiser_state(arena_.optimiser(home), layout_.shape.dtype,
                                layout_.shards[homes_[home]].elements);
}

model::OptimiserState State::ends_optimiser() const {
  return model::optimiser_state(arena_.optimiser(static_cast<int>(homes_.size())), layout_.shape.dtype,
                                layout_.ends.slice);
}

}  // namespace minitaw::engine
