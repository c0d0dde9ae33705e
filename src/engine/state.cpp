#include "engine/state.hpp"

#include "schedule/account.hpp"

namespace minitaw::engine {
namespace {

using schedule::Slot;
using schedule::SlotClass;

int slice_of(const schedule::RankProgram& rank) {
  for (const schedule::Action& action : rank.actions)
    if (action.kind == schedule::Kind::update && action.payload == schedule::Payload::embeddings)
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

model::EmbeddingsPart embeddings_part_of(const schedule::Program& program, int rank,
                                         const model::Layout& layout) {
  if (program.ranks[rank].slots[static_cast<std::size_t>(SlotClass::embeddings)] == 0) return {0, 0};
  const Range part = held(program, rank, SlotClass::embeddings, -1, layout);
  return {part.begin, part.count};
}

State::State(const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena)
    : program_(program), rank_(program.ranks[rank]), layout_(layout), arena_(arena),
      owned_shards_(rank_.owned_shards), embeddings_part_(embeddings_part_of(program, rank, layout)),
      embeddings_slice_(slice_of(rank_)) {}

void State::initialise(std::uint64_t seed) {
  for (int k = 0; k < static_cast<int>(owned_shards_.size()); ++k) initialise_shard(k, seed);
  if (holds_embeddings()) initialise_embeddings(seed);
}

void State::initialise_shard(int owned, std::uint64_t seed) {
  zero(arena_.optimiser(owned));
  const std::int64_t count = shard_elements(owned);
  model::draw(weights(owned), shard_optimiser(owned).master, layout_.shards[owned_shards_[owned]].tensors,
              {slice() * count, count}, layout_.shape, seed);
}

void State::initialise_embeddings(std::uint64_t seed) {
  zero(arena_.optimiser(static_cast<int>(owned_shards_.size())));
  const std::vector<model::Tensor>& tensors = layout_.embeddings.tensors;
  model::draw(embeddings(), {}, tensors, embeddings_part_, layout_.shape, seed);
  const std::int64_t slice = layout_.embeddings.slice;
  model::draw({}, embeddings_optimiser().master, tensors, {embeddings_slice_ * slice, slice}, layout_.shape,
              seed);
}

model::Buffer State::weights(int owned) const {
  return arena_.slot({SlotClass::owned, static_cast<std::int16_t>(owned)});
}
model::Buffer State::accumulator(int owned) const {
  return arena_.slot({SlotClass::accumulator, static_cast<std::int16_t>(owned)});
}
model::Buffer State::embeddings() const {
  return holds_embeddings() ? arena_.slot({SlotClass::embeddings, 0}) : model::Buffer{};
}
model::Buffer State::embeddings_accumulator() const {
  return holds_embeddings() ? arena_.slot({SlotClass::embeddings_accumulator, 0}) : model::Buffer{};
}

model::OptimiserState State::shard_optimiser(int owned) const {
  return model::optimiser_state(arena_.optimiser(owned), layout_.shape.dtype, shard_elements(owned));
}

model::OptimiserState State::embeddings_optimiser() const {
  return model::optimiser_state(arena_.optimiser(static_cast<int>(owned_shards_.size())), layout_.shape.dtype,
                                layout_.embeddings.slice);
}

}  // namespace minitaw::engine
