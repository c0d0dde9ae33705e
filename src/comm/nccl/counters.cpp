#include "comm/nccl/counters.hpp"

#include <algorithm>

#include "comm/slices.hpp"
#include "comm/sum.hpp"

namespace minitaw::comm::nccl {
namespace {

/// A member's view of a ring.
struct Seat {
  std::span<const int> ring;
  int index;

  [[nodiscard]] int size() const { return static_cast<int>(ring.size()); }
  [[nodiscard]] int neighbour(int distance) const {
    return ring[static_cast<std::size_t>((index + distance + size()) % size())];
  }
  /// Steps along the ring from `rank` to here.
  [[nodiscard]] int from(int rank) const {
    const auto other = static_cast<int>(std::ranges::find(ring, rank) - ring.begin());
    return (index - other + size()) % size();
  }
};

}  // namespace

Counters::Counters(int rank, int ranks)
    : rank_(rank), ranks_(ranks), cells_(static_cast<std::size_t>(ranks * schedule::traffic_kinds)) {}

void Counters::add_collective(schedule::Kind kind, std::span<const int> ring, const Collective& c) {
  const Seat seat{ring, static_cast<int>(std::ranges::find(ring, rank_) - ring.begin())};
  const int n = seat.size();
  const auto traffic = schedule::traffic_of(c.payload);
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements) * bytes_of(c.scalar);
  };
  const auto all_but = [&](int member) { return bytes(c.elements - slice(c.elements, n, member).count); };
  if (n == 1) return;
  using enum schedule::Kind;
  if (kind == broadcast && seat.from(c.root) < n - 1) add(seat.neighbour(1), traffic, bytes(c.elements));
  if (kind == reduce && seat.from(c.root) > 0) add(seat.neighbour(-1), traffic, bytes(c.elements));
  if (kind == all_gather || kind == all_reduce) add(seat.neighbour(1), traffic, all_but(seat.index + 1));
  if (kind == reduce_scatter || kind == all_reduce) add(seat.neighbour(1), traffic, all_but(seat.index));
}

void Counters::add(int peer, schedule::Traffic traffic, std::uint64_t bytes) {
  cells_[static_cast<std::size_t>(peer * schedule::traffic_kinds + static_cast<int>(traffic))].fetch_add(
      bytes, std::memory_order_relaxed);
}

schedule::ByteMatrix Counters::matrix() const {
  schedule::ByteMatrix matrix(ranks_);
  for (std::size_t cell = 0; cell < cells_.size(); ++cell)
    matrix.add(rank_, static_cast<int>(cell) / schedule::traffic_kinds,
               static_cast<schedule::Traffic>(static_cast<int>(cell) % schedule::traffic_kinds),
               cells_[cell].load(std::memory_order_relaxed));
  return matrix;
}

void Counters::reset() {
  for (auto& cell : cells_) cell.store(0, std::memory_order_relaxed);
}

}  // namespace minitaw::comm::nccl
