#include "baseline.hpp"

#include "deck/deck.hpp"
#include "engine/queue.hpp"

namespace minitaw::bench {
namespace {

using Loss = Kokkos::View<double, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;

/// Where the program's first micro-batch keeps what the shards leave for the backward pass.
std::vector<model::Buffer> saved_by_shard(const schedule::Program& program, const engine::Arena& arena) {
  std::vector<model::Buffer> saved(static_cast<std::size_t>(program.shards));
  for (const schedule::Action& a : program.ranks[0].actions)
    if (a.kind == schedule::Kind::forward && a.micro_batch == 0)
      saved[static_cast<std::size_t>(a.shard)] = arena.slot(a.slots[1]);
  return saved;
}

}  // namespace

double loss_in(const engine::Arena& arena) {
  double loss = 0;
  Kokkos::deep_copy(loss, Loss(arena.loss()));
  return loss;
}

Baseline::Baseline(const deck::Case& c)
    : case_(c), program_(engine::program_of(c)),
      layout_(model::make_layout(c.shape, schedule::cut_of(program_))),
      arena_(schedule::memory(program_, layout_)[0]), state_(program_, 0, layout_, arena_),
      exec_(engine::lane_space(schedule::Lane::compute)),
      model_(exec_, layout_, engine::loss_scale(c), arena_.workspace(),
             kernels::parse_attention(c.attention)),
      tokens_(c.shape, c.data, c.seed), hidden_state_(arena_.slot({schedule::SlotClass::hidden, 0})),
      saved_(saved_by_shard(program_, arena_)) {
  for (int m = 0; m < c.micro_batches; ++m) batches_.emplace_back(c.shape);
  state_.initialise(c.seed);
}

void Baseline::prepare() {
  for (int m = 0; m < case_.micro_batches; ++m)
    batches_[static_cast<std::size_t>(m)].fill(tokens_, steps_, deck::first_sequence(case_, m));
  Kokkos::deep_copy(Loss(arena_.loss()), 0.0);
}

void Baseline::step() {
  ++steps_;
  for (const model::MicroBatch& batch : batches_) micro_batch(batch, &batch != batches_.data());
  update();
  exec_.fence("minitaw::bench::Baseline");
}

void Baseline::micro_batch(const model::MicroBatch& batch, bool accumulate) {
  model_.embed(hidden_state_, state_.embeddings(), batch);
  for (int s = 0; s < shards(); ++s)
    model_.forward(s, hidden_state_, saved_[static_cast<std::size_t>(s)], state_.weights(s));
  model_.loss(hidden_state_, state_.embeddings_accumulator(), accumulate, arena_.loss(), state_.embeddings(), batch);
  for (int s = shards() - 1; s >= 0; --s)
    model_.backward(s, hidden_state_, state_.accumulator(s), model::Dtype::fp32, accumulate,
                    saved_[static_cast<std::size_t>(s)], state_.weights(s));
  model_.embed_backward(state_.embeddings_accumulator(), accumulate, hidden_state_, batch);
}

void Baseline::update() {
  const model::AdamW adamw = engine::adamw_of(case_);
  for (int s = 0; s < shards(); ++s)
    model_.update(s, state_.weights(s), state_.shard_optimiser(s), state_.accumulator(s), adamw, steps_);
  model_.update_embeddings(0, state_.embeddings(), state_.embeddings_optimiser(), state_.embeddings_accumulator(), adamw, steps_);
}

}  // namespace minitaw::bench
