#include "engine/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "engine/queue.hpp"
#include "kernels/kernels.hpp"
#include "model/layout.hpp"
#include "schedule/validate.hpp"

namespace minitaw::engine {
namespace {

using model::Buffer;
using schedule::Action;
using schedule::Kind;
using schedule::SlotClass;
using Bytes = Kokkos::View<std::byte*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
using Loss = Kokkos::View<double, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;

schedule::Program with_fault(schedule::Program program, const StepOptions& options) {
  options.inject_fault(program);
  return program;
}

/// What the rank holds of the embeddings.
Range embeddings_part(const schedule::Program& program, int rank, const model::Layout& layout) {
  if (program.ranks[rank].slots[index_of(SlotClass::embeddings)] == 0) return {};
  return held(program, rank, SlotClass::embeddings, -1, layout);
}

[[maybe_unused]] float to_float(float value) { return value; }  // called by the host build only

/// total = contribution, or += it, behind what the lane has done so far. On a host a plain loop:
/// communication threads must not enter the compute threads' parallel regions.
template <class E>
void add_to_total(schedule::Lane lane, float* total, const E* contribution, std::int64_t elements,
                  bool accumulate) {
  if constexpr (kernels::on_host) {
    if (accumulate)
      for (std::int64_t i = 0; i < elements; ++i) total[i] += to_float(contribution[i]);
    else
      for (std::int64_t i = 0; i < elements; ++i) total[i] = to_float(contribution[i]);
  } else {
    kernels::add<E>(lane_space(lane), kernels::Vector<float>(total, elements),
                    kernels::Vector<const E>(contribution, elements), accumulate);
  }
}

}  // namespace

double loss_scale(const deck::Case& c) { return 1.0 / deck::tokens_of_step(c); }

model::AdamW adamw_of(const deck::Case& c) {
  model::AdamW adamw;
  adamw.learning_rate = static_cast<float>(c.learning_rate);
  return adamw;
}

Trainer::Trainer(const deck::Case& c, int rank, const StepOptions& options)
    : rank_(rank), program_(with_fault(schedule::build_valid(deck::request_of(c)), options)),
      layout_(model::make_layout(deck::shape_of_rank(c, rank), schedule::cut_of(program_))),
      footprint_(schedule::memory(program_, layout_)[rank]), arena_(footprint_),
      embeddings_part_(embeddings_part(program_, rank, layout_)),
      model_(lane_space(schedule::Lane::compute), layout_, loss_scale(c), arena_.workspace(),
             kernels::parse_attention(c.attention), embeddings_part_),
      case_(c), tokens_(c.shape, c.data, c.seed), adamw_(adamw_of(c)),
      exec_(lane_space(schedule::Lane::compute)), options_(options) {
  for (const int m : micro_batches_of(program_.ranks[rank])) batches_.try_emplace(m, layout_.shape);
  if (!kernels::on_host) rehearse();
  initialise(program_, rank, layout_, arena_, c.seed);
}

void Trainer::connect(std::unique_ptr<comm::Transport> transport) {
  transport_ = transport ? std::move(transport) : std::make_unique<comm::SoloTransport>(program_);
  executor_ = std::make_unique<Executor>(
      program_, rank_, [this](const schedule::Action& action) { return start(action); }, *transport_,
      options_);
}

void Trainer::prepare() {
  ++steps_;
  for (auto& [m, batch] : batches_) batch.fill(tokens_, steps_ - 1, deck::first_sequence(case_, m));
  Kokkos::deep_copy(Loss(arena_.loss()), 0.0);
}

double Trainer::step() { return executor_->step(); }

double Trainer::loss() const {
  double loss = 0;
  Kokkos::deep_copy(loss, Loss(arena_.loss()));
  return loss;
}

comm::Transport::Started Trainer::start(const Action& a) {
  if (is_collective(a.kind)) return transport_->start(a.lane, a.kind, collective(a));
  if (is_point_to_point(a.kind)) return transport_->start(a.lane, message(a));
  if (a.kind == Kind::accumulate) add(a);
  else if (a.kind == Kind::load) load(a);
  else compute(a);
  return nullptr;
}

void Trainer::compute(const Action& a) {
  switch (a.kind) {
  case Kind::zero:
    return Kokkos::deep_copy(exec_, Bytes(slot(a, 0).data, slot(a, 0).bytes), std::byte{0});
  case Kind::embed:
    return model_.embed(slot(a, 0), slot(a, 1), batches_.at(a.micro_batch));
  case Kind::forward:
    return model_.forward(a.shard, slot(a, 2), slot(a, 1), slot(a, 0));
  case Kind::loss:
    return model_.loss(slot(a, 0), slot(a, 2), a.accumulates, arena_.loss(), slot(a, 1),
                       batches_.at(a.micro_batch));
  case Kind::backward:
    return model_.backward(a.shard, slot(a, 2), slot(a, 3), dtype_of(a.slots[3]), a.accumulates, slot(a, 1),
                           slot(a, 0));
  case Kind::backward_input:
    return model_.backward_input(a.shard, slot(a, 2), slot(a, 1), slot(a, 3), slot(a, 0));
  case Kind::backward_weight:
    return model_.backward_weight(a.shard, slot(a, 2), dtype_of(a.slots[2]), a.accumulates, slot(a, 0),
                                  slot(a, 1));
  case Kind::embed_backward:
    return model_.embed_backward(slot(a, 1), a.accumulates, slot(a, 0), batches_.at(a.micro_batch));
  case Kind::update:
    return update(a);
  case Kind::join:
    return;
  default:
    throw LogicError(fmt::format("engine: {} in the compute lane", name_of(a.kind)));
  }
}

void Trainer::update(const Action& a) {
  const schedule::RankProgram& rank = program_.ranks[rank_];
  if (a.payload == schedule::Payload::embeddings)
    return model_.update_embeddings(a.shard, slot(a, 0),
                                    arena_.optimiser(static_cast<int>(rank.owned_shards.size())), slot(a, 1),
                                    adamw_, steps_);
  model_.update(a.shard, slot(a, 0), arena_.optimiser(a.slots[0].index), slot(a, 1), adamw_, steps_,
                rank.slice, program_.owned_slices);
}

/// A device's first launch of a kernel may stop it to load the kernel's code, which would never end while a
/// kernel of NCCL waits for another rank: every kernel runs once before ranks wait for each other. Every kind
/// of action of the program that computes or adds is executed once, in issue order, whatever the slots hold:
/// one visit of each kind of shard, writing and adding. Matrix products choose their algorithms.
void Trainer::rehearse() {
  prepare();
  kernels::choose_by_time(exec_, true);
  const auto widths = [&](const Action& a) -> std::vector<std::int64_t> {
    if (a.shard < 0 || a.payload == schedule::Payload::embeddings) return {};
    const model::Shard& shard = layout_.shards[a.shard];
    const auto first = layout_.shape.ffn.begin() + shard.first_layer;
    return {first, first + shard.layers};
  };
  std::set<std::tuple<Kind, bool, SlotClass, std::vector<std::int64_t>>> done;
  for (const Action& a : program_.ranks[rank_].actions) {
    if (!schedule::is_compute(a.kind) && a.kind != Kind::accumulate) continue;
    const auto last = std::ranges::find_if(a.slots, [](schedule::Slot s) { return !s.valid(); });
    const SlotClass written = last == a.slots.begin() ? SlotClass::owned : std::prev(last)->cls;
    if (!done.emplace(a.kind, a.accumulates, written, widths(a)).second) continue;
    (void)start(a);
    Kokkos::fence("minitaw::engine::Trainer::rehearse");  // additions have queues of their own
  }
  kernels::choose_by_time(exec_, false);
  steps_ = 0;
}

Buffer Trainer::part(const Action& a, int operand) const {
  const schedule::Slot slot = a.slots[operand];
  const std::size_t width = bytes_of(dtype_of(slot));
  const Range wanted = schedule::moved(a, layout_);
  const Range there =
      slot.cls == SlotClass::hidden ? wanted : held(program_, rank_, slot.cls, a.shard, layout_);
  const std::int64_t offset = wanted.begin - there.begin;
  if (offset < 0 || offset + wanted.count > there.count)
    throw LogicError(fmt::format("engine: {} moves what its slot does not hold", name_of(a.kind)));
  return {arena_.slot(slot).data + offset * width, wanted.count * width};
}

comm::Message Trainer::message(const Action& a) const {
  const Buffer buffer = part(a);
  return {a.kind == Kind::send, a.peer, a.payload, buffer.data, buffer.bytes};
}

comm::Collective Trainer::collective(const Action& a) const {
  return {a.communicator,       a.peer,       a.payload,
          dtype_of(a.slots[0]), part(a).data, schedule::moved(a, layout_).count};
}

void Trainer::add(const Action& a) const {
  float* const total = part(a, 1).as<float>();
  const std::int64_t elements = schedule::moved(a, layout_).count;
  model::with_element(layout_.shape.dtype, [&]<class E>(E) {
    add_to_total(a.lane, total, part(a).as<const E>(), elements, a.accumulates);
  });
}

void Trainer::load(const Action& a) const {
  const Buffer from = part(a), to = part(a, 1);
  if constexpr (kernels::on_host) std::memcpy(to.data, from.data, from.bytes);  // as in add_to_total()
  else Kokkos::deep_copy(lane_space(a.lane), Bytes(to.data, to.bytes), Bytes(from.data, from.bytes));
}

}  // namespace minitaw::engine
