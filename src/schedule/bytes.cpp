#include <algorithm>

#include "comm/slices.hpp"
#include "schedule/account.hpp"
#include "schedule/extent.hpp"

namespace minitaw::schedule {
namespace {

/// A buffer as the transports see it.
struct Moved {
  std::int64_t elements = 0;
  std::uint64_t element_bytes = 0;

  [[nodiscard]] std::uint64_t bytes() const { return elements * element_bytes; }
  [[nodiscard]] std::uint64_t without(int members, int slice) const {
    return (elements - comm::slice(elements, members, slice).count) * element_bytes;
  }
};

Moved moved_by(const Action& a, const model::Layout& layout) {
  return {moved(a, layout).count, element_bytes(a.slots[0].cls, layout.shape.dtype)};
}

class Counter {
public:
  Counter(const Program& program, const model::Layout& layout)
      : program_(program), layout_(layout), matrix_(static_cast<int>(program.ranks.size())) {}

  ByteMatrix run() {
    for (int r = 0; r < matrix_.ranks(); ++r)
      for (const Action& a : program_.ranks[r].actions)
        if (is_communication(a.kind)) count(a, r);
    return std::move(matrix_);
  }

private:
  void count(const Action& a, int rank) {
    if (a.kind == Kind::send) matrix_.add(rank, a.peer, traffic_of(a.payload), moved_by(a, layout_).bytes());
    else if (is_collective(a.kind)) count_collective(a, rank);
  }

  /// Once per collective: at its root, or at the first member.
  void count_collective(const Action& a, int rank) {
    const std::vector<int>& ring = program_.communicators[a.communicator].ranks;
    const bool rooted = a.kind == Kind::broadcast || a.kind == Kind::reduce;
    if (rank != (rooted ? a.peer : ring.front())) return;
    if (rooted) count_chain(a, ring, moved_by(a, layout_).bytes());
    else count_ring(a, ring, moved_by(a, layout_));
  }

  void count_chain(const Action& a, const std::vector<int>& ring, std::uint64_t bytes) {
    const std::size_t root = std::ranges::find(ring, a.peer) - ring.begin();
    for (std::size_t i = 0; i + 1 < ring.size(); ++i) {
      const int near = ring[(root + i) % ring.size()], far = ring[(root + i + 1) % ring.size()];
      const bool outwards = a.kind == Kind::broadcast;
      matrix_.add(outwards ? near : far, outwards ? far : near, traffic_of(a.payload), bytes);
    }
  }

  void count_ring(const Action& a, const std::vector<int>& ring, const Moved& moved) {
    const int members = static_cast<int>(ring.size());
    if (members == 1) return;
    for (int i = 0; i < members; ++i) {
      std::uint64_t bytes = 0;
      if (a.kind != Kind::all_gather) bytes += moved.without(members, i);
      if (a.kind != Kind::reduce_scatter) bytes += moved.without(members, i + 1);
      matrix_.add(ring[i], ring[(i + 1) % members], traffic_of(a.payload), bytes);
    }
  }

  const Program& program_;
  const model::Layout& layout_;
  ByteMatrix matrix_;
};

}  // namespace

ByteMatrix bytes(const Program& program, const model::Layout& layout) {
  return Counter(program, layout).run();
}

}  // namespace minitaw::schedule
