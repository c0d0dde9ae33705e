#pragma once

#include "comm/nccl/api.hpp"
#include "comm/slices.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::nccl {

/// This rank's place in a collective, and the queue that plays it.
struct Seat {
  Communicator& communicator;
  int members = 0;
  int index = 0;
  Queue queue = nullptr;
};

/// The buffer of a collective, as NCCL sees it.
struct Buffer {
  std::byte* data = nullptr;
  std::int64_t elements = 0;
  Scalar scalar = Scalar::fp32;

  [[nodiscard]] Type type() const { return scalar == Scalar::fp32 ? Type::fp32 : Type::bf16; }
  [[nodiscard]] std::byte* at(std::int64_t element) const;
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(elements); }
};

/// Whether all members' slices are equal, so that one call of NCCL's does it.
[[nodiscard]] inline bool even(const Seat& seat, const Buffer& buffer) {
  return buffer.elements % seat.members == 0;
}

// The operations, for two members and more and within a group; the contract is that of comm::Transport.
// `root` is a place in the ring.
void broadcast(const Seat& seat, const Buffer& buffer, int root);
void reduce(const Seat& seat, const Buffer& buffer, int root);
void all_gather(const Seat& seat, const Buffer& buffer, int root);
void reduce_scatter(const Seat& seat, const Buffer& buffer, int root);
void all_reduce(const Seat& seat, const Buffer& buffer, int root);

}  // namespace minitaw::comm::nccl
