// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>
#include "model/model.hpp"
#include "schedule/account.hpp"

namespace minitaw::engine {
/// Label of Kokkos allocations of a kind: "minitaw::weights".
std::string label_of(schedule::Memory kind);

/// Memory of a rank's kernels during a step, as the accounting lists it: one allocation for each
/// kind, cut into buffers at construction.
class Arena {
public:
  /// `fill`: the value of every byte at first; else memory is as it was found.
  explicit Arena(const schedule::Footprint& footprint, std::optional<std::byte> fill = {});
  /// No bytes where the rank has no such slot.
  model::Buffer slot(schedule::Slot slot) const;

  /// Optimiser memory of owned slot k, or of the embeddings (after the owned shards).
  model::Buffer optimiser(int index) const { return optimiser_[index]; }

  model::Buffer workspace() const { return workspace_; }

  double* loss() const { return scalars_.as<double>(); }

  /// Staging of the transport, all lanes together; empty if no lane reduces.
  model::Buffer staging() const { return staging_; }

  /// Returns where at least 256 bytes in a row still hold `fill`, in words: memory that no action
  /// has used. Empty if there is none. `spare`: as many bytes more in a row may be left.
  [[nodiscard]] std::string untouched(std::byte fill, std::size_t spare = 0) const;

  /// Alignment of every buffer. A kind takes as many bytes more: Kokkos keeps 128 of its own before
  /// an allocation.
  static constexpr std::size_t alignment = 256;

private:
  using Block = Kokkos::View<std::byte*, model::ExecutionSpace::memory_space>;

  /// How much of a buffer a step writes.
  enum class Written {
    all,
    in_parts,  ///< contributions: those of several rails are parts, so only an unused one counts
    some,      ///< staging and partial sums have one size, of which small models use little
  };

  struct Named {
    std::string name;
    model::Buffer buffer;
    Written written;
  };

  model::Buffer cut(schedule::Memory kind,
      std::size_t bytes,
      const std::string& name,
      Written written = Written::all);

  std::array<Block, schedule::memory_kinds> memory_;
  std::array<std::size_t, schedule::memory_kinds> used_{};  ///< of each block
  std::vector<Named> buffers_;
  std::array<std::vector<model::Buffer>, schedule::slot_classes> slots_;
  std::vector<model::Buffer> optimiser_;
  model::Buffer scalars_, workspace_, staging_;
};

/// The bytes of a buffer, as Kokkos takes them.
inline auto view_of(model::Buffer buffer) {
  using Memory = model::ExecutionSpace::memory_space;
  return Kokkos::View<std::byte*, Memory, Kokkos::MemoryUnmanaged>(buffer.data, buffer.bytes);
}

/// Initial weights of a rank in its arena (same on every rank and sharding), moments zero.
void initialise(const schedule::Program& program,
    int rank,
    const model::Layout& layout,
    const Arena& arena,
    std::uint64_t seed);
}  // namespace minitaw::engine
