// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <Kokkos_Core.hpp>
#include <map>
#include <mutex>
#include <string>

namespace minitaw::test {
/// What Kokkos tells tools between construction and destruction, in any thread: fences by name, memory by label.
class KokkosListener {
public:
  using Seen = std::map<std::string, int>;

  KokkosListener() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    {
      const std::scoped_lock lock(mutex_);
      seen_ = {};
      copies_ = 0;
    }
    Kokkos::Tools::Experimental::set_begin_fence_callback(
        [](const char* name, std::uint32_t, std::uint64_t*) { note("fence ", name); });
    Kokkos::Tools::Experimental::set_allocate_data_callback(
        [](Kokkos_Profiling_SpaceHandle, const char* label, const void*, std::uint64_t) {
          note("allocation ", label);
        });
    Kokkos::Tools::Experimental::set_deallocate_data_callback(
        [](Kokkos_Profiling_SpaceHandle, const char* label, const void*, std::uint64_t) {
          note("deallocation ", label);
        });
    Kokkos::Tools::Experimental::set_begin_deep_copy_callback(
        [](Kokkos_Profiling_SpaceHandle, const char*, const void*, Kokkos_Profiling_SpaceHandle, const char*,
            const void*, std::uint64_t) {
          const std::scoped_lock lock(mutex_);
          ++copies_;
        });
  }
  ~KokkosListener() { Kokkos::Tools::Experimental::set_callbacks(before_); }
  KokkosListener(const KokkosListener&) = delete;
  KokkosListener& operator=(const KokkosListener&) = delete;

  [[nodiscard]] Seen seen() const {
    const std::scoped_lock lock(mutex_);
    return seen_;
  }

  [[nodiscard]] int copies() const {
    const std::scoped_lock lock(mutex_);
    return copies_;
  }

private:
  static void note(const char* kind, const char* name) {
    const std::scoped_lock lock(mutex_);
    ++seen_[std::string(kind) + name];
  }

  Kokkos::Tools::Experimental::EventSet before_;
  static inline std::mutex mutex_;
  static inline Seen seen_;
  static inline int copies_ = 0;
};
}  // namespace minitaw::test
