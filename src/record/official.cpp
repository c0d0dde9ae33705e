#include "record/official.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "deck/settings.hpp"
#include "record/table.hpp"
#include "record/verdict.hpp"

namespace minitaw::record {

namespace {

/// A size of the rules: one row, for what is fixed, and its sequence lengths.
struct Size {
  std::string name;
  Row row;
  std::set<std::int64_t> lengths;
};

std::vector<Size> make_sizes() {
  std::vector<Size> sizes;
  for (const NamedDeck& named : acceptance_decks()) {
    const deck::Job job{8, {8}, true};  // any: ranks and groups are free
    const std::vector<Row> rows = preview(deck::make_deck(named.text, named.name, {}, job).cases);
    Size size{named.name, rows.front(), {}};
    for (const Row& row : rows) size.lengths.insert(row.integer("seq"));
    sizes.push_back(std::move(size));
  }
  return sizes;
}

constexpr std::string_view model_columns[] = {"layers", "hidden", "heads", "kv_heads", "vocab", "ffn"};
constexpr std::string_view fixed_columns[] = {"dtype", "data", "seed", "learning_rate",
                                              "micro_batch_per_rank"};
constexpr std::string_view counted_columns[] = {"steps", "repeats", "warmup"};

const Size* size_of(const Row& row) {
  static const std::vector<Size> sizes = make_sizes();
  for (const Size& size : sizes)
    if (std::ranges::all_of(model_columns,
                            [&](std::string_view c) { return row.cell(c) == size.row.cell(c); }))
      return &size;
  return nullptr;
}

std::int64_t sequences(const Row& row) { return row.integer("micro_batch") * row.integer("micro_batches"); }

/// What of the rules the case does not keep; empty: nothing.
std::string broken_rule(const Row& row, const Size& size) {
  if (size_of(row) != &size) return fmt::format("its model is not that of {}", size.name);
  for (const std::string_view column : fixed_columns)
    if (row.cell(column) != size.row.cell(column))
      return fmt::format("{} is \"{}\", {} has \"{}\"", column, to_text(row.cell(column)), size.name,
                         to_text(size.row.cell(column)));
  for (const std::string_view column : counted_columns)
    if (row.integer(column) < size.row.integer(column))
      return fmt::format("{} = {}, {} needs {}", column, row.integer(column), size.name,
                         size.row.integer(column));
  if (!size.lengths.contains(row.integer("seq")))
    return fmt::format("seq = {} is no length of {}", row.integer("seq"), size.name);
  if (sequences(row) != sequences(size.row))
    return fmt::format("{} sequences in a step, {} has {}", sequences(row), size.name, sequences(size.row));
  if (row.text("verdict") != "VALID") return row.text("verdict");
  const double timed = row.real("median_s") * static_cast<double>(row.integer("samples"));
  if (size.name != "small" && !(timed >= least_timed_seconds))
    return fmt::format("{:.3g} s of timed steps, {} are needed: raise steps", timed, least_timed_seconds);
  return "";
}

std::string broken_session(const std::vector<Provenance>& sessions) {
  for (const Provenance& p : sessions) {
    if (p.git_hash.empty() || p.git_hash == "unknown") return "the commit of the program is not known";
    if (p.git_hash.ends_with("-dirty"))
      return fmt::format("the sources differ from their commit ({})", p.git_hash);
    if (p.git_hash != sessions.front().git_hash) return "its sessions are of different commits";
    if (p.devices.empty() || p.command.empty() || p.deck.empty()) return "its provenance is not complete";
  }
  return sessions.empty() ? "it says nothing of where it comes from" : "";
}

std::optional<Best> best_of(const std::vector<Row>& rows, std::int64_t seq) {
  std::optional<Best> best;
  for (const Row& row : rows) {
    const double seconds = row.real("median_s");
    if (row.integer("seq") != seq || !is_valid(row) || (best && best->seconds <= seconds)) continue;
    best = Best{seq, static_cast<double>(sequences(row) * seq), seconds, row.text("schedule")};
  }
  return best;
}

std::string why_not(const std::vector<Row>& rows, const Size& size, const Official& found) {
  for (const Row& row : rows)
    if (const std::string rule = broken_rule(row, size); !rule.empty())
      return fmt::format("case {}: {}", row.integer("case"), rule);
  if (found.bests.empty())
    return fmt::format("{} has the lengths {}, not all of them are here", size.name,
                       fmt::join(size.lengths, ", "));
  return "";
}

}  // namespace

double Official::rate() const {
  double tokens = 0, seconds = 0;
  for (const Best& best : bests) {
    tokens += best.tokens;
    seconds += best.seconds;
  }
  return tokens / seconds;
}

std::string Official::text() const {
  std::string text =
      yes() ? fmt::format("official: yes ({})\n", size) : fmt::format("official: no: {}\n", reason);
  if (bests.empty()) return text;
  for (const Best& best : bests)
    text += fmt::format("# {} tokens: {:.6g} tokens in {:.6g} s ({})\n", best.seq, best.tokens, best.seconds,
                        best.schedule);
  return text + fmt::format("{} of {}: {:.6g} tokens/s\n", yes() ? "rate" : "estimate", size, rate());
}

Official official(const std::vector<Row>& rows, const std::vector<Provenance>& sessions) {
  Official found;
  const Size* size = rows.empty() ? nullptr : size_of(rows.front());
  if (size == nullptr) {
    found.reason = rows.empty() ? "no case was run" : "its model is that of none of small, medium, large";
    return found;
  }
  found.size = size->name;
  for (const std::int64_t seq : size->lengths)
    if (const std::optional<Best> best = best_of(rows, seq)) found.bests.push_back(*best);
  if (found.bests.size() != size->lengths.size()) found.bests.clear();
  found.reason = why_not(rows, *size, found);
  if (found.reason.empty()) found.reason = broken_session(sessions);
  return found;
}

}  // namespace minitaw::record
