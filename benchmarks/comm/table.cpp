#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "comm/transport.hpp"
#include "record/quantile.hpp"

namespace minitaw::bench {
namespace {

using record::median;

constexpr std::array titles = {"groups",   "where",      "operation",  "bytes",   "what",
                               "ours, ms", "best, ms",   "GB/s",       "raw, ms", "best, ms",
                               "GB/s",     "ours / raw", "of the best"};
using Row = std::array<std::string, titles.size()>;

double bytes_of(const Measured& m) {
  return static_cast<double>(m.size.elements) * static_cast<double>(comm::bytes_of(m.size.scalar));
}

double best(const std::vector<double>& values) { return *std::ranges::min_element(values); }

std::string rate(const Measured& m, double seconds) {
  return fmt::format("{:.2f}", bytes_of(m) / seconds / 1e9);
}
std::string ms(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

Row row_of(const Measured& m) {
  Row row = {m.size.groups.text(),
             m.place,
             std::string(name_of(m.operation)),
             fmt::format("{:.0f}", bytes_of(m)),
             m.size.what,
             ms(median(m.ours)),
             ms(best(m.ours)),
             rate(m, median(m.ours)),
             "-",
             "-",
             "-",
             "-",
             "-"};
  if (m.raw.empty()) return row;
  const std::array more = {ms(median(m.raw)), ms(best(m.raw)), rate(m, median(m.raw)),
                           fmt::format("{:.2f}", median(m.ours) / median(m.raw)),
                           fmt::format("{:.2f}", best(m.ours) / best(m.raw))};
  std::ranges::copy(more, row.begin() + 8);
  return row;
}

}  // namespace

std::string plain_table(const std::vector<Measured>& results) {
  std::vector<Row> rows(1);
  std::ranges::copy(titles, rows.front().begin());
  for (const Measured& m : results) rows.push_back(row_of(m));
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const auto longest = std::ranges::max(rows, {}, [c](const Row& r) { return r[c].size(); })[c].size();
      line += fmt::format("{:<{}}  ", row[c], longest);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string markdown_table(const std::vector<Measured>& results) {
  std::string text = fmt::format("| {} |\n|", fmt::join(titles, " | "));
  for (std::size_t c = 0; c < titles.size(); ++c) text += "---|";
  for (const Measured& m : results) text += fmt::format("\n| {} |", fmt::join(row_of(m), " | "));
  return text + "\n";
}

std::string json_text(const std::vector<Measured>& results) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Measured& m : results)
    all.push_back({{"groups", m.size.groups.text()},
                   {"where", m.place},
                   {"operation", name_of(m.operation)},
                   {"bytes", static_cast<std::int64_t>(bytes_of(m))},
                   {"what", m.size.what},
                   {"transport", m.backend},
                   {"raw", m.raw_backend},
                   {"ours_s", m.ours},
                   {"raw_s", m.raw}});
  return all.dump(1) + "\n";
}

}  // namespace minitaw::bench
