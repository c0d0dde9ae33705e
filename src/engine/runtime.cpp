// SPDX-License-Identifier: BSD-3-Clause
#include "engine/runtime.hpp"
#include <cstring>
#include <set>
#include <tuple>
#include "base/error.hpp"
#include "comm/mpi/sends.hpp"

namespace minitaw::engine {
namespace {
using model::Buffer, schedule::Action, schedule::Kind, schedule::Operand, schedule::SlotClass;
using Loss = Kokkos::View<double, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;

/// Rounds the fp32 sums in `from` to `to`.
void round_sums(schedule::Lane lane, Buffer to, Buffer from, model::Dtype dtype) {
  const auto elements = static_cast<std::int64_t>(from.bytes / sizeof(float));
  model::with_element(dtype, [&]<class E>(E) {
    if constexpr (kernels::on_host)
      convert<false>(to.as<E>(), from.as<const float>(), elements);
    else
      kernels::round<E>(lane_space(lane),
          kernels::Vector<E>(to.as<E>(), elements),
          kernels::Vector<const float>(from.as<const float>(), elements));
  });
}
}  // namespace

double loss_scale(const Case& c) {
  return 1.0 / tokens_of_step(c);
}

model::AdamW adamw_of(const Case& c) {
  return {.learning_rate = static_cast<float>(c.learning_rate),
      .clip_norm = static_cast<float>(c.clip_norm)};
}

Runtime::Runtime(Plan plan, int rank, const StepOptions& options)
    : plan_(std::move(plan)),
      program_(*plan_->program),
      rank_(rank),
      own_(program_.rank_of(rank)),
      layout_(model::make_layout(shape_of_rank(plan_->asked, rank), schedule::cut_of(program_))),
      arena_(footprint(), options.fill),
      model_(lane_space(schedule::Lane::compute),
          layout_,
          loss_scale(plan_->asked),
          arena_.workspace(),
          kernels::parse_attention(plan_->asked.attention),
          own_program().has_embeddings() ? held(program_, own_, SlotClass::embeddings, -1, layout_)
                                         : Range{},
          duties_of(own_program())),
      tokens_(layout_.shape, plan_->asked.data, plan_->asked.seed),
      adamw_(adamw_of(plan_->asked)),
      exec_(lane_space(schedule::Lane::compute)),
      options_(options) {
  for (const int m : token_batches_of(own_program()))
    batches_.try_emplace(m, layout_.shape_of(m));
  if (!kernels::on_host)
    rehearse();
  initialise(program_, own_, layout_, arena_, plan_->asked.seed);
}

void Runtime::connect(std::unique_ptr<comm::Transport> transport) {
  transport_ = transport ? std::move(transport) : std::make_unique<comm::SoloTransport>(program_);
  executor_ = std::make_unique<Executor>(program_, rank_, *this, *transport_, options_);
}

void Runtime::prepare() {
  ++steps_;
  const int first = program_.replica_of(rank_) * program_.micro_batches;
  for (auto& [m, batch] : batches_)
    batch.fill(tokens_, steps_ - 1, (first + m) / program_.slices * plan_->asked.shape.micro_batch);
  Kokkos::deep_copy(Loss(arena_.loss()), 0.0);
}

double Runtime::step() {
  const comm::mpi::StepSends counted;
  return executor_->step();
}

double Runtime::loss() const {
  double loss = 0;
  Kokkos::deep_copy(loss, Loss(arena_.loss()));
  return loss;
}

comm::Transport::Started Runtime::start(const Action& a) {
  using enum model::Direction;
  if (is_collective(a.kind))
    return transport_->start(a.lane, a.kind, collective(a));
  if (is_point_to_point(a.kind))
    return transport_->start(a.lane, message(a));
  switch (a.kind) {
  case Kind::forward: visit(a, forward); break;
  case Kind::backward: visit(a, backward); break;
  case Kind::backward_input: visit(a, backward_input); break;
  case Kind::backward_weight: visit(a, backward_weight); break;
  case Kind::embed: model_.embed(ends(a), batches_.at(a.micro_batch)); break;
  case Kind::loss: model_.loss(ends(a), arena_.loss(), batches_.at(a.micro_batch)); break;
  case Kind::embed_backward: model_.embed_backward(ends(a), batches_.at(a.micro_batch)); break;
  case Kind::zero:
    Kokkos::deep_copy(exec_, view_of(slot(a, Operand::gradient)), std::byte{0});
    break;
  case Kind::square:
    model_.square(slot(a, Operand::squares), part(a, Operand::gradient), a.accumulates);
    break;
  case Kind::update: update(a); break;
  case Kind::accumulate: add(a); break;
  case Kind::load: load(a); break;
  case Kind::join: break;
  default: throw LogicError("engine: {} does not compute", name_of(a));
  }
  return nullptr;
}

Buffer Runtime::slot(const Action& a, Operand operand) const {
  const schedule::Slot slot = a[operand];
  return slot.valid() ? arena_.slot(slot) : Buffer{};
}

void Runtime::visit(const Action& a, model::Direction direction) {
  model::PassBuffers b;
  for (const schedule::Slot slot : a.slots) {
    if (!slot.valid())
      continue;
    const Buffer buffer = arena_.slot(slot);
    switch (slot.cls) {
    case SlotClass::saved: b.saved = buffer; break;
    case SlotClass::deferred: b.deferred = buffer; break;
    case SlotClass::hidden: b.hidden = buffer; break;
    case SlotClass::keys: b.of_ranks.key_values = buffer; break;
    case SlotClass::key_gradient: b.of_ranks.gradient = buffer; break;
    case SlotClass::prefix: b.of_slices.key_values = buffer; break;
    case SlotClass::prefix_gradient: b.of_slices.gradient = buffer; break;
    case SlotClass::owned:
    case SlotClass::weights: b.weights = buffer; break;
    default: b.gradient = {buffer, dtype_of(slot), a.accumulates};
    }
  }
  model_.run({.direction = direction,
                 .shard = a.shard,
                 .slice = slice_of(program_, a.micro_batch),
                 .segment = a.segment,
                 .block = a.block,
                 .heads = {a.part, a.parts}},
      b);
}

model::EndBuffers Runtime::ends(const Action& a) const {
  model::EndBuffers b{.accumulate = a.accumulates, .slice = slice_of(program_, a.micro_batch)};
  for (const schedule::Slot slot : a.slots)
    if (slot.valid())
      (slot.cls == SlotClass::hidden          ? b.hidden
          : slot.cls == SlotClass::embeddings ? b.weights
                                              : b.gradient) = arena_.slot(slot);
  return b;
}

void Runtime::update(const Action& a) {
  const schedule::RankProgram& rank = own_program();
  const bool embeddings = of_embeddings(a.payload);
  const int state = embeddings
                        ? static_cast<int>(rank.owned_shards.size())  // behind those of the shards
                        : a[Operand::weights].index;
  const model::UpdateBuffers b{slot(a, Operand::weights),
      slot(a, Operand::gradient),
      arena_.optimiser(state),
      slot(a, Operand::squares)};
  if (embeddings)
    model_.update_embeddings(a.shard, b, adamw_, steps_);
  else
    model_.update(a.shard, {rank.part, program_.owned_parts}, b, adamw_, steps_);
}

/// Runs every kernel once, because a first launch may stop the device to load code. That would
/// never end while a kernel of NCCL waits for another rank. Results are not used. Products choose
/// their algorithms.
void Runtime::rehearse() {
  prepare();
  kernels::choose_by_time(exec_, !options_.repeatable);
  std::set<std::tuple<Kind, model::Segment, bool, SlotClass, int, int>> done;
  for (const Action& a : own_program().actions) {
    if (!schedule::is_compute(a.kind) && a.kind != Kind::accumulate && a.kind != Kind::load)
      continue;
    SlotClass written =
        SlotClass::owned;  // the last one is the gradient, which may be of two types
    for (const schedule::Access& access : accesses(a, own_))
      if (access.write)
        written = access.slot.cls;
    const int slice = slice_of(program_, a.micro_batch);
    const int heads = is_segment(a) ? a.part : 0;
    if (!done.emplace(a.kind, a.segment, a.accumulates, written, slice, heads).second)
      continue;
    (void)start(a);
    Kokkos::fence("minitaw::engine::Runtime::rehearse");  // additions have queues of their own
  }
  kernels::choose_by_time(exec_, false);
  steps_ = 0;
}

Buffer Runtime::part(const Action& a, Operand operand) const {
  const schedule::Slot slot = a[operand];
  const std::size_t width = bytes_of(dtype_of(slot));
  const bool updates = a.kind == Kind::update || a.kind == Kind::square;
  const Range there = held(program_, own_, slot.cls, a.shard, layout_, a.micro_batch);
  Range wanted = there;
  if (!updates)
    wanted = schedule::moved(a, layout_);
  else if (of_embeddings(slot.cls))
    wanted = range_of(layout_.embeddings.elements, {a.shard, program_.embeddings_parts});
  const std::int64_t offset = wanted.begin - there.begin;
  if (offset < 0 || offset + wanted.count > there.count)
    throw LogicError("engine: {} uses what its slot does not hold", name_of(a));
  return {arena_.slot(slot).data + offset * width, wanted.count * width};
}

int Runtime::peer_of(const Action& a) const {
  return in_job(program_, a, program_.replica_of(rank_)).peer;
}

comm::Message Runtime::message(const Action& a) const {
  const Buffer buffer = part(a, Operand::buffer);
  return {a.kind == Kind::send, peer_of(a), a.payload, buffer.data, buffer.bytes};
}

comm::Collective Runtime::collective(const Action& a) const {
  return {a.communicator,
      peer_of(a),
      a.payload,
      dtype_of(a[Operand::buffer]),
      part(a, Operand::buffer).data,
      schedule::moved(a, layout_).count};
}

void Runtime::add(const Action& a) const {
  const Buffer from = part(a, Operand::source);
  float* const sum = part(a, Operand::destination).as<float>();
  const std::int64_t elements = schedule::moved(a, layout_).count;
  model::with_element(dtype_of(a[Operand::source]), [&]<class E>(E) {
    if constexpr (!kernels::on_host)
      kernels::add<E>(lane_space(a.lane),
          kernels::Vector<float>(sum, elements),
          kernels::Vector<const E>(from.as<const E>(), elements),
          a.accumulates);
    else if (a.accumulates)
      convert<true>(sum, from.as<const E>(), elements);
    else
      convert<false>(sum, from.as<const E>(), elements);
  });
}

void Runtime::load(const Action& a) const {
  const Buffer from = part(a, Operand::source), to = part(a, Operand::destination);
  if (dtype_of(a[Operand::source]) != dtype_of(a[Operand::destination]))
    return round_sums(a.lane, to, from, dtype_of(a[Operand::destination]));
  if constexpr (kernels::on_host)
    std::memcpy(to.data, from.data, from.bytes);  // no parallel region, as in convert()
  else
    Kokkos::deep_copy(lane_space(a.lane), view_of(to), view_of(from));
}
}  // namespace minitaw::engine
