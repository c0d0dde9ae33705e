// SPDX-License-Identifier: BSD-3-Clause
#include "case/result.hpp"
#include <chrono>
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace minitaw {
std::string name_of(Status status) {
  constexpr std::array names = {"ok", "wrong", "oom", "timeout", "skipped", "error"};
  return names.at(static_cast<std::size_t>(status));
}

std::string utc_now() {
  using namespace std::chrono;
  return utc_text(duration<double>(system_clock::now().time_since_epoch()).count());
}

std::string utc_text(double seconds) {
  using namespace std::chrono;
  const sys_time<duration<double>> moment{duration<double>(seconds)};
  return fmt::format("{:%FT%T}Z", floor<milliseconds>(moment));
}

void fail(CaseResult& result, std::string reason) {
  if (result.status != Status::ok)
    return;
  result.status = Status::wrong;
  result.reason = std::move(reason);
}
}  // namespace minitaw
