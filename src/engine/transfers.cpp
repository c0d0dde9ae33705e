#include "engine/transfers.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "engine/queue.hpp"
#include "kernels/kernels.hpp"
#include "schedule/account.hpp"

namespace minitaw::engine {
namespace {

using schedule::Action;
using schedule::Kind;
using schedule::Payload;

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

Transfers::Transfers(comm::Transport& transport, const Arena& arena, const schedule::Program& program,
                     int rank, const model::Layout& layout)
    : transport_(transport), arena_(arena), program_(program), rank_(rank), layout_(layout) {}

comm::Transport::Started Transfers::start(const Action& a) {
  if (is_collective(a.kind)) return transport_.start(a.lane, a.kind, collective(a));
  if (is_point_to_point(a.kind)) return transport_.start(a.lane, std::array{message(a)});
  if (a.kind == Kind::accumulate) add(a.lane, a);
  else if (a.kind == Kind::load) load(a.lane, a);
  else throw LogicError(fmt::format("engine: {} in a communication lane", name_of(a.kind)));
  return nullptr;
}

model::Buffer Transfers::place(const Action& a, int operand) const {
  const schedule::Slot slot = a.slots[operand];
  const model::Buffer whole = arena_.slot(slot);
  const std::size_t width = schedule::element_bytes(slot.cls, layout_.shape.dtype);
  const Range wanted = schedule::moved(a, layout_);
  const bool hidden = slot.cls == schedule::SlotClass::hidden;
  const Range there = hidden ? wanted : held(program_, rank_, slot.cls, a.shard, layout_);
  const std::int64_t offset = wanted.begin - there.begin;
  if (offset < 0 || offset + wanted.count > there.count)
    throw LogicError(fmt::format("engine: {} moves what its slot does not hold", name_of(a.kind)));
  return {whole.data + offset * width, wanted.count * width};
}

comm::Message Transfers::message(const Action& a) const {
  const model::Buffer buffer = place(a);
  return {a.kind == Kind::send, a.peer, a.payload, buffer.data, buffer.bytes};
}

comm::Collective Transfers::collective(const Action& a) const {
  const bool wide = schedule::element_bytes(a.slots[0].cls, layout_.shape.dtype) == sizeof(float);
  const comm::Scalar scalar = wide ? comm::Scalar::fp32 : comm::Scalar::bf16;
  return {a.communicator, a.peer, a.payload, scalar, place(a).data, schedule::moved(a, layout_).count};
}

void Transfers::add(schedule::Lane lane, const Action& a) const {
  float* const total = place(a, 1).as<float>();
  const model::Buffer contribution = place(a);
  const std::int64_t elements = schedule::moved(a, layout_).count;
  if (layout_.shape.dtype == model::Dtype::fp32)
    return add_to_total(lane, total, contribution.as<const float>(), elements, a.accumulates);
  add_to_total(lane, total, contribution.as<const Bf16>(), elements, a.accumulates);
}

void Transfers::load(schedule::Lane lane, const Action& a) const {
  const model::Buffer from = place(a), to = place(a, 1);
  if constexpr (kernels::on_host) {
    std::memcpy(to.data, from.data, from.bytes);  // as in add_to_total()
  } else {
    using Bytes = Kokkos::View<std::byte*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
    Kokkos::deep_copy(lane_space(lane), Bytes(to.data, to.bytes), Bytes(from.data, from.bytes));
  }
}

}  // namespace minitaw::engine
