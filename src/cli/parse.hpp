#pragma once

#include <string>

namespace CLI {
class App;
}

/// Command lines of all programs: CLI11, with errors as everywhere else.
namespace minitaw::cli {

/// Reads the command line into what the options of `app` are bound to. The text to print instead of doing
/// anything else
/// (--help, --version), or empty. Throws InputError, with CLI11's sentence, for a mistake.
[[nodiscard]] std::string parse(CLI::App& app, int argc, const char* const* argv);

}  // namespace minitaw::cli
