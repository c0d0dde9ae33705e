#include "record/provenance.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/version.hpp"
#include "record/result.hpp"

namespace minitaw::record {

namespace {

constexpr std::array<std::string_view, 8> prefixes = {"SLURM_", "NCCL_", "UCX_",    "FI_",
                                                      "MPICH_", "OMPI_", "KOKKOS_", "OMP_"};
constexpr std::array<std::string_view, 3> names = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                                   "HIP_VISIBLE_DEVICES"};
constexpr std::array<std::string_view, 6> secrets = {"JWT", "TOKEN", "PASSW", "SECRET", "CREDENTIAL", "_KEY"};

std::vector<std::string> allowed_environment() {
  std::vector<std::string> found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string variable = *at;
    if (may_record(variable.substr(0, variable.find('=')))) found.push_back(variable);
  }
  std::ranges::sort(found);
  return found;
}

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

Provenance collect(const deck::Deck& deck, const std::vector<std::string>& arguments) {
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
  p.environment = allowed_environment();
  return p;
}

bool may_record(const std::string& name) {
  const auto holds = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (std::ranges::any_of(secrets, holds)) return false;
  return std::ranges::find(names, name) != names.end() ||
         std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string version_text() {
  return fmt::format("minitaw {} ({}, {}, {})", build::version, build::git_hash, build::compiler,
                     build::build_type);
}

}  // namespace minitaw::record
