// SPDX-License-Identifier: BSD-3-Clause
#include "record/layout.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <sstream>
#include "base/error.hpp"

namespace minitaw::record {
extern const std::string_view layout_text;

namespace {
Entry entry_of(const std::string& line) {
  std::istringstream words(line);
  Entry found;
  std::string shape, presence;
  words >> found.path >> found.type >> found.units >> shape >> presence;
  found.required = presence == "required";
  found.of_valid = shape.ends_with('!');
  if (found.of_valid)
    shape.pop_back();
  std::istringstream axes(shape == "-" ? "" : shape);
  for (std::string axis; std::getline(axes, axis, ',');)
    found.axes.push_back(axis);
  return found;
}

/// Takes a folder from the begin of the path; false if it does not begin so.
bool take_folder(std::string& path, std::string_view folder) {
  if (!path.starts_with(folder))
    return false;
  path.erase(0, folder.size());
  return true;
}

/// A setting is a column, and a scalar of each case.
void add_setting(Layout& layout, Entry column) {
  Entry scalar = column;
  scalar.path = "settings/" + column.path;
  scalar.axes.clear();
  column.is_setting = true;
  column.in_case = scalar.path;
  layout.columns.push_back(std::move(column));
  layout.of_case.push_back(std::move(scalar));
}

void add(Layout& layout, Entry entry, const std::string& line) {
  if (take_folder(entry.path, "setting/"))
    add_setting(layout, std::move(entry));
  else if (take_folder(entry.path, "summary/"))
    layout.columns.push_back(std::move(entry));
  else if (take_folder(entry.path, "provenance/"))
    layout.of_session.push_back(std::move(entry));
  else if (take_folder(entry.path, "cases/NNNN/"))
    layout.of_case.push_back(std::move(entry));
  else
    throw LogicError(fmt::format("layout.txt: \"{}\"", line));
}

const Entry* find(const std::vector<Entry>& entries, const std::string& path) {
  const auto at = std::ranges::find(entries, path, &Entry::path);
  return at == entries.end() ? nullptr : &*at;
}

Layout read_layout() {
  Layout found;
  std::istringstream lines{std::string(layout_text)};
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line[0] != '#')
      add(found, entry_of(line), line);
  for (Entry& column : found.columns)
    for (const std::string folder : {"", "verification/"})
      if (const Entry* same = find(found.of_case, folder + column.path);
          !column.is_setting && same != nullptr && same->axes.empty())
        column.in_case = folder + column.path;
  return found;
}
}  // namespace

const Layout& layout() {
  static const Layout all = read_layout();
  return all;
}

const std::string& units_in_case(const std::string& path) {
  const Entry* entry = find(layout().of_case, path);
  if (entry == nullptr)
    throw LogicError(fmt::format("layout.txt has no dataset cases/NNNN/{}", path));
  return entry->units;
}

Cell empty_cell(const Entry& column) {
  if (column.type == "text" || column.type == "time")
    return std::string();
  if (column.type == "real" || column.type == "amount")
    return std::nan("");
  return std::int64_t{column.type == "index" ? -1 : 0};
}
}  // namespace minitaw::record
