// SPDX-License-Identifier: BSD-3-Clause
#include "record/summary.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <map>
#include <sstream>
#include "base/error.hpp"
#include "record/layout.hpp"
#include "record/table.hpp"

namespace minitaw::record {
namespace {
[[noreturn]] void refuse(const std::string& part, const std::string& what) {
  throw std::runtime_error(fmt::format("/{} {}", part, what));
}

// Shapes.

/// Lengths of axes by their letters.
using Sizes = std::map<std::string, hsize_t>;

H5T_class_t class_of(const std::string& type) {
  if (type == "text" || type == "time")
    return H5T_STRING;
  return type == "real" || type == "amount" ? H5T_FLOAT : H5T_INTEGER;
}

/// How long an axis has to be: "20"; "*": anything.
std::string expected_length(const std::string& axis, const Sizes& sizes) {
  const auto known = sizes.find(axis);
  return known == sizes.end() ? axis : std::to_string(known->second);
}

using Shape = std::vector<hsize_t>;

bool is_empty(const Shape& shape) {
  return std::ranges::count(shape, hsize_t{0}) > 0;
}

/// A file, and what is known of its objects.
struct File {
  hid_t id;
  const h5::Objects& objects;
};

/// A group of the file.
struct Part {
  const File& file;
  std::string path;  ///< with a slash at its end

  [[nodiscard]] bool has(const std::string& name) const {
    return file.objects.contains(path + name);
  }

  /// The shape of a dataset; null if it may be missing, and is.
  [[nodiscard]] const Shape* shape_of(const Entry& e) const {
    const auto found = file.objects.find(path + e.path);
    if (found == file.objects.end() && !e.required)
      return nullptr;
    if (found == file.objects.end())
      refuse(path + e.path, "is missing");
    const auto& [type, shape] = found->second;
    if (type != class_of(e.type))
      refuse(path + e.path, fmt::format("is no dataset of type {}", e.type));
    if (shape.size() != e.axes.size())
      refuse(path + e.path, fmt::format("has {} dimensions, not {}", shape.size(), e.axes.size()));
    return &shape;
  }

  /// The length of a list that must be there.
  [[nodiscard]] hsize_t length_of(const std::string& name) const {
    return shape_of({name, "natural", "1", {"*"}})->at(0);
  }

  /// The value of a number that must be there.
  [[nodiscard]] std::int64_t number(const std::string& name) const {
    (void)shape_of({name, "natural", "1", {}});
    return h5::read<std::int64_t>(file.id, path + name, 0).values.at(0);
  }

  template <class T>
  [[nodiscard]] h5::Array<T> read(const std::string& name, std::size_t dimensions) const {
    return h5::read<T>(file.id, path + name, dimensions);
  }

  void check(const Entry& e, const Sizes& sizes) const {
    const Shape* const shape = shape_of(e);
    if (shape == nullptr || is_empty(*shape))
      return;  // nothing was measured
    for (std::size_t axis = 0; axis < shape->size(); ++axis)
      if (const std::string expected = expected_length(e.axes[axis], sizes);
          expected != "*" && expected != std::to_string((*shape)[axis]))
        refuse(path + e.path,
            fmt::format("has the length {} along axis {}, not {}", (*shape)[axis], axis, expected));
  }
};

/// How many members a group has, which must be named by these numbers.
int count_numbered(const File& file, const std::string& path, int first) {
  const auto found = file.objects.find(path);
  if (found == file.objects.end() || found->second.type != H5T_NO_CLASS)
    refuse(path, "is missing");
  const auto count = static_cast<int>(found->second.shape.at(0));
  for (int i = first; i < first + count; ++i)
    if (const std::string member = fmt::format("{}/{:04}", path, i); !file.objects.contains(member))
      refuse(member, "is missing");
  return count;
}

/// Returns how many ranks the job of a session had; 0: not known.
hsize_t check_session(const Part& session) {
  Sizes sizes;
  for (const Entry& e : layout().of_session)
    if (const Shape* shape = session.shape_of(e);
        shape != nullptr && e.axes == std::vector<std::string>{"J"}) {
      const hsize_t ranks = sizes.try_emplace("J", shape->at(0)).first->second;
      if (shape->at(0) != ranks)
        refuse(session.path + e.path,
            fmt::format("is of {} ranks, the session had {}", shape->at(0), ranks));
    }
  return sizes["J"];
}

/// Returns the ranks of the job of each session.
std::vector<hsize_t> check_sessions(const File& file) {
  std::vector<hsize_t> ranks = {check_session({file, "provenance/"})};
  for (int number = 1, later = count_numbered(file, "provenance/resumed", 1); number <= later;
      ++number)
    ranks.push_back(check_session({file, fmt::format("provenance/resumed/{:04}/", number)}));
  return ranks;
}

/// Returns whether the sizes "1+2" are of so many ranks.
bool are_groups(const std::string& text, std::int64_t ranks) {
  std::istringstream sizes(text + "+");
  std::int64_t sum = 0, size = 0;
  for (char plus = 0;
      sizes >> size && sizes.get(plus) && plus == '+' && size > 0 && size <= ranks - sum;)
    sum += size;
  return sum == ranks && sizes.peek() == std::char_traits<char>::eof();
}

/// `ranks`: of the job of each session.
Sizes sizes_of(const Part& c, const std::vector<hsize_t>& ranks) {
  const std::int64_t session = c.number("session"), of_case = c.number("settings/ranks");
  if (session < 0 || session >= std::ssize(ranks))
    refuse(c.path + "session",
        fmt::format("is {}, the file has {}", session, counted(std::ssize(ranks), "session")));
  const auto of_job = static_cast<std::int64_t>(ranks[static_cast<std::size_t>(session)]);
  if (of_case < 1 || (of_job > 0 && of_case > of_job))
    refuse(c.path + "settings/ranks",
        fmt::format("is {}, the job had {}", of_case, counted(of_job, "rank")));
  Sizes sizes = {{"P", static_cast<hsize_t>(of_case)},
      {"L", static_cast<hsize_t>(c.number("settings/layers"))},
      {"K", c.length_of("repetition")},
      {"R", c.length_of("position")}};
  if (c.has("timeline/rank"))
    sizes["E"] = c.length_of("timeline/rank");
  return sizes;
}

// Values.

bool is_of_type(const std::string& type, const Cell& cell) {
  if (const auto* number = std::get_if<std::int64_t>(&cell))
    return *number >= (type == "count"        ? 1
                          : type == "natural" ? 0
                          : type == "index"   ? -1
                                              : INT64_MIN);
  const auto* real = std::get_if<double>(&cell);
  return real == nullptr || type != "amount" || std::isnan(*real) ||
         (*real >= 0 && std::isfinite(*real));
}

/// Control characters could command the terminal on which a text is shown.
Cell printable(Cell cell) {
  if (auto* text = std::get_if<std::string>(&cell))
    std::ranges::replace_if(
        *text,
        [](char c) {
          return (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == 0x7f;
        },
        '?');
  return cell;
}

/// The column of all rows.
void read_column(const Part& summary, const Entry& e, std::size_t at, std::vector<Row>& rows) {
  summary.check(e, {{"C", rows.size()}});
  if (rows.empty())
    return;
  std::visit(
      [&]<class T>(const T&) {
        const std::vector<T> cells = summary.read<T>(e.path, 1).values;
        if (cells.size() != rows.size())
          refuse(summary.path + e.path, "has no value for each case");
        for (std::size_t r = 0; r < rows.size(); ++r)
          rows[r].columns[at].value = printable(cells[r]);
      },
      Cell(rows[0].columns[at].value));
  for (const Row& row : rows)
    if (!is_of_type(e.type, row.columns[at].value))
      refuse(summary.path + e.path,
          fmt::format(
              "is {} in case {}, which no result is", row.columns[at].text(), row.integer("case")));
}

bool same(const Cell& a, const Cell& b) {
  const auto *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  return a == b || (x != nullptr && y != nullptr && std::isnan(*x) && std::isnan(*y));
}

/// What a row shares with its case must be the same there.
void check_row(const Part& c, const Row& row) {
  for (const Column& column : row.columns) {
    const std::string name(column.in_case);
    if (name.empty() || !c.has(name))
      continue;
    const Cell there = std::visit(
        [&]<class T>(const T&) -> Cell { return printable(c.read<T>(name, 0).values.at(0)); },
        column.value);
    if (!same(there, column.value))
      refuse(c.path + name, "is not what /summary says of the case");
  }
}

/// A case is not valid because its file says so: what a verdict follows from must be there.
void check_valid(const Part& c, const Row& row) {
  if (!is_valid(row.text("verdict")))
    return;
  for (const Entry& e : layout().of_case)
    if (e.of_valid && is_empty(*c.shape_of(e)))
      refuse(c.path + e.path, "is empty, but the case is said to be valid");
  const bool counted_as_planned = c.read<std::uint64_t>("bytes/counted", 3).values ==
                                  c.read<std::uint64_t>("bytes/planned", 3).values;
  const auto seconds = c.read<double>("seconds", 2);
  std::vector<double> samples;
  const auto ranks = static_cast<std::ptrdiff_t>(seconds.shape[1]);
  for (auto at = seconds.values.begin(); at != seconds.values.end(); at += ranks)
    samples.push_back(*std::max_element(at, at + ranks));
  const double middle = row.real("median_s");
  const auto repetitions = static_cast<std::int64_t>(c.length_of("position"));
  const auto require = [&](bool holds, const char* what) {
    if (!holds)
      refuse(c.path + "verdict", fmt::format("says VALID, but {}", what));
  };
  require(row.text("status") == name_of(Status::ok), "the status is not ok");
  require(std::ssize(samples) >= least_samples, "there are too few steps");
  require(repetitions >= row.integer("repeats"), "repetitions are missing");
  require(counted_as_planned, "the bytes counted are not those planned");
  require(
      std::abs(median(samples) - middle) <= 1e-9 * middle, "the median is not that of the steps");
  require(row.real("tokens_per_s") > 0, "there is no rate");
}
}  // namespace

Summary read_summary(hid_t id) {
  const h5::Objects objects = h5::objects_of(id);
  const File file{id, objects};
  const std::vector<hsize_t> ranks = check_sessions(file);
  const Part summary{file, "summary/"};
  const hsize_t count = summary.length_of("case");
  if (const int cases = count_numbered(file, "cases", 0); static_cast<hsize_t>(cases) != count)
    refuse("cases", fmt::format("has {}, the summary {}", counted(cases, "case"), count));
  std::vector<Row> rows(count, empty_row());
  const std::vector<Entry>& columns = layout().columns;
  for (std::size_t at = 0; at < columns.size(); ++at)
    read_column(summary, columns[at], at, rows);
  for (std::size_t number = 0; number < rows.size(); ++number) {
    if (rows[number].integer("case") != static_cast<std::int64_t>(number))
      refuse("summary/case", "does not count up");
    const Part c{file, fmt::format("cases/{:04}/", number)};
    const Sizes sizes = sizes_of(c, ranks);
    for (Entry e : layout().of_case) {
      if (c.has("timeline") && e.path.starts_with("timeline/"))
        e.required = true;
      c.check(e, sizes);
    }
    check_row(c, rows[number]);
    if (const Row& row = rows[number]; !are_groups(row.text("groups"), row.integer("ranks")))
      refuse(c.path + "settings/groups",
          fmt::format("is no list of groups of {}", counted(row.integer("ranks"), "rank")));
    check_valid(c, rows[number]);
  }
  return {std::move(rows), static_cast<int>(ranks.size())};
}
}  // namespace minitaw::record
