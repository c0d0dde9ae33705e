// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "model/model.hpp"
#include "schedule/account.hpp"

namespace minitaw::engine {
/// Starts a new peak of this process's resident memory, where Linux allows it (/proc/self/clear_refs).
void reset_peak_memory();
/// Peak resident set since reset_peak_memory(), or the process's begin, bytes; 0 if it is not known.
[[nodiscard]] std::uint64_t peak_memory();
/// Bytes that processes on this node may still take: free or in caches, within the limits of its control groups (v2).
[[nodiscard]] std::uint64_t available_memory();

/// All memory of a rank during a step, as the accounting lists it: one allocation, cut into buffers at construction.
class Arena {
public:
  explicit Arena(const schedule::Footprint& footprint);
  /// No bytes where the rank has no such slot.
  [[nodiscard]] model::Buffer slot(schedule::Slot slot) const;
  /// Optimiser memory of owned slot k, or of the embeddings (after the owned shards).
  [[nodiscard]] model::Buffer optimiser(int index) const { return optimiser_[index]; }
  [[nodiscard]] model::Buffer workspace() const { return workspace_; }
  [[nodiscard]] double* loss() const { return scalars_.as<double>(); }
  /// Chunk buffers of the transport, all lanes together; empty if no lane reduces.
  [[nodiscard]] model::Buffer staging() const { return staging_; }
  void clear() const { Kokkos::deep_copy(memory_, std::byte{0}); }
  /// Bytes handed out, by kind; counted as buffers are cut, not copied from the plan.
  [[nodiscard]] const std::array<std::uint64_t, schedule::memory_kinds>& measured() const { return measured_; }
private:
  model::Buffer cut(std::size_t bytes, schedule::Memory kind);

  Kokkos::View<std::byte*, model::ExecutionSpace::memory_space> memory_;
  std::size_t used_ = 0, end_ = 0;
  std::array<std::vector<model::Buffer>, schedule::slot_classes> slots_;
  std::vector<model::Buffer> optimiser_;
  model::Buffer scalars_, workspace_, staging_;
  std::array<std::uint64_t, schedule::memory_kinds> measured_{};
};

/// Initial weights of a rank in its arena (same on every rank and sharding), moments zero.
void initialise(
    const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena, std::uint64_t seed);
}  // namespace minitaw::engine
