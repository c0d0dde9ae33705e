// SPDX-License-Identifier: BSD-3-Clause
#include "engine/memory.hpp"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <malloc.h>
#include <mutex>
#include <optional>
#include "base/error.hpp"
#include "topology/devices.hpp"
#include "topology/system.hpp"

namespace minitaw::engine {
namespace {
using schedule::Memory, schedule::SlotClass;
constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

/// The number in a file of a control group; nothing for "max" or without the file.
std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
  std::uint64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

/// Returns the number as bytes if the kernel counts in KiB.
std::uint64_t bytes_in(const char* file, std::string_view key, std::uint64_t otherwise) {
  const auto kib = topology::entry_of(file, key);
  return kib ? std::stoull(*kib) * 1024 : otherwise;
}

/// Resident set of this process now; 0 if it is not known.
std::uint64_t resident_memory() {
  return bytes_in("/proc/self/status", "VmRSS:", 0);
}

std::uint64_t left_in_groups() {
  std::uint64_t left = unlimited;
  const std::filesystem::path root = "/sys/fs/cgroup";
  // "/system.slice/job_7", the group of this process below the root, then those around it
  for (std::filesystem::path group = topology::entry_of("/proc/self/cgroup", "0::").value_or("/");;
      group = group.parent_path()) {
    const auto folder = root / group.relative_path();
    const auto most = number_in(folder / "memory.max"), used = number_in(folder / "memory.current");
    if (most && used)
      left = std::min(left, *most - std::min(*most, *used));
    if (group == group.parent_path())
      return left;
  }
}

/// What Kokkos has allocated, by label: filled by its callbacks, from any thread.
struct Allocations {
  struct OfLabel {
    std::int64_t now = 0;    ///< bytes alive since listen(); below zero if older ones were freed
    std::int64_t begin = 0;  ///< `now` when the watch began
    std::int64_t peak = 0;   ///< largest `now` since then, while the case's memory counts
  };

  std::mutex mutex;
  std::map<std::string, OfLabel, std::less<>> labels;
  bool counts = true;                            ///< what is allocated now is the case's
  Kokkos::Tools::Experimental::EventSet tool{};  ///< callbacks of one that Kokkos has loaded
};

Allocations& allocations() {
  static Allocations all;
  return all;
}

void note(const char* label, std::int64_t bytes) {
  Allocations& all = allocations();
  const std::scoped_lock lock(all.mutex);
  Allocations::OfLabel& of_label = all.labels[label];
  of_label.now += bytes;
  if (all.counts)
    of_label.peak = std::max(of_label.peak, of_label.now);
}

/// Kokkos tells of an allocation, or of memory that is freed; a tool is told as well.
template <bool allocated>
void listener(
    Kokkos_Profiling_SpaceHandle space, const char* label, const void* data, std::uint64_t bytes) {
  const auto signed_bytes = static_cast<std::int64_t>(bytes);
  note(label, allocated ? signed_bytes : -signed_bytes);
  const auto& tool = allocations().tool;
  if (const auto other = allocated ? tool.allocate_data : tool.deallocate_data; other != nullptr)
    other(space, label, data, bytes);
}

/// Asks Kokkos to tell of allocations; again after somebody else has set callbacks of his own.
void listen() {
  using namespace Kokkos::Tools::Experimental;
  const EventSet known = get_callbacks();
  if (known.allocate_data == &listener<true>)
    return;
  allocations().tool = known;
  set_allocate_data_callback(&listener<true>);
  set_deallocate_data_callback(&listener<false>);
}

using OfLabel = Allocations::OfLabel;

/// By how much a figure of each label has grown since the watch began; only those that have.
std::map<std::string, std::uint64_t> growth(std::int64_t OfLabel::* figure) {
  std::map<std::string, std::uint64_t> growth;
  Allocations& all = allocations();
  const std::scoped_lock lock(all.mutex);
  for (const auto& [label, of_label] : all.labels)
    if (of_label.*figure > of_label.begin)
      growth[label] = of_label.*figure - of_label.begin;
  return growth;
}

std::uint64_t used_on_device() {
  const auto device = topology::device_memory();
  return device ? device->total - device->free : 0;
}

/// Gives back what the C library keeps of freed memory, in small pieces too.
void trim() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}
}  // namespace

bool reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";  // 5: forget the high-water mark (man 5 proc)
  // The kernel counts pages of each thread apart and adds them up now and then.
  constexpr std::uint64_t inexact = std::uint64_t{4} << 20;
  return peak_memory() <= resident_memory() + inexact;
}

std::uint64_t peak_memory() {
  return bytes_in("/proc/self/status", "VmHWM:", 0);
}

std::uint64_t available_memory() {
  return std::min(bytes_in("/proc/meminfo", "MemAvailable:", unlimited), left_in_groups());
}

void return_freed_memory() {
#if defined(__GLIBC__)
  // Fixed, because a threshold that follows what was freed puts later arenas on the heap, which
  // keeps them.
  constexpr int block = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, block);
  mallopt(M_TRIM_THRESHOLD, block);
#endif
}

std::string label_of(Memory kind) {
  return "minitaw::" + std::string(schedule::name_of(kind));
}

MemoryWatch::MemoryWatch() {
  listen();
  trim();
  process_begin_ = reset_peak_memory() ? resident_memory() : 0;
  device_begin_ = used_on_device();
  Allocations& all = allocations();
  const std::scoped_lock lock(all.mutex);
  for (auto& [label, of_label] : all.labels)
    of_label.peak = of_label.begin = of_label.now;
}

void MemoryWatch::leave_out(const std::function<void()>& work) {
  const auto count = [](bool on) {
    const std::scoped_lock lock(allocations().mutex);
    allocations().counts = on;
  };
  process_peak_ = std::max(process_peak_, peak_memory());
  count(false);
  work();
  count(true);
  trim();
  (void)reset_peak_memory();
}

MemoryTaken MemoryWatch::taken() const {
  return {.kokkos = growth(&OfLabel::peak),
      .process_begin = process_begin_,
      .process_peak = std::max(process_peak_, peak_memory()),
      .device_begin = device_begin_,
      .device_used = used_on_device()};
}

std::map<std::string, std::uint64_t> MemoryWatch::kept() const {
  return growth(&OfLabel::now);
}

std::uint64_t MemoryWatch::process_growth() const {
  trim();
  const std::uint64_t now = resident_memory();
  return process_begin_ > 0 && now > process_begin_ ? now - process_begin_ : 0;
}

Arena::Arena(const schedule::Footprint& footprint, std::optional<std::byte> fill) {
  for (const auto& [kind, name] : schedule::table_of<Memory>) {
    const std::size_t k = index_of(kind), bytes = footprint.by_kind[k];
    if (kind == Memory::tokens || bytes == 0)
      continue;
    memory_[k] = Block(
        Kokkos::view_alloc(model::ExecutionSpace{}, Kokkos::WithoutInitializing, label_of(kind)),
        bytes + alignment);
    used_[k] =
        (alignment - reinterpret_cast<std::uintptr_t>(memory_[k].data()) % alignment) % alignment;
    if (fill)
      Kokkos::deep_copy(memory_[k], *fill);
  }
  for (const auto& [slot, bytes] : footprint.slots) {
    auto& slots = slots_[index_of(slot.cls)];
    slots.resize(std::max<std::size_t>(slots.size(), slot.index + 1));
    const Written written = slot.cls == SlotClass::squares        ? Written::some
                            : slot.cls == SlotClass::contribution ? Written::in_parts
                                                                  : Written::all;
    slots[slot.index] = cut(schedule::memory_of(slot.cls), bytes, name_of(slot), written);
  }
  for (const std::size_t bytes : footprint.optimiser)
    optimiser_.push_back(
        cut(Memory::optimiser, bytes, fmt::format("optimiser state {}", optimiser_.size())));
  scalars_ = cut(Memory::buffers, footprint.scalars, "scalars");
  workspace_ = cut(Memory::buffers, footprint.workspace, "workspace");
  staging_ = cut(Memory::buffers, footprint.staging, "staging", Written::some);
}

model::Buffer Arena::slot(schedule::Slot slot) const {
  const auto& slots = slots_[index_of(slot.cls)];
  return static_cast<std::size_t>(slot.index) < slots.size() ? slots[slot.index] : model::Buffer{};
}

model::Buffer Arena::cut(Memory kind, std::size_t bytes, const std::string& name, Written written) {
  const std::size_t k = index_of(kind), held = memory_[k].size();
  if (bytes == 0)
    return {};
  if (used_[k] + bytes > held)
    throw LogicError("arena: {} bytes asked for {}, {} of {} left; the accounting is wrong",
        bytes,
        name,
        held - std::min(held, used_[k]),
        label_of(kind));
  const model::Buffer buffer{memory_[k].data() + used_[k], bytes};
  used_[k] += bytes;
  buffers_.push_back({name, buffer, written});
  return buffer;
}

std::string Arena::untouched(std::byte fill, std::size_t spare) const {
  const std::size_t granule = 256 + spare;  // sizes are rounded up to 256
  for (const auto& [name, buffer, written] : buffers_) {
    if (written == Written::some)
      continue;
    const std::size_t least =
        written == Written::in_parts ? std::max(granule, buffer.bytes) : granule;
    const auto bytes = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view_of(buffer));
    std::size_t run = 0;
    for (std::size_t i = 0; i < buffer.bytes; ++i) {
      run = bytes[i] == fill ? run + 1 : 0;
      const bool ends = i + 1 == buffer.bytes || bytes[i + 1] != fill;
      if (ends && run >= least)
        return fmt::format("{} of {} bytes of {}, from byte {} on, were never written",
            run,
            buffer.bytes,
            name,
            i + 1 - run);
    }
  }
  return {};
}

void initialise(const schedule::Program& program,
    int rank,
    const model::Layout& layout,
    const Arena& arena,
    std::uint64_t seed) {
  const auto draw = [&](model::Buffer weights,
                        model::Buffer state,
                        const std::vector<model::Tensor>& tensors,
                        Range part) {
    model::Buffer master;
    if (state.bytes > 0) {
      Kokkos::deep_copy(view_of(state), std::byte{0});
      master = model::OptimiserState(state, layout.shape.dtype, part.count).master;
    }
    model::draw(weights, master, tensors, part, layout.shape, seed);
  };
  const schedule::RankProgram& own = program.ranks[rank];
  const int shards = static_cast<int>(own.owned_shards.size());
  for (int k = 0; k < shards; ++k) {
    const model::Shard& shard = layout.shards[own.owned_shards[k]];
    draw(arena.slot({SlotClass::owned, static_cast<std::int16_t>(k)}),
        arena.optimiser(k),
        shard.tensors,
        range_of(shard.elements, {own.slice, program.owned_slices}));
  }
  if (!own.has_embeddings())
    return;
  const auto& embeddings = layout.embeddings;
  draw(arena.slot({SlotClass::embeddings, 0}),
      {},
      embeddings.tensors,
      held(program, rank, SlotClass::embeddings, -1, layout));
  for (const schedule::Action& a : own.actions)
    if (a.kind == schedule::Kind::update && of_embeddings(a.payload))
      draw({},
          arena.optimiser(shards),
          embeddings.tensors,
          range_of(embeddings.elements, {a.shard, program.embeddings_slices}));
}
}  // namespace minitaw::engine
