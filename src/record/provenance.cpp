#include "record/provenance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/version.hpp"
#include "record/environment.hpp"
#include "record/result.hpp"

namespace minitaw::record {

namespace {

/// So that the line can be pasted into a shell.
std::string shell_quoted(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("-_=+:,./@%").find(c) != std::string::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

Provenance collect(const deck::Deck& deck, const std::vector<std::string>& arguments,
                   const HostNames& hosts) {
  Provenance p;
  p.version = build::version;
  p.git_hash = build::git_hash;
  p.build_type = build::build_type;
  p.compiler = build::compiler;
  p.compiler_flags = build::compiler_flags;
  p.started = utc_now();
  for (const std::string& word : arguments) p.command += (p.command.empty() ? "" : " ") + shell_quoted(word);
  p.deck_path = deck.path;
  p.deck = deck.text;
  p.overrides = deck.overrides;
  p.environment = recorded_environment(hosts);
  p.links = shaped_links();
  return p;
}

std::string version_text() {
  return fmt::format("minitaw {} ({}, {}, {})", build::version, build::git_hash, build::compiler,
                     build::build_type);
}

}  // namespace minitaw::record
