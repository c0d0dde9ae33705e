// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <nlohmann/json_fwd.hpp>
#include "base/table.hpp"
#include "case/case.hpp"

/// Texts and JSON that verbs write.
namespace minitaw::app {
using Json = nlohmann::ordered_json;
struct Invocation;

/// Sets a field of an object: "idle.share" is field "share" of its object "idle". NaN is null.
void put(Json& object, std::string_view name, const Cell& cell);

/// Sets what an entry has in the columns with names, as base/table.hpp says.
template <class Entry>
void put(Json& object, const std::vector<TableColumn<Entry>>& columns, const Entry& entry) {
  for (const TableColumn<Entry>& column : columns)
    if (!column.name.empty())
      put(object, column.name, column.value(entry));
}

/// "2+1+3", and "16x8" for many equal ones.
std::string groups_text(const topology::Groups& groups);
/// A setting of a case, by its name in a deck.
std::string setting_text(const Case& c, const std::string& name);
/// Names of the settings in which cases differ.
std::vector<std::string> varying_settings(const std::vector<Case>& cases);

/// A column of a setting of entries that have `asked`, a case.
template <class Entry>
TableColumn<Entry> setting_column(const std::string& name) {
  return {.title = name,
      .value = [name](const Entry& entry) { return setting_text(entry.asked, name); }};
}

/// The settings of a case as results have them, its identity, and F and B as lists.
Json settings_json(const Case& c);
/// Writes the object of --json, indented: program, schema and command, then `said`.
void write_json(const Invocation& invocation, const Json& said);
/// Writes to standard output at once. Returns why not all of it has arrived; empty: it has.
[[nodiscard]] std::string try_stdout(const std::string& text);
/// The same; throws InputError: data that are silently cut are worse than none. A reader that has
/// seen enough (head) ends the program by SIGPIPE, without a word, as it ends other programs.
void write_stdout(const std::string& text);
/// One line on standard error: "minitaw: <sentence>". Never throws.
void print_error(std::string sentence, bool one_line = true);

/// The power of 1024 that leaves a number below `most`.
struct ByteUnit {
  std::string name;
  double bytes;
};

ByteUnit byte_unit(double bytes, double most);
/// "1.50 GiB", with a unit that leaves a readable number.
std::string size_text(std::uint64_t bytes);
}  // namespace minitaw::app
