// SPDX-License-Identifier: BSD-3-Clause
#include "print.hpp"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/error.hpp"
#include "deck/keys.hpp"

namespace minitaw::app {
namespace {
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

/// What the rest of a line begins with, if it is broken.
std::string indent_after(const std::string& line) {
  constexpr std::size_t most = 40;  // of the first part of a line
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  if (line.starts_with("# ")) {
    const std::size_t equals = line.find(" = ");
    return "#" + std::string(equals < most ? equals + 2 : 3, ' ');
  }
  if (line.starts_with("RESULT: ") || line.starts_with("VERDICT: "))
    return "  ";
  const std::size_t gap = line.find("  ", begin);
  const std::size_t second = gap < most ? line.find_first_not_of(' ', gap) : line.npos;
  return std::string(second == line.npos ? begin : second, ' ');
}
}  // namespace

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
    const std::string indent = indent_after(line);
    while (width > 0 && line.size() > static_cast<std::size_t>(width)) {
      std::size_t end = line.rfind(' ', static_cast<std::size_t>(width));
      if (end == line.npos || end <= indent.size())
        end = line.find(' ', indent.size() + 1);  // a word that is longer
      if (end == line.npos)
        break;
      all += line.substr(0, end) + "\n";
      line.replace(0, end + 1, indent);
    }
  }
  return all;
}

std::string for_terminal(const std::string& text) {
  return wrapped(text, terminal_width());
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

void put(Json& object, std::string_view name, const Cell& cell) {
  Json* field = &object;
  for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.')) {
    field = &(*field)[std::string(name.substr(0, dot))];
    name.remove_prefix(dot + 1);
  }
  std::visit([&](const auto& value) { (*field)[std::string(name)] = value; }, cell);
}

Json settings_json(const Case& c) {
  Json settings;
  for (const deck::Setting& setting : deck::columns())
    put(settings, setting.name, setting.value(c));
  settings["identity"] = deck::identity(c);
  settings["ffn_per_layer"] = c.shape.ffn;
  Json& sizes = settings["micro_batch_per_rank"] = Json::array();
  for (int rank = 0; rank < c.ranks; ++rank)
    sizes.push_back(micro_batch_of(c, rank));
  return settings;
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
