// SPDX-License-Identifier: BSD-3-Clause
#include "print.hpp"
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include "base/error.hpp"
#include "base/shell.hpp"
#include "deck/keys.hpp"
#include "record/provenance.hpp"
#include "record/schema.hpp"
#include "record/verdict.hpp"
#include "verb.hpp"

namespace minitaw::app {
ByteUnit byte_unit(double bytes, double most) {
  constexpr const char* names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int power = 0;
  for (double left = bytes; left >= most && power < 5; ++power)
    left /= 1024;
  return {names[power], std::pow(1024, power)};
}

std::string size_text(std::uint64_t bytes) {
  const double value = bytes;
  const ByteUnit unit = byte_unit(value, 1024);
  return fmt::format("{:.{}f} {}", value / unit.bytes, unit.bytes == 1 ? 0 : 2, unit.name);
}

void print_error(std::string sentence, bool one_line) {
  if (one_line)
    std::ranges::replace(sentence, '\n', ' ');
  std::fputs(fmt::format("minitaw: {}\n", sentence).c_str(), stderr);
}

void put(Json& object, std::string_view name, const Cell& cell) {
  Json* field = &object;
  for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.')) {
    field = &(*field)[std::string(name.substr(0, dot))];
    name.remove_prefix(dot + 1);
  }
  std::visit([&](const auto& value) { (*field)[std::string(name)] = value; }, cell);
}

std::string groups_text(const topology::Groups& groups) {
  const auto [least, most] = std::ranges::minmax(groups.sizes());
  return groups.count() > 4 && least == most ? fmt::format("{}x{}", groups.count(), least)
                                             : groups.text();
}

std::string setting_text(const Case& c, const std::string& name) {
  const auto setting = std::ranges::find(deck::settings(), name, &deck::Setting::name);
  return name == "groups" ? groups_text(c.groups) : to_text(setting->value(c));
}

std::vector<std::string> varying_settings(const std::vector<Case>& cases) {
  return record::varying_settings(record::preview(cases));
}

Json settings_json(const Case& c) {
  Json settings;
  for (const deck::Setting& setting : deck::settings())
    put(settings, setting.name, setting.value(c));
  settings["identity"] = deck::identity(c);
  return settings;
}

void write_json(const Invocation& invocation, const Json& said) {
  Json json = {{"program", record::version_text()},
      {"schema", record::schema_version},
      {"command", shell_line(invocation.arguments())}};
  json.update(said);
  write_stdout(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string try_stdout(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return {};
  return fmt::format("standard output: {}", std::strerror(errno));
}

void write_stdout(const std::string& text) {
  const std::string fault = try_stdout(text);
  if (errno == EPIPE) {  // the parent ignores the signal
    (void)std::signal(SIGPIPE, SIG_DFL);
    (void)raise(SIGPIPE);
  }
  if (!fault.empty())
    throw InputError(fault);
}
}  // namespace minitaw::app
