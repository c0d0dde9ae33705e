// SPDX-License-Identifier: BSD-3-Clause
#include "case/result.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace minitaw {
std::string name_of(Status status) {
  constexpr std::array names = {"ok", "wrong", "oom", "timeout", "skipped", "error"};
  return names.at(static_cast<std::size_t>(status));
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

void fail(CaseResult& result, std::string reason) {
  if (result.status != Status::ok) return;
  result.status = Status::wrong;
  result.reason = std::move(reason);
}
}  // namespace minitaw
