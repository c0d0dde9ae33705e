#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace minitaw::bench {

/// A buffer where models keep theirs: device memory in a build for devices.
class Memory {
public:
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] std::byte* data() const;
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// From and to the host; complete on return.
  void set(std::span<const std::byte> values);
  void get(std::span<std::byte> values) const;

private:
  struct Held;
  std::size_t bytes_;
  std::unique_ptr<Held> held_;
};

}  // namespace minitaw::bench
