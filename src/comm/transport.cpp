#include "comm/transport.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/bf16.hpp"
#include "base/error.hpp"

namespace minitaw::comm {

Transport::Started SoloTransport::start(schedule::Lane, std::span<const Message> batch) {
  if (batch.empty()) return nullptr;
  throw LogicError(fmt::format("a job of one rank was asked to exchange {} messages, the first with rank {}",
                               batch.size(), batch.front().peer));
}

const schedule::Communicator& communicator_at(const std::vector<schedule::Communicator>& communicators,
                                              int index) {
  if (index < 0 || static_cast<std::size_t>(index) >= communicators.size())
    throw LogicError(fmt::format("the program has no communicator {}", index));
  return communicators[static_cast<std::size_t>(index)];
}

int member_index(const schedule::Communicator& communicator, int rank) {
  const auto found = std::ranges::find(communicator.ranks, rank);
  if (found == communicator.ranks.end())
    throw LogicError(fmt::format("rank {} is not a member of communicator {}", rank, communicator.name));
  return static_cast<int>(found - communicator.ranks.begin());
}

namespace {

// Plain loops: they run on communication threads, which must not enter the compute threads' parallel regions.
void add_fp32(float* __restrict target, const float* __restrict other, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) target[i] += other[i];
}

void add_bf16(Bf16* __restrict target, const Bf16* __restrict other, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) target[i] = to_bf16(to_float(target[i]) + to_float(other[i]));
}

}  // namespace

std::size_t bytes_of(Scalar scalar) { return scalar == Scalar::fp32 ? sizeof(float) : sizeof(Bf16); }

void add(Scalar scalar, std::byte* target, const std::byte* other, std::int64_t elements) {
  if (scalar == Scalar::fp32)
    add_fp32(reinterpret_cast<float*>(target), reinterpret_cast<const float*>(other), elements);
  else add_bf16(reinterpret_cast<Bf16*>(target), reinterpret_cast<const Bf16*>(other), elements);
}

}  // namespace minitaw::comm
