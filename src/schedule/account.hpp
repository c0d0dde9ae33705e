// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include "model/plan.hpp"
#include "schedule/program.hpp"

namespace minitaw::schedule {
/// Bytes of a step from rank to rank of a job, by kind of traffic.
class ByteMatrix {
public:
  using Cell = std::array<std::uint64_t, traffic_kinds>;

  void add(int from, int to, Traffic kind, std::uint64_t bytes) {
    if (bytes > 0)
      cells_[{from, to}][index_of(kind)] += bytes;
  }

  /// Adds what other ranks send.
  void add(ByteMatrix others) { cells_.merge(others.cells_); }

  std::uint64_t at(int from, int to, Traffic kind) const;

  /// The pairs (from, to) that send anything.
  const auto& cells() const { return cells_; }

  std::uint64_t inside(const Groups& groups, Traffic kind) const { return sum(groups, kind, true); }

  std::uint64_t between(const Groups& groups, Traffic kind) const {
    return sum(groups, kind, false);
  }

  /// Bytes that a group exchanges with others, all kinds.
  struct OfGroup {
    std::uint64_t out = 0, in = 0;
  };

  std::vector<OfGroup> by_group(const Groups& groups) const;

private:
  std::uint64_t sum(const Groups& groups, Traffic kind, bool inside) const;

  std::map<std::pair<int, int>, Cell> cells_;
};

/// Bytes that cross each link in one step, as the transports move them. A collective has n members
/// in ring order, from the root if there is one. It moves the shares of base/range.hpp, with their
/// true sizes:
/// - broadcast: a chain with the whole message over each link i -> i + 1, i = 0 .. n - 2;
/// - reduce: the same chain back;
/// - all-gather: a ring with all shares but share i + 1 over each link i -> i + 1 (mod n);
/// - reduce-scatter: all shares but share i; all-reduce: both.
ByteMatrix bytes(const Program& program, const Layout& layout);
/// What one rank of the job sends.
ByteMatrix bytes_of_rank(const Program& program, const Layout& layout, int job_rank);

/// A transport moves large collectives in such pieces; each lane with a reducing collective stages
/// two.
inline constexpr std::size_t piece_bytes = 256 * 1024;

/// A slot of a rank and its size: that of the largest content in the program.
struct SlotSize {
  Slot slot;
  std::size_t bytes = 0;
};

/// Memory of a rank for a step, allocated before the first one. Sizes are rounded up to 256 bytes,
/// but for tokens.
struct Footprint {
  std::vector<SlotSize> slots;  ///< by class, then index
  /// model::optimiser_bytes of each owned slot, then of what this rank updates of the embeddings.
  std::vector<std::size_t> optimiser;
  std::size_t scalars = 256;  ///< the loss of the step
  std::size_t workspace = 0;  ///< scratch of compute actions
  std::size_t staging = 0;    ///< 2 piece_bytes per lane with reduce, reduce_scatter or all_reduce
  /// model::token_bytes of each micro-batch; pinned host memory beside a device.
  std::size_t tokens = 0;
  std::array<std::size_t, memory_kinds> by_kind{};  ///< sums of the above
  std::size_t total() const;

  /// Returns the part that kernels compute in, which is device memory if there is a device: all but
  /// the tokens.
  std::size_t arena() const { return total() - tokens; }
};

/// Returns what the actions of a rank compute.
model::Duties duties_of(const RankProgram& rank);
/// Resident bytes of a process on a host without any case: code, libraries and what those keep.
/// Measured on four ranks with MPICH 4.2, OpenBLAS 0.3.29, HDF5 1.14 and Kokkos 5.2 of Debian;
/// rank 0 has more.
inline constexpr std::uint64_t process_base = std::uint64_t{40} << 20;
/// Returns how many timed steps a rank keeps the times of its actions of: all, or the last one if
/// some rank has more than `most` actions in all of them.
int kept_steps(const Program& program, int steps, std::size_t most = std::size_t{1} << 20);
/// Bytes of the actions of all ranks of a program; a process has them all.
std::uint64_t program_bytes(const Program& program);
/// Bytes of the times that a rank keeps of its actions in so many timed steps.
std::uint64_t span_bytes(const Program& program, int rank, int steps);
/// The memory of each rank of the program.
std::vector<Footprint> memory(const Program& program, const Layout& layout);

/// Transfer of one member in a collective: `elements` (perhaps 0) to one neighbour in ring order.
struct RingSend {
  int to = 0;
  std::int64_t elements = 0;
};

/// Members count in ring order. Broadcast and reduce are chains from or to member `root`, the
/// others rings.
RingSend ring_send(Kind collective, std::int64_t elements, int members, int member, int root);

struct Ticks {
  int total = 0;          ///< from the first to the last compute or transfer tick of any rank
  std::vector<int> busy;  ///< per rank of the program: ticks with F, BW, B or W

  int idle(int rank) const { return total - busy[rank]; }
};

Ticks ticks(const Program& program);
/// Elements that a transfer, add or load moves of a shard, the embeddings or a hidden state.
Range moved(const Action& action, const Layout& layout);
/// Type of a slot's values: fp32 in accumulators, grad_dtype in what moves towards them, else the
/// compute type.
model::Dtype dtype_of(SlotClass cls, const model::Shape& shape);
/// Elements of `shard`, or of the embeddings, that a slot for weights or gradients holds: all, or
/// the rank's part; or of a micro-batch.
Range held(const Program& program,
    int rank,
    SlotClass cls,
    int shard,
    const Layout& layout,
    int micro_batch = -1);
}  // namespace minitaw::schedule
