#include "engine/state.hpp"

#include <algorithm>

#include "base/error.hpp"

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
void store(model::Buffer buffer, const std::vector<float>& values) {
  using Device = Kokkos::View<float*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
  using Host = Kokkos::View<const float*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
  Kokkos::deep_copy(Device(buffer.as<float>(), values.size()), Host(values.data(), values.size()));
}

}  // namespace

State::State(const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena)
    : layout_(layout), arena_(arena), homes_(program.ranks[rank].homes),
      ends_slice_(slice_of(program.ranks[rank])) {
  if (layout.shape.dtype != model::Dtype::fp32)
    throw InputError("dtype: this build computes in fp32; bf16 can be planned, but not run yet");
}

void State::initialise(std::uint64_t seed) {
  std::vector<float> values;
  for (int k = 0; k < static_cast<int>(homes_.size()); ++k) {
    const model::Shard& shard = layout_.shards[homes_[k]];
    values.assign(shard.elements, 0.0F);
    model::initialise(values, shard, layout_.shape, seed);
    store(weights(k), values);
    zero(arena_.optimiser(k));
  }
  values.assign(layout_.ends.elements, 0.0F);
  model::initialise(values, layout_.ends, layout_.shape, seed);
  store(ends(), values);
  zero(arena_.optimiser(static_cast<int>(homes_.size())));
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
