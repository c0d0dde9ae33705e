#pragma once

#include <cstddef>
#include <string_view>

namespace minitaw::model {

/// Untyped device memory handed out by an arena; aligned to 256 bytes.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;

  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

/// Throws LogicError if `buffer` is smaller than a compute action needs.
void require(const Buffer& buffer, std::size_t bytes, std::string_view what);

}  // namespace minitaw::model
