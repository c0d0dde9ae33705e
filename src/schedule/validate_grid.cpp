#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {

// A failure in a large program shows its surroundings only.
constexpr int most_ranks = 12;
constexpr int most_ticks = 8;

struct Range {
  int begin = 0, end = 0;

  [[nodiscard]] bool has(int i) const { return begin <= i && i < end; }
};

/// At most `most` numbers of `whole`, with `centre` in the middle where possible.
Range around(Range whole, int centre, int most) {
  if (whole.end - whole.begin <= most) return whole;
  const int begin = std::clamp(centre - most / 2, whole.begin, whole.end - most);
  return {begin, begin + most};
}

bool is_main(Kind kind) {
  return kind == Kind::forward || kind == Kind::backward || kind == Kind::backward_input ||
         kind == Kind::backward_weight;
}

Range ticks_of(const Program& program) {
  Range range{0, 0};
  for (const RankProgram& rank : program.ranks)
    for (const Action& a : rank.actions)
      range = {std::min(range.begin, a.tick), std::max(range.end, a.tick + 1)};
  return range;
}

class Grid {
public:
  Grid(const Program& program, const std::optional<Violation>& mark) : program_(program), mark_(mark) {
    const Range all_ranks{0, static_cast<int>(program.ranks.size())};
    ranks_ = mark ? around(all_ranks, std::max(mark->rank, 0), most_ranks) : all_ranks;
    const Range all_ticks = ticks_of(program);
    ticks_ = mark ? around(all_ticks, marked_tick(), most_ticks) : all_ticks;
    for (int r = ranks_.begin; r < ranks_.end; ++r) rows_.push_back(row(r));
  }

  [[nodiscard]] std::string text() const {
    std::vector<std::size_t> widths;
    for (int t = ticks_.begin; t < ticks_.end; ++t) widths.push_back(fmt::format("{}", t).size());
    for (const auto& row : rows_)
      for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    std::string text = fmt::format("{:<8}", "tick");
    for (std::size_t c = 0; c < widths.size(); ++c)
      text += fmt::format("| {:<{}} ", ticks_.begin + static_cast<int>(c), widths[c]);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      text += line(ranks_.begin + static_cast<int>(r), rows_[r], widths);
    return text + "\n";
  }

private:
  [[nodiscard]] int marked_tick() const {
    return mark_->rank >= 0 && mark_->action >= 0 ? program_.ranks[mark_->rank].actions[mark_->action].tick
                                                  : 0;
  }

  [[nodiscard]] bool marked(int rank, int action) const {
    return mark_ && mark_->rank == rank && mark_->action == action;
  }

  [[nodiscard]] std::vector<std::string> row(int rank) const {
    std::vector<std::string> cells(ticks_.end - ticks_.begin);
    const auto& actions = program_.ranks[rank].actions;
    for (int i = 0; i < static_cast<int>(actions.size()); ++i) {
      const Action& a = actions[i];
      if (!ticks_.has(a.tick) || (!is_main(a.kind) && !marked(rank, i))) continue;
      std::string& cell = cells[a.tick - ticks_.begin];
      cell += fmt::format("{}{}", cell.empty() ? "" : " ", name_of(a.kind));
      if (a.shard >= 0) cell += fmt::format(" s{}", a.shard);
      if (a.micro_batch >= 0) cell += fmt::format(" m{}", a.micro_batch);
      if (marked(rank, i)) cell += " <--";
    }
    return cells;
  }

  [[nodiscard]] std::string line(int rank, const std::vector<std::string>& cells,
                                 const std::vector<std::size_t>& widths) const {
    std::string text = fmt::format("\n{:<8}", fmt::format("r{}{}", rank, marked(rank, -1) ? " <--" : ""));
    for (std::size_t c = 0; c < cells.size(); ++c) text += fmt::format("| {:<{}} ", cells[c], widths[c]);
    return text;
  }

  const Program& program_;
  const std::optional<Violation>& mark_;
  Range ranks_, ticks_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace

std::string grid(const Program& program, const std::optional<Violation>& mark) {
  return Grid(program, mark).text();
}

}  // namespace minitaw::schedule
