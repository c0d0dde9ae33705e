// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <Kokkos_Core.hpp>
#include <map>
#include <mutex>
#include <string>

namespace minitaw::test {
/// What Kokkos tells tools between construction and destruction, whichever thread it happens in:
/// fences by name, memory taken and given back by label; copies.
class KokkosListener {
public:
  using Seen = std::map<std::string, int>;

  KokkosListener() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    using namespace Kokkos::Tools::Experimental;
    using Space = Kokkos_Profiling_SpaceHandle;
    using Bytes = std::uint64_t;
    locked([] { seen_ = {}, copies_ = 0; });
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
  }

  ~KokkosListener() { Kokkos::Tools::Experimental::set_callbacks(before_); }

  KokkosListener(const KokkosListener&) = delete;
  KokkosListener& operator=(const KokkosListener&) = delete;

  [[nodiscard]] Seen seen() const { return copy_of(seen_); }

  [[nodiscard]] int copies() const { return copy_of(copies_); }

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

  static void note(const char* kind, const char* name) {
    locked([=] { ++seen_[std::string(kind) + name]; });
  }

  Kokkos::Tools::Experimental::EventSet before_;
  static inline std::mutex mutex_;
  static inline Seen seen_;
  static inline int copies_ = 0;
};
}  // namespace minitaw::test
