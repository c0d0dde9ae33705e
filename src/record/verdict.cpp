#include "record/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace minitaw::record {

namespace {

std::string describe(const Row& row) {
  return fmt::format("{}, {} ranks in groups {}, {} tokens", row.text("schedule"), row.integer("ranks"),
                     row.text("groups"), row.integer("seq"));
}

bool is_valid(const Row& row) { return row.text("verdict") == "VALID"; }

const Row* fastest(const std::vector<Row>& rows) {
  const Row* best = nullptr;
  for (const Row& row : rows)
    if (is_valid(row) && (best == nullptr || row.real("tokens_per_s") > best->real("tokens_per_s")))
      best = &row;
  return best;
}

}  // namespace

Verdict verdict(const CaseResult& result) {
  if (result.status != Status::ok)
    return {fmt::format("{}{}{}", name_of(result.status), result.reason.empty() ? "" : ": ", result.reason)};
  if (std::ssize(result.seconds) < least_samples)
    return {fmt::format("{} timed steps, at least {} are needed", result.seconds.size(), least_samples)};
  if (result.counted_bytes != result.planned_bytes) return {"the bytes counted are not those planned"};
  return {};
}

Verdict verdict(const std::vector<Row>& rows) {
  if (rows.empty()) return {"no case was run"};
  const auto bad = std::ranges::count_if(rows, [](const Row& row) { return !is_valid(row); });
  if (bad == 0) return {};
  const Row& first = *std::ranges::find_if(rows, [](const Row& row) { return !is_valid(row); });
  const std::string reason = first.text("verdict");
  return {fmt::format("{} of {} cases, first case {} ({}): {}", bad, rows.size(), first.integer("case"),
                      describe(first), reason.substr(std::min<std::size_t>(9, reason.size())))};
}

std::string closing_text(const std::vector<Row>& rows) {
  const Row* best = fastest(rows);
  const std::string merit =
      best ? fmt::format("{:.6g} tokens/s ({})", best->real("tokens_per_s"), describe(*best)) : "none";
  return fmt::format("figure of merit: {}\nRESULT: {}\n", merit, verdict(rows).text());
}

}  // namespace minitaw::record
