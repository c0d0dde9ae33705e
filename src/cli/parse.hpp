#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// Command lines of all programs: CLI11, with errors as everywhere else.
namespace minitaw::cli {

/// Reads the command line into what the options of `app` are bound to. The text to print instead of doing
/// anything else
/// (--help, --version), or empty. Throws InputError, with CLI11's sentence, for a mistake.
[[nodiscard]] std::string parse(CLI::App& app, int argc, const char* const* argv);

/// Adds --set KEY=VALUE, which may be repeated.
CLI::Option* add_overrides(CLI::App& app, std::vector<std::string>& overrides);

}  // namespace minitaw::cli
