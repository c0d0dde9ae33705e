#include "options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <map>
#include <sstream>

#include "base/error.hpp"

namespace minitaw::bench {
namespace {

std::int64_t number(const std::string& name, const std::string& text, std::int64_t least) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least)
    throw InputError(fmt::format("{} '{}': a whole number from {} on is needed", name, text, least));
  return value;
}

std::vector<std::int64_t> numbers(const std::string& name, const std::string& text) {
  std::vector<std::int64_t> values;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) values.push_back(number(name, part, 1));
  if (values.empty()) throw InputError(fmt::format("{} needs at least one size", name));
  return values;
}

using Take = std::function<void(const std::string& value)>;

std::map<std::string, Take> takers(CommOptions& o) {
  return {{"--deck", [&](const auto& v) { o.deck = v; }},
          {"--set", [&](const auto& v) { o.overrides.push_back(v); }},
          {"--bytes", [&](const auto& v) { o.bytes = numbers("--bytes", v); }},
          {"--groups", [&](const auto& v) { o.groups = topology::parse_groups(v); }},
          {"--transport", [&](const auto& v) { o.transport = v; }},
          {"--threads", [&](const auto& v) { o.threads = static_cast<int>(number("--threads", v, 1)); }},
          {"--rounds", [&](const auto& v) { o.rounds = static_cast<int>(number("--rounds", v, 1)); }},
          {"--seed", [&](const auto& v) { o.seed = static_cast<std::uint64_t>(number("--seed", v, 0)); }},
          {"--spoil", [&](const auto& v) { o.spoil = v; }},
          {"--markdown", [&](const auto& v) { o.markdown = v; }},
          {"--json", [&](const auto& v) { o.json = v; }}};
}

}  // namespace

CommOptions read_options(int argc, char** argv) {
  CommOptions options;
  const std::map<std::string, Take> known = takers(options);
  const std::map<std::string, bool*> flags = {
      {"--verify", &options.verify}, {"--spin", &options.spin}, {"--help", &options.help}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (const auto flag = flags.find(name); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    const auto taker = known.find(name);
    if (taker == known.end())
      throw InputError(fmt::format("unknown option '{}'; --help tells which there are", name));
    if (i + 1 == argc) throw InputError(fmt::format("{} needs a value", name));
    taker->second(argv[++i]);
  }
  if (options.deck.empty() && !options.overrides.empty())
    throw InputError("--set changes a deck; say which with --deck");
  if (!options.spoil.empty() && !options.verify) throw InputError("--spoil is seen by --verify only");
  return options;
}

}  // namespace minitaw::bench
