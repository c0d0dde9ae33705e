// SPDX-License-Identifier: BSD-3-Clause
#include "verb.hpp"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/error.hpp"
#include "cli/cli11.hpp"

namespace minitaw::app {
std::vector<std::string> verb_names(const CLI::App& app) {
  const auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  return list_of(verbs, [](const CLI::App* verb) { return verb->get_name(); });
}

void add_deck(CLI::App& verb, DeckOptions& options) {
  verb.add_option("DECK", options.path, "TOML file that says what to run (minitaw help keys)")
      ->required();
  cli::add_overrides(verb, options.overrides);
}

namespace {
using Units = std::map<std::string, double>;

/// A number from `least` to 1e18, with one of the units or without.
double parse_quantity(const std::string& option,
    const std::string& text,
    const Units& units,
    double least,
    const std::string& expected) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  const auto unit = units.find(std::string(rest, end));
  if (unit != units.end())
    value *= unit->second;
  if (code != std::errc() || (unit == units.end() && rest != end) ||
      !(value >= least && value <= 1e18))
    throw InputError(fmt::format("{}: \"{}\" is not a {}", option, text, expected));
  return value;
}

/// Columns of the terminal that is open as `file`; 0: it is none.
int width_of(const std::string& file) {
  const int open_file = open(file.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK);
  if (open_file < 0)
    return 0;
  winsize size{};
  const bool terminal = isatty(open_file) != 0 && ioctl(open_file, TIOCGWINSZ, &size) == 0;
  close(open_file);
  return terminal ? size.ws_col : 0;
}
}  // namespace

void add_memory(CLI::App& verb,
    const std::string& name,
    std::optional<std::uint64_t>& bytes,
    const std::string& help) {
  constexpr double K = 1024, M = K * K, G = K * M, T = K * G;
  static const Units units = {
      {"K", K}, {"M", M}, {"G", G}, {"T", T}, {"KiB", K}, {"MiB", M}, {"GiB", G}, {"TiB", T}};
  const auto store = [name, &bytes](const std::string& text) {
    bytes = static_cast<std::uint64_t>(
        parse_quantity(name, text, units, K, "memory that holds a model; write for example 80G"));
  };
  verb.add_option_function<std::string>(name, store, help)->type_name("SIZE");
}

void add_flops(
    CLI::App& verb, const std::string& name, double& per_second, const std::string& help) {
  const auto store = [name, &per_second](const std::string& text) {
    static const Units units = {{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};
    per_second =
        parse_quantity(name, text, units, 1e3, "rate that a device has; write for example 400T");
  };
  verb.add_option_function<std::string>(name, store, help)->type_name("RATE");
}

void add_table(CLI::App& verb, TableOptions& options, bool with_columns) {
  CLI::Option* wide = verb.add_flag(
      "--wide", options.wide, "all columns, on a terminal too, where else a line is fitted to it");
  if (with_columns)
    verb.add_option("--columns",
            options.columns,
            "these columns of the table or the summary: step,memory,cv")
        ->delimiter(',')
        ->type_name("NAMES")
        ->excludes(wide);
}

int terminal_width() {
  if (isatty(STDOUT_FILENO) != 0)
    return width_of("/proc/self/fd/1");
  constexpr std::string_view launchers[] = {"mpiexec", "mpirun", "srun", "prterun", "orterun"};
  std::string process = "self";
  for (int up = 0; up < 8; ++up) {
    std::ifstream stat("/proc/" + process + "/stat");
    std::string line;
    std::getline(stat, line);
    const std::size_t begin = line.find('('), end = line.rfind(')');
    if (begin == line.npos || end == line.npos)
      return 0;
    const std::string name = line.substr(begin + 1, end - begin - 1);
    if (std::ranges::any_of(
            launchers, [&](std::string_view launcher) { return name.starts_with(launcher); }))
      return width_of("/proc/" + process + "/fd/1");
    char state = 0;
    std::istringstream(line.substr(end + 1)) >> state >> process;  // its parent
  }
  return 0;
}

record::TableLayout layout_of(const TableOptions& options, int behind) {
  const int width = options.wide ? 0 : terminal_width();
  return {width > 0 ? std::max(1, width - behind) : 0, options.columns};
}

int longest(const std::vector<std::string>& names) {
  std::size_t most = 0;
  for (const std::string& name : names)
    most = std::max(most, name.size());
  return static_cast<int>(most);
}

std::string wrapped(const std::string& text, int width) {
  std::string all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); all += line + "\n") {
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    while (width > 0 && line.size() > static_cast<std::size_t>(width)) {
      std::size_t end = line.rfind(' ', static_cast<std::size_t>(width));
      if (end == line.npos || end <= indent)
        end = line.find(' ', indent);  // a word that is longer
      if (end == line.npos)
        break;
      all += line.substr(0, end) + "\n";
      line.replace(0, end + 1, indent, ' ');
    }
  }
  return all;
}

ByteUnit byte_unit(double bytes, double most) {
  constexpr const char* names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int power = 0;
  for (double left = bytes; left >= most && power < 5; ++power)
    left /= 1024;
  return {names[power], std::pow(1024, power)};
}

std::string size_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  const ByteUnit unit = byte_unit(value, 1024);
  return fmt::format("{:.{}f} {}", value / unit.bytes, unit.bytes == 1 ? 0 : 2, unit.name);
}

void print_error(std::string sentence, bool one_line) {
  if (one_line)
    std::ranges::replace(sentence, '\n', ' ');
  fmt::print(stderr, "minitaw: {}\n", sentence);
}

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_stdout(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return;
  if (errno != EPIPE)
    throw InputError(fmt::format("standard output: {}", std::strerror(errno)));
}
}  // namespace minitaw::app
