// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include "record/table.hpp"

// CLI11 costs six seconds of compiling wherever it is included: only the files that add options do
// so.
namespace CLI {
class App;
}

namespace minitaw::app {
struct Invocation {
  int& argc;
  char**& argv;
  int code =
      0;  ///< to exit with; the callback of the verb that is found on the command line sets it

  [[nodiscard]] std::vector<std::string> arguments() const { return {argv, argv + argc}; }
};

/// Adds all verbs of this program.
void add_verbs(CLI::App& app, Invocation& invocation);
// Each verb has a file <verb>.cpp, which defines the function that adds it to the command line.
void add_run(CLI::App& app, Invocation& invocation);
void add_verify(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_show(CLI::App& app, Invocation& invocation);
void add_help(CLI::App& app, Invocation& invocation);

[[nodiscard]] std::vector<std::string> verb_names(const CLI::App& app);

/// The arguments that all verbs on decks share: DECK and --set.
struct DeckOptions {
  std::string path;
  std::vector<std::string> overrides;
};

void add_deck(CLI::App& verb, DeckOptions& options);
/// An option for a size of memory: "80G", "141GiB", "512M" or bytes; steps of 1024.
void add_memory(CLI::App& verb,
    const std::string& name,
    std::optional<std::uint64_t>& bytes,
    const std::string& help);
/// An option for FLOP/s: "400T" or a plain number; steps of 1000.
void add_flops(
    CLI::App& verb, const std::string& name, double& per_second, const std::string& help);

/// How the user wants tables: fitted to the terminal, or else.
struct TableOptions {
  bool wide = false;
  std::vector<std::string> columns;
};

void add_table(CLI::App& verb, TableOptions& options, bool with_columns);
/// Columns of the terminal that shows standard output, also behind mpiexec or srun; 0: a file or
/// pipe does.
[[nodiscard]] int terminal_width();
/// Of a table, behind whose lines so many characters are needed.
[[nodiscard]] record::TableLayout layout_of(const TableOptions& options, int behind = 0);
/// Characters of the longest name: a table whose rows are printed as they come needs its widths
/// before.
[[nodiscard]] int longest(const std::vector<std::string>& names);
/// The text with lines of at most so many characters (0: any), broken at spaces and indented alike.
[[nodiscard]] std::string wrapped(const std::string& text, int width);

/// The power of 1024 that leaves a number below `most`.
struct ByteUnit {
  std::string name;
  double bytes;
};

[[nodiscard]] ByteUnit byte_unit(double bytes, double most);
/// "1.50 GiB", with a unit that leaves a readable number.
[[nodiscard]] std::string size_text(std::uint64_t bytes);
/// One line on standard error: "minitaw: <sentence>".
void print_error(std::string sentence, bool one_line = true);
using Json = nlohmann::ordered_json;
/// Indented, with a newline at the end.
[[nodiscard]] std::string json_text(const Json& json);
/// Writes to standard output and makes sure that all of it arrives: data that are silently cut are
/// worse than none. Throws InputError if it cannot be written; a reader that has seen enough (head)
/// is no error.
void write_stdout(const std::string& text);
}  // namespace minitaw::app
