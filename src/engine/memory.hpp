// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <map>
#include <optional>
#include "model/model.hpp"
#include "schedule/account.hpp"

namespace minitaw::engine {
/// Bytes that processes on this node may still take: free or in caches, within the limits of its
/// control groups (v2).
std::uint64_t available_memory();
/// Starts a new peak of this process's resident memory; returns whether Linux allows it
/// (/proc/self/clear_refs).
bool reset_peak_memory();
/// Peak resident set since reset_peak_memory(), or the process's begin, bytes; 0 if it is not
/// known.
std::uint64_t peak_memory();
/// Makes the C library return large blocks to the kernel when they are freed, so that the resident
/// set of a process says what it uses. Called once, before there are any.
void return_freed_memory();

/// Label of Kokkos allocations of a kind: "minitaw::weights".
std::string label_of(schedule::Memory kind);

/// What a process takes during a case, beyond what it had when the case began.
struct MemoryTaken {
  /// Most bytes of each label that Kokkos had allocated at a time.
  std::map<std::string, std::uint64_t> kokkos;
  std::uint64_t process_begin =
      0;  ///< resident set when the case began; 0: the peak of a case is not known
  std::uint64_t process_peak = 0;  ///< largest resident set since
  std::uint64_t device_begin =
      0;  ///< in use on the device when the case began, by all that runs there; 0: not known
  std::uint64_t device_used = 0;  ///< in use there now; 0: no device
};

/// Measures what a case takes from its construction on: asks Kokkos (its allocation callbacks, from
/// the first watch on), the kernel and the device, never the plan. One at a time.
class MemoryWatch {
public:
  MemoryWatch();
  /// Runs `work`, whose memory is not the case's; all of it is gone afterwards.
  void leave_out(const std::function<void()>& work);
  MemoryTaken taken() const;
  /// Returns what Kokkos still holds of what it has allocated since the watch began, by label;
  /// empty: nothing.
  std::map<std::string, std::uint64_t> kept() const;
  /// Returns how many bytes the process has now that it did not have when the watch began; 0 if
  /// that is not known.
  std::uint64_t process_growth() const;

private:
  std::uint64_t process_begin_ = 0, process_peak_ = 0, device_begin_ = 0;
};

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

  /// Chunk buffers of the transport, all lanes together; empty if no lane reduces.
  model::Buffer staging() const { return staging_; }

  /// Returns where at least 256 bytes in a row still hold `fill`, in words: memory that no action
  /// has used. Empty if there is none. `spare`: as many bytes more in a row may be left.
  [[nodiscard]] std::string untouched(std::byte fill, std::size_t spare = 0) const;

  /// Of every buffer; a kind takes as many bytes more, because Kokkos keeps 128 of its own before
  /// an allocation.
  static constexpr std::size_t alignment = 256;

private:
  using Block = Kokkos::View<std::byte*, model::ExecutionSpace::memory_space>;

  /// What a step writes of a buffer.
  enum class Written {
    all,
    in_parts,  ///< contributions: those of several rails are parts, so only an unused one counts
    some,      ///< chunks and partial sums have one size, of which small models use little
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
