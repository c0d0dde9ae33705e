#include "engine/transfers.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "engine/lane_space.hpp"
#include "kernels/add.hpp"
#include "model/footprint.hpp"

namespace minitaw::engine {
namespace {

using schedule::Action;
using schedule::Kind;
using schedule::Payload;

[[maybe_unused]] float to_float(float value) { return value; }  // called by the host build only

/// Totals and the ends gradient are fp32 whatever the compute precision.
bool is_fp32(schedule::SlotClass cls, model::Dtype dtype) {
  return dtype == model::Dtype::fp32 || cls == schedule::SlotClass::total ||
         cls == schedule::SlotClass::ends_total;
}

/// total += contribution, behind what the lane has done so far. On a host a plain loop: communication threads
/// must not enter the compute threads' parallel regions.
template <class E>
void add_to_total(schedule::Lane lane, float* total, const E* contribution, std::int64_t elements) {
  if constexpr (kernels::on_host) {
    for (std::int64_t i = 0; i < elements; ++i) total[i] += to_float(contribution[i]);
  } else {
    kernels::add<E>(lane_space(lane), kernels::Vector<float>(total, elements),
                    kernels::Vector<const E>(contribution, elements));
  }
}

}  // namespace

Transfers::Transfers(comm::Transport& transport, const Arena& arena, const model::Layout& layout)
    : transport_(transport), arena_(arena), layout_(layout) {}

void Transfers::run(schedule::Lane lane, std::span<const Action* const> unit) {
  const Action& first = *unit.front();
  switch (first.kind) {
  case Kind::send:
  case Kind::recv: {
    std::vector<comm::Message> batch;
    for (const Action* action : unit) batch.push_back(message(*action));
    return transport_.exchange(lane, batch);
  }
  case Kind::broadcast:
    return transport_.broadcast(lane, collective(first));
  case Kind::reduce:
    return transport_.reduce(lane, collective(first));
  case Kind::all_gather:
    return transport_.all_gather(lane, collective(first));
  case Kind::reduce_scatter:
    return transport_.reduce_scatter(lane, collective(first));
  case Kind::all_reduce:
    return transport_.all_reduce(lane, collective(first));
  case Kind::accumulate:
    return add(lane, first);
  default:
    throw LogicError(fmt::format("engine: {} in a communication lane", name_of(first.kind)));
  }
}

std::int64_t Transfers::elements(const Action& a) const {
  switch (a.payload) {
  case Payload::weights:
  case Payload::gradient:
    return layout_.shards[a.shard].elements;
  case Payload::ends:
  case Payload::ends_gradient:
    return layout_.ends.elements;
  case Payload::activation:
  case Payload::activation_grad:
    return layout_.shape.tokens() * layout_.shape.hidden;
  case Payload::none:
    break;
  }
  throw LogicError("engine: a transfer of nothing");
}

comm::Message Transfers::message(const Action& a) const {
  const std::size_t width = is_fp32(a.slots[0].cls, layout_.shape.dtype) ? 4 : 2;
  return {a.kind == Kind::send, a.peer, a.payload, arena_.slot(a.slots[0]).data,
          static_cast<std::size_t>(elements(a)) * width};
}

comm::Collective Transfers::collective(const Action& a) const {
  const auto scalar = is_fp32(a.slots[0].cls, layout_.shape.dtype) ? comm::Scalar::fp32 : comm::Scalar::bf16;
  return {a.communicator, a.peer, a.payload, scalar, arena_.slot(a.slots[0]).data, elements(a)};
}

void Transfers::add(schedule::Lane lane, const Action& a) const {
  float* const total = arena_.slot(a.slots[1]).as<float>();
  const model::Buffer contribution = arena_.slot(a.slots[0]);
  if (layout_.shape.dtype == model::Dtype::fp32)
    return add_to_total(lane, total, contribution.as<const float>(), elements(a));
  add_to_total(lane, total, contribution.as<const Bf16>(), elements(a));
}

}  // namespace minitaw::engine
