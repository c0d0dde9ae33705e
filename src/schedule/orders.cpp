// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/orders.hpp"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <ranges>
#include <regex>
#include <string_view>
#include <utility>
#include "base/error.hpp"

namespace minitaw::schedule {
namespace {
constexpr std::string_view letters = "FBIW";
constexpr std::array kind_of = {
    Kind::forward, Kind::backward, Kind::backward_input, Kind::backward_weight};
constexpr std::string_view rule = "each has F, then B, or I and later W";

class Reader {
public:
  explicit Reader(const std::string& name) : name_(name) {}

  Orders read(std::string text) {
    std::erase_if(text, [](unsigned char c) { return c != '\n' && (c <= ' ' || c > '~'); });
    text.erase(text.find_last_not_of('\n') + 1);
    if (text.empty())
      text = "\n";
    for (const auto row : std::views::split(text, '\n')) {
      orders_.visits.emplace_back();
      ++row_;
      for (const auto cell : std::views::split(row, ',')) {
        ++column_;
        read_cell({cell.begin(), cell.end()});
      }
      column_ = 0;
      if (orders_.visits.back().empty())
        fail("a rank that computes nothing; give it a stage");
    }
    check_completeness();
    check_progress();
    return std::move(orders_);
  }

private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> what, Args&&... args) const {
    throw InputError("schedule: {}, row {}{}: {}",
        name_,
        row_,
        column_ > 0 ? fmt::format(", column {}", column_) : "",
        fmt::format(what, std::forward<Args>(args)...));
  }

  void read_cell(std::string_view cell) {
    constexpr std::string_view end = ")OVERLAP_F_B";
    if (cell.starts_with('(') && cell.ends_with(end))
      cell = cell.substr(1, cell.size() - end.size() - 1);
    for (const auto part : std::views::split(cell, ';'))
      read_action({part.begin(), part.end()});
  }

  void read_action(const std::string& text) {
    static const std::regex form(
        "([0-9]{1,6})(?:([FBIW])([0-9]{1,6})|(?:(?:WAIT_)?(?:SEND|RECV)_[FB]|UNSHARD|RESHARD|("
        "?:WAIT_)?REDUCE_GRAD)[0-9]*)");
    std::smatch parts;
    if (!std::regex_match(text, parts, form))
      fail(
          "\"{:.40}\" is no action; write stage, F, I, W or B, micro-batch, for example 0F0", text);
    if (parts[2].matched)
      add(std::stoi(parts[1]), *parts[2].first, std::stoi(parts[3]));
  }

  void add(int stage, char letter, int micro_batch) {
    if (const int row = rows_.try_emplace(stage, row_).first->second; row != row_)
      fail("stage {} is in row {} too; a stage has one rank", stage, row);
    std::string& done = done_[{stage, micro_batch}];
    if (constexpr std::array known = {"F", "FB", "FI", "FIW"};
        std::ranges::count(known, done + letter) == 0)
      fail("{}{}{} follows \"{}\" of this stage and micro-batch; {}",
          stage,
          letter,
          micro_batch,
          done,
          rule);
    done += letter;
    orders_.visits.back().push_back(
        {column_ - 1, stage, micro_batch, kind_of.at(letters.find(letter))});
    orders_.micro_batches = std::max(orders_.micro_batches, micro_batch + 1);
  }

  void check_completeness() {
    for (const auto& [stage, row] : rows_) {
      if (stage != orders_.stages())
        fail("no rank has stage {}; they count from 0", orders_.stages());
      orders_.rank_of.push_back(row - 1);
    }
    for (int s = 0; s < orders_.stages(); ++s)
      for (int m = 0; m < orders_.micro_batches; ++m) {
        const std::string& done = done_[{s, m}];
        row_ = orders_.rank_of[s] + 1;
        if (done.size() < 2 || done == "FI")
          fail("stage {} has \"{}\" of micro-batch {}, from 0; {}", s, done, m, rule);
      }
  }

  void check_progress() {
    const Visit* const stuck = set_ticks(orders_);  // its tick is its column still
    if (stuck == nullptr)
      return;
    row_ = orders_.rank_of[stuck->shard] + 1;
    column_ = stuck->tick + 1;
    fail("{}{}{} waits for stage {}, which waits for what comes later in this row: a deadlock",
        stuck->shard,
        letters[std::ranges::find(kind_of, stuck->kind) - kind_of.begin()],
        stuck->micro_batch,
        stuck->shard + (stuck->backward() ? 1 : -1));
  }

  std::string name_;
  Orders orders_;
  int row_ = 0, column_ = 0;                         // from 1
  std::map<int, int> rows_;                          // by stage
  std::map<std::pair<int, int>, std::string> done_;  // by stage and micro-batch: "FI"
};
}  // namespace

const Visit* set_ticks(Orders& orders) {
  // When each visit but W ends, by direction, stage and micro-batch; 0: not known yet.
  using Ends = std::vector<std::vector<int>>;
  const Ends unknown(orders.stages(), std::vector<int>(orders.micro_batches));
  std::array<Ends, 2> ends = {unknown, unknown};
  std::vector<std::size_t> next(orders.visits.size());
  std::vector<int> free(orders.visits.size());
  // When its input is there: -1 if that is not known yet.
  const auto input_at = [&](const Visit& visit) {
    const int from = visit.shard + (visit.backward() ? 1 : -1);
    if (visit.kind == Kind::backward_weight || from < 0 || from == orders.stages())
      return 0;
    const int end = ends[visit.backward() ? 1 : 0][from][visit.micro_batch];
    return end > 0 ? end : -1;
  };
  for (bool moved = true; std::exchange(moved, false);)
    for (const int r : indices(next))
      for (; next[r] < orders.visits[r].size(); ++next[r], moved = true) {
        Visit& visit = orders.visits[r][next[r]];
        const int input = input_at(visit);
        if (input < 0)
          break;
        visit.tick = std::max(input, free[r]);
        free[r] = visit.tick + 1;
        if (visit.kind != Kind::backward_weight)
          ends[visit.backward() ? 1 : 0][visit.shard][visit.micro_batch] = free[r];
      }
  for (const int r : indices(next))
    if (next[r] < orders.visits[r].size())
      return &orders.visits[r][next[r]];
  return nullptr;
}

Orders read_torch_csv(const std::string& text, const std::string& name) {
  return Reader(name).read(text);
}
}  // namespace minitaw::schedule
