// SPDX-License-Identifier: BSD-3-Clause
#include "record/layout.hpp"
#include <cmath>
#include <fmt/format.h>
#include <map>
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

/// Of a line, C++ needs the first three words.
Layout read_layout() {
  const std::string of_case = "cases/NNNN/";
  Layout found;
  std::istringstream lines{std::string(layout_text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string path, type, units;
    words >> path >> type >> units;
    const std::string name = path.substr(path.rfind('/') + 1);
    const bool is_setting = path.starts_with("setting/");
    if (path.starts_with(of_case))
      found.units[path.substr(of_case.size())] = units;
    else if (is_setting || path.starts_with("summary/"))
      found.row.columns.push_back({name, units, is_setting, empty_cell(type)});
  }
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
