// SPDX-License-Identifier: BSD-3-Clause
#include "engine/memory.hpp"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <optional>
#include "base/error.hpp"

namespace minitaw::engine {
namespace {
using schedule::Memory, schedule::SlotClass;
constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

/// The number in a file of a control group; nothing for "max" or without the file.
std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
  std::uint64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

/// Returns the text after `key` in a file of the kernel, from the first line that begins with it.
std::optional<std::string> entry_of(const char* file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return std::nullopt;
}

/// Returns the number as bytes if the kernel counts in KiB.
std::uint64_t bytes_in(const char* file, std::string_view key, std::uint64_t otherwise) {
  const auto kib = entry_of(file, key);
  return kib ? std::stoull(*kib) * 1024 : otherwise;
}

std::uint64_t left_in_groups() {
  std::uint64_t left = unlimited;
  const std::filesystem::path root = "/sys/fs/cgroup";
  // "/system.slice/job_7", the group of this process below the root, then those around it
  for (std::filesystem::path group = entry_of("/proc/self/cgroup", "0::").value_or("/");; group = group.parent_path()) {
    const auto folder = root / group.relative_path();
    const auto most = number_in(folder / "memory.max"), used = number_in(folder / "memory.current");
    if (most && used) left = std::min(left, *most - std::min(*most, *used));
    if (group == group.parent_path()) return left;
  }
}

/// Alignment of every buffer; Kokkos keeps 128 bytes of its own before an allocation.
constexpr std::size_t alignment = 256;
}  // namespace

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";  // 5: forget the high-water mark (man 5 proc)
}

std::uint64_t peak_memory() { return bytes_in("/proc/self/status", "VmHWM:", 0); }

std::uint64_t available_memory() {
  return std::min(bytes_in("/proc/meminfo", "MemAvailable:", unlimited), left_in_groups());
}

Arena::Arena(const schedule::Footprint& footprint)
    : memory_(Kokkos::view_alloc(model::ExecutionSpace{}, Kokkos::WithoutInitializing, "minitaw::arena"),
          footprint.total() + alignment),
      used_((alignment - reinterpret_cast<std::uintptr_t>(memory_.data()) % alignment) % alignment),
      end_(used_ + footprint.total()) {
  for (const schedule::SlotSize& size : footprint.slots) {
    auto& slots = slots_[index_of(size.slot.cls)];
    slots.resize(std::max<std::size_t>(slots.size(), size.slot.index + 1));
    slots[size.slot.index] = cut(size.bytes, schedule::memory_of(size.slot.cls));
  }
  for (const std::size_t bytes : footprint.optimiser) optimiser_.push_back(cut(bytes, Memory::optimiser));
  scalars_ = cut(footprint.scalars, Memory::buffers);
  workspace_ = cut(footprint.workspace, Memory::buffers);
  staging_ = cut(footprint.staging, Memory::buffers);
}

model::Buffer Arena::slot(schedule::Slot slot) const {
  const auto& slots = slots_[index_of(slot.cls)];
  return static_cast<std::size_t>(slot.index) < slots.size() ? slots[slot.index] : model::Buffer{};
}

model::Buffer Arena::cut(std::size_t bytes, Memory kind) {
  if (used_ + bytes > end_)
    throw LogicError(fmt::format("arena: {} bytes asked for, {} of {} left; the accounting is wrong", bytes,
        end_ - used_, memory_.size() - alignment));
  const model::Buffer buffer{memory_.data() + used_, bytes};
  used_ += bytes;
  measured_[index_of(kind)] += bytes;
  return buffer;
}

void initialise(
    const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena, std::uint64_t seed) {
  using Bytes = Kokkos::View<std::byte*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
  const auto draw = [&](model::Buffer weights, model::Buffer state, const std::vector<model::Tensor>& tensors,
                        Range part) {
    model::Buffer master;
    if (state.bytes > 0) {
      Kokkos::deep_copy(Bytes(state.data, state.bytes), std::byte{0});
      master = model::OptimiserState(state, layout.shape.dtype, part.count).master;
    }
    model::draw(weights, master, tensors, part, layout.shape, seed);
  };
  const schedule::RankProgram& own = program.ranks[rank];
  const int shards = static_cast<int>(own.owned_shards.size());
  for (int k = 0; k < shards; ++k) {
    const model::Shard& shard = layout.shards[own.owned_shards[k]];
    draw(arena.slot({SlotClass::owned, static_cast<std::int16_t>(k)}), arena.optimiser(k), shard.tensors,
        range_of(shard.elements, {own.slice, program.owned_slices}));
  }
  if (own.slots[index_of(SlotClass::embeddings)] == 0) return;
  const auto& embeddings = layout.embeddings;
  const auto updated = std::ranges::find_if(own.actions, [](const schedule::Action& a) {
    return a.kind == schedule::Kind::update && a.payload == schedule::Payload::embeddings;
  });
  const int slice = updated == own.actions.end() ? 0 : updated->shard;
  draw(arena.slot({SlotClass::embeddings, 0}), {}, embeddings.tensors,
      held(program, rank, SlotClass::embeddings, -1, layout));
  draw({}, arena.optimiser(shards), embeddings.tensors, {slice * embeddings.slice, embeddings.slice});
}
}  // namespace minitaw::engine
