// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <Kokkos_Core.hpp>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace minitaw::test {
/// What Kokkos tells tools between construction and destruction, whichever thread it happens in:
/// fences by name, memory taken and given back by label; copies; regions and sections that have
/// begun, by name.
class KokkosListener {
public:
  using Seen = std::map<std::string, int>;

  /// Kokkos fences at regions, because this is a tool that does not say that it needs none.
  explicit KokkosListener(bool regions = false)
      : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    using namespace Kokkos::Tools::Experimental;
    using Space = Kokkos_Profiling_SpaceHandle;
    using Bytes = std::uint64_t;
    locked([] { seen_ = {}, begun_ = {}, sections_ = {}, open_ = copies_ = 0; });
    set_begin_fence_callback(
        [](const char* name, std::uint32_t, std::uint64_t*) { note("fence ", name); });
    set_allocate_data_callback(
        [](Space, const char* label, const void*, Bytes) { note("allocation ", label); });
    set_deallocate_data_callback(
        [](Space, const char* label, const void*, Bytes) { note("deallocation ", label); });
    set_begin_deep_copy_callback(
        [](Space, const char*, const void*, Space, const char*, const void*, Bytes) {
          locked([] { ++copies_; });
        });
    if (!regions)
      return;
    set_push_region_callback([](const char* name) { begin(name); });
    set_pop_region_callback([] { end(); });
    set_create_profile_section_callback([](const char* name, std::uint32_t* id) {
      const std::scoped_lock lock(mutex_);
      *id = static_cast<std::uint32_t>(sections_.size());
      sections_.emplace_back(name);
    });
    set_start_profile_section_callback([](std::uint32_t id) { begin(sections_.at(id).c_str()); });
    set_stop_profile_section_callback([](std::uint32_t) { end(); });
  }

  ~KokkosListener() { Kokkos::Tools::Experimental::set_callbacks(before_); }

  KokkosListener(const KokkosListener&) = delete;
  KokkosListener& operator=(const KokkosListener&) = delete;

  [[nodiscard]] Seen seen() const { return copy_of(seen_); }

  [[nodiscard]] int copies() const { return copy_of(copies_); }

  [[nodiscard]] Seen begun() const { return copy_of(begun_); }

  /// Regions and sections that have not ended.
  [[nodiscard]] int open() const { return copy_of(open_); }

private:
  template <class T>
  static T copy_of(const T& value) {
    const std::scoped_lock lock(mutex_);
    return value;
  }

  static auto locked(const auto& work) -> decltype(work()) {
    const std::scoped_lock lock(mutex_);
    return work();
  }

  static void begin(const char* name) {
    locked([name] { ++begun_[name], ++open_; });
  }

  static void end() {
    locked([] { --open_; });
  }

  static void note(const char* kind, const char* name) {
    locked([=] { ++seen_[std::string(kind) + name]; });
  }

  Kokkos::Tools::Experimental::EventSet before_;
  static inline std::mutex mutex_;
  static inline Seen seen_, begun_;
  static inline std::vector<std::string> sections_;
  static inline int open_ = 0, copies_ = 0;
};
}  // namespace minitaw::test
