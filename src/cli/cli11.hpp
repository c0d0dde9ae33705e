// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>

// Compiled once, in cli11.cpp, if it came as separate headers: it takes five seconds in each file.
#if __has_include(<CLI/impl/App_inl.hpp>)
#define CLI11_COMPILE
#endif
#include <CLI/CLI.hpp>

/// Command lines of all programs: CLI11, with errors as everywhere else.
namespace minitaw::cli {
/// Parses the command line into the variables of the options of `app`. Returns the text of --help
/// or --version, else an empty one. Throws InputError, with CLI11's sentence, for a mistake.
std::string parse(CLI::App& app, int argc, const char* const* argv);
/// Refuses what is no number from `least` to `most`, and names the unit ("seconds").
CLI::Validator number_of(const std::string& unit, double least, double most);
/// Adds --set KEY=VALUE, which may be repeated.
CLI::Option* add_overrides(CLI::App& app, std::vector<std::string>& overrides);
}  // namespace minitaw::cli
