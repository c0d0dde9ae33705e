// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace minitaw {
/// Tells whether two files have the same bytes: FNV-1a of 64 bits.
class Checksum {
public:
  Checksum& add(std::string_view bytes);
  /// 16 hexadecimal digits.
  std::string text() const;

private:
  std::uint64_t sum_ = 0xcbf29ce484222325;
};
}  // namespace minitaw
