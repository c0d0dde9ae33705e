#include "engine/memory.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <sys/resource.h>

#include "base/error.hpp"

namespace minitaw::engine {

namespace {

using schedule::Memory;
using schedule::SlotClass;

/// The number in a file of a control group; nothing for "max" or without the file.
std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
  std::uint64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

/// What stands behind `key` in a file of the kernel, in the first line that begins with it.
std::optional<std::string> entry_of(const char* file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return std::nullopt;
}

/// "/system.slice/job_7", the group of this process below the root.
std::string own_group() { return entry_of("/proc/self/cgroup", "0::").value_or("/"); }

std::uint64_t left_in_groups() {
  std::uint64_t left = std::numeric_limits<std::uint64_t>::max();
  const std::filesystem::path root = "/sys/fs/cgroup";
  for (std::filesystem::path group = own_group();; group = group.parent_path()) {
    const auto folder = root / group.relative_path();
    const auto most = number_in(folder / "memory.max"), used = number_in(folder / "memory.current");
    if (most && used) left = std::min(left, *most - std::min(*most, *used));
    if (group == group.parent_path()) return left;
  }
}

std::uint64_t free_on_node() {
  const auto kib = entry_of("/proc/meminfo", "MemAvailable:");
  return kib ? std::stoull(*kib) * 1024 : std::numeric_limits<std::uint64_t>::max();
}

/// Of every buffer; Kokkos keeps 128 bytes of its own before what it hands out.
constexpr std::size_t alignment = 256;

/// Slice of the embeddings that a rank updates.
int embeddings_slice(const schedule::RankProgram& rank) {
  for (const schedule::Action& action : rank.actions)
    if (action.kind == schedule::Kind::update && action.payload == schedule::Payload::embeddings)
      return action.shard;
  return 0;
}

void zero(model::Buffer buffer) {
  using Bytes = Kokkos::View<std::byte*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
  Kokkos::deep_copy(Bytes(buffer.data, buffer.bytes), std::byte{0});
}

}  // namespace

void reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";  // 5: forget the high-water mark (man 5 proc)
}

std::uint64_t peak_memory() {
  if (const auto kib = entry_of("/proc/self/status", "VmHWM:")) return std::stoull(*kib) * 1024;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

std::uint64_t available_memory() { return std::min(free_on_node(), left_in_groups()); }

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

State::State(const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena)
    : rank_(program.ranks[rank]), layout_(layout), arena_(arena), slices_(program.owned_slices) {
  if (rank_.slots[index_of(SlotClass::embeddings)] == 0) return;
  embeddings_part_ = held(program, rank, SlotClass::embeddings, -1, layout);
}

void State::initialise(std::uint64_t seed) const {
  const auto master = [&](const model::Buffer& state, std::int64_t elements) {
    return model::OptimiserState(state, layout_.shape.dtype, elements).master;
  };
  for (int k = 0; k < static_cast<int>(rank_.owned_shards.size()); ++k) {
    zero(shard_optimiser(k));
    model::draw(weights(k), master(shard_optimiser(k), elements(k)),
                layout_.shards[rank_.owned_shards[k]].tensors, {slice() * elements(k), elements(k)},
                layout_.shape, seed);
  }
  if (embeddings_part_.count == 0) return;
  zero(embeddings_optimiser());
  const std::vector<model::Tensor>& tensors = layout_.embeddings.tensors;
  const std::int64_t slice = layout_.embeddings.slice;
  model::draw(embeddings(), {}, tensors, embeddings_part_, layout_.shape, seed);
  model::draw({}, master(embeddings_optimiser(), slice), tensors, {embeddings_slice(rank_) * slice, slice},
              layout_.shape, seed);
}

}  // namespace minitaw::engine
