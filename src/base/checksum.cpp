// SPDX-License-Identifier: BSD-3-Clause
#include "base/checksum.hpp"
#include <fmt/format.h>

namespace minitaw {
Checksum& Checksum::add(std::string_view bytes) {
  constexpr std::uint64_t prime = 0x100000001b3;
  std::uint64_t sum = sum_;
  for (const char byte : bytes)
    sum = (sum ^ static_cast<unsigned char>(byte)) * prime;
  sum_ = sum;
  return *this;
}

std::string Checksum::text() const {
  return fmt::format("{:016x}", sum_);
}
}  // namespace minitaw
