// SPDX-License-Identifier: BSD-3-Clause
#include "record/layout.hpp"
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>
#include <sstream>
#include "base/error.hpp"

namespace minitaw::record {
extern const std::string_view layout_text;

namespace {
struct Layout {
  Row row;
  std::map<std::string, std::string> units;  ///< of the datasets of a case, by their paths in it
};

Cell empty_cell(const std::string& type) {
  if (type == "text" || type == "time")
    return std::string();
  if (type == "real" || type == "amount")
    return std::nan("");
  return std::int64_t{type == "index" ? -1 : 0};
}

/// Of a line, C++ needs the first four words.
Layout read_layout() {
  const std::string of_case = "cases/NNNN/";
  Layout found;
  std::set<std::string> scalars;  // of a case
  std::istringstream lines{std::string(layout_text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string path, type, units, shape;
    words >> path >> type >> units >> shape;
    const std::string name = path.substr(path.rfind('/') + 1);
    if (path.starts_with(of_case)) {
      path.erase(0, of_case.size());
      found.units[path] = units;
      if (shape == "-")
        scalars.insert(path);
    } else if (path.starts_with("setting/")) {
      found.row.columns.push_back({name, units, true, "settings/" + name, empty_cell(type)});
    } else if (path.starts_with("summary/")) {
      found.row.columns.push_back({name, units, false, "", empty_cell(type)});
    }
  }
  for (Column& column : found.row.columns)
    for (const std::string& path : {column.name, "verification/" + column.name})
      if (!column.is_setting && scalars.contains(path))
        column.in_case = path;
  return found;
}

const Layout& layout() {
  static const Layout all = read_layout();
  return all;
}
}  // namespace

const Row& empty_row() {
  return layout().row;
}

const std::string& units_in_case(const std::string& path) {
  const auto at = layout().units.find(path);
  if (at == layout().units.end())
    throw LogicError(fmt::format("layout.txt has no dataset cases/NNNN/{}", path));
  return at->second;
}
}  // namespace minitaw::record
