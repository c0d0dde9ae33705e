#include "record/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace minitaw::record {

namespace {

std::string describe(const Row& row) {
  return fmt::format("{}, {} ranks in groups {}, {} tokens", row.text("schedule"), row.integer("ranks"),
                     row.text("groups"), row.integer("seq"));
}

const Row* fastest(const std::vector<Row>& rows) {
  const Row* best = nullptr;
  for (const Row& row : rows)
    if (is_valid(row) && (best == nullptr || row.real("tokens_per_s") > best->real("tokens_per_s")))
      best = &row;
  return best;
}

std::string why_invalid(const CaseResult& result) {
  const deck::Case& c = result.settings;
  if (result.status != Status::ok)
    return fmt::format("{}{}{}", name_of(result.status), result.reason.empty() ? "" : ": ", result.reason);
  if (std::ssize(result.position) < c.repeats)
    return fmt::format("{} of {} repetitions", result.position.size(), c.repeats);
  if (std::ssize(result.seconds) < least_samples)
    return fmt::format("{} timed steps, at least {} are needed", result.seconds.size(), least_samples);
  if (result.counted_bytes != result.planned_bytes) return "the bytes counted are not those planned";
  return "";
}

std::string doubt_of(const CaseResult& result) {
  if (result.settings.warmup == 0) return "no warm-up";
  const double spread = summarise(result).spread;
  if (!(spread > widest_spread)) return "";
  return fmt::format("noisy: quartiles {:.0f} % of the median apart", 100 * spread);
}

/// What stands in brackets behind VALID.
std::string doubt_in(const Row& row) {
  if (!is_valid(row)) return "";
  const std::string& text = row.text("verdict");
  const std::size_t open = text.find('('), close = text.rfind(')');
  return open < close && close != std::string::npos ? text.substr(open + 1, close - open - 1) : "";
}

/// "2 of 6 cases, first case 3 (tawpipe, ...): reason"; empty if there is none.
template <class Holds, class Reason>
std::string first_of(const std::vector<Row>& rows, const Holds& holds, const Reason& reason) {
  const auto first = std::ranges::find_if(rows, holds);
  if (first == rows.end()) return "";
  return fmt::format("{} of {} cases, first case {} ({}): {}", std::ranges::count_if(rows, holds),
                     rows.size(), first->integer("case"), describe(*first), reason(*first));
}

std::string reason_in(const Row& row) {
  const std::string& text = row.text("verdict");
  return text.substr(std::min<std::size_t>(9, text.size()));
}

}  // namespace

std::string Verdict::text() const {
  if (!valid()) return "INVALID: " + reason;
  return doubt.empty() ? "VALID" : fmt::format("VALID ({})", doubt);
}

bool is_valid(const Row& row) { return row.text("verdict").starts_with("VALID"); }

Verdict verdict(const CaseResult& result) {
  const std::string reason = why_invalid(result);
  return {reason, reason.empty() ? doubt_of(result) : ""};
}

Verdict verdict(const std::vector<Row>& rows) {
  if (rows.empty()) return {"no case was run", ""};
  const auto invalid = [](const Row& row) { return !is_valid(row); };
  const auto doubtful = [](const Row& row) { return !doubt_in(row).empty(); };
  return {first_of(rows, invalid, reason_in), first_of(rows, doubtful, doubt_in)};
}

Verdict verdict(const std::vector<Row>& rows, const Missing& missing) {
  if (missing.cases == 0) return verdict(rows);
  return {fmt::format("{} case{} left, {}; the same command goes on with {}", missing.cases,
                      missing.cases == 1 ? " is" : "s are", missing.why, missing.cases == 1 ? "it" : "them"),
          ""};
}

std::string closing_text(const std::vector<Row>& rows, const Missing& missing) {
  const Row* best = fastest(rows);
  const std::string merit =
      best ? fmt::format("{:.6g} tokens/s ({})", best->real("tokens_per_s"), describe(*best)) : "none";
  return fmt::format("figure of merit: {}\nRESULT: {}\n", merit, verdict(rows, missing).text());
}

}  // namespace minitaw::record
