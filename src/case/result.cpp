// SPDX-License-Identifier: BSD-3-Clause
#include "case/result.hpp"
#include <algorithm>
#include <chrono>
#include <fmt/chrono.h>
#include <fmt/format.h>

namespace minitaw {
std::string name_of(Status status) {
  constexpr std::array names = {"ok", "wrong", "oom", "timeout", "skipped", "error"};
  return names.at(static_cast<std::size_t>(status));
}

Values one(const Cell& cell) {
  return std::visit([](const auto& value) -> Values { return std::vector{value}; }, cell);
}

const Dataset* CaseResult::find(std::string_view path) const {
  const auto at = std::ranges::find(found, path, &Dataset::path);
  return at == found.end() ? nullptr : &*at;
}

Dataset* CaseResult::find(std::string_view path) {
  const auto at = std::ranges::find(found, path, &Dataset::path);
  return at == found.end() ? nullptr : &*at;
}

std::string utc_now(bool to_millisecond) {
  using namespace std::chrono;
  const auto now = system_clock::now();
  if (to_millisecond)
    return fmt::format("{:%FT%T}Z", floor<milliseconds>(now));
  return fmt::format("{:%FT%T}Z", floor<seconds>(now));
}

void fail(CaseResult& result, std::string reason) {
  if (result.status != Status::ok)
    return;
  result.status = Status::wrong;
  result.reason = std::move(reason);
}
}  // namespace minitaw
