#include "engine/compute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "engine/queue.hpp"
#include "kernels/kernels.hpp"
#include "model/layout.hpp"

namespace minitaw::engine {

using schedule::Action;
using schedule::Kind;

Compute::Compute(model::Model& model, const Arena& arena, const State& state, model::AdamW adamw,
                 double* loss)
    : exec_(lane_space(schedule::Lane::compute)), model_(model), arena_(arena), state_(state), adamw_(adamw),
      loss_(loss) {}

void Compute::begin_step(model::TokenSource& tokens, const std::map<int, std::int64_t>& first_sequences,
                         int step) {
  step_ = step;
  for (const auto& [m, first] : first_sequences)
    batches_.try_emplace(m, model_.layout().shape).first->second.fill(tokens, step - 1, first);
}

void Compute::run(const Action& a) {
  switch (a.kind) {
  case Kind::zero:
    return zero(slot(a, 0));
  case Kind::embed:
    return model_.embed(slot(a, 0), slot(a, 1), batch(a));
  case Kind::forward:
    return model_.forward(a.shard, slot(a, 2), slot(a, 1), slot(a, 0));
  case Kind::loss:
    return model_.loss(slot(a, 0), slot(a, 2), a.accumulates, loss_, slot(a, 1), batch(a));
  case Kind::backward:
    return backward(a);
  case Kind::backward_input:
    return model_.backward_input(a.shard, slot(a, 2), slot(a, 1), slot(a, 3), slot(a, 0));
  case Kind::backward_weight:
    return model_.backward_weight(a.shard, slot(a, 2), gradient_type(a.slots[2]), a.accumulates, slot(a, 0),
                                  slot(a, 1));
  case Kind::embed_backward:
    return model_.embed_backward(slot(a, 1), a.accumulates, slot(a, 0), batch(a));
  case Kind::update:
    return update(a);
  case Kind::join:
    return;
  default:
    throw LogicError(fmt::format("engine: {} in the compute lane", name_of(a.kind)));
  }
}

void Compute::rehearse(const schedule::RankProgram& program) {
  const model::Layout& layout = model_.layout();
  const auto widths = [&](const Action& a) -> std::vector<std::int64_t> {
    if (a.shard < 0 || a.payload == schedule::Payload::embeddings) return {};
    const model::Shard& shard = layout.shards[a.shard];
    const auto first = layout.shape.ffn.begin() + shard.first_layer;
    return {first, first + shard.layers};
  };
  std::set<std::tuple<Kind, bool, schedule::SlotClass, std::vector<std::int64_t>>> done;
  for (const Action& a : program.actions) {
    if (!schedule::is_compute(a.kind)) continue;
    const auto last = std::ranges::find_if(a.slots, [](schedule::Slot s) { return !s.valid(); });
    const schedule::SlotClass written =
        last == a.slots.begin() ? schedule::SlotClass::owned : std::prev(last)->cls;
    if (done.emplace(a.kind, a.accumulates, written, widths(a)).second) run(a);
  }
  add_kernels();
  exec_.fence("minitaw::engine::Compute::rehearse");
}

/// Those of the communication lanes.
void Compute::add_kernels() const {
  constexpr std::size_t count = 64;
  model::with_element(model_.layout().shape.dtype, [&]<class E>(E) {
    const Kokkos::View<float*, model::ExecutionSpace::memory_space> total("minitaw::total", count);
    const Kokkos::View<E*, model::ExecutionSpace::memory_space> contribution("minitaw::contribution", count);
    for (const bool accumulate : {false, true})
      kernels::add<E>(exec_, kernels::Vector<float>(total.data(), count),
                      kernels::Vector<const E>(contribution.data(), count), accumulate);
    exec_.fence("minitaw::engine::Compute::add_kernels");
  });
}

void Compute::backward(const Action& a) {
  model_.backward(a.shard, slot(a, 2), slot(a, 3), gradient_type(a.slots[3]), a.accumulates, slot(a, 1),
                  slot(a, 0));
}

model::Dtype Compute::gradient_type(schedule::Slot gradient) const {
  return gradient.cls == schedule::SlotClass::accumulator ? model::Dtype::fp32 : model_.layout().shape.dtype;
}

void Compute::update(const Action& a) {
  if (a.payload == schedule::Payload::embeddings)
    return model_.update_embeddings(a.shard, slot(a, 0), state_.embeddings_optimiser(), slot(a, 1), adamw_,
                                    step_);
  model_.update(a.shard, slot(a, 0), state_.shard_optimiser(a.slots[0].index), slot(a, 1), adamw_, step_,
                state_.slice(), state_.slices());
}

void Compute::zero(model::Buffer buffer) const {
  using Bytes = Kokkos::View<std::byte*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
  Kokkos::deep_copy(exec_, Bytes(buffer.data, buffer.bytes), std::byte{0});
}

model::Buffer Compute::slot(const Action& action, int operand) const {
  return arena_.slot(action.slots[operand]);
}

const model::MicroBatch& Compute::batch(const Action& action) const {
  return batches_.at(action.micro_batch);
}

}  // namespace minitaw::engine
