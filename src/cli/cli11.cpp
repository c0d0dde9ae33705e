// SPDX-License-Identifier: BSD-3-Clause
#include "cli/cli11.hpp"
#include <fmt/format.h>
#include <sstream>
#include "base/error.hpp"
#ifdef CLI11_COMPILE
#include <CLI/impl/App_inl.hpp>
#include <CLI/impl/Argv_inl.hpp>
#include <CLI/impl/Config_inl.hpp>
#include <CLI/impl/Encoding_inl.hpp>
#include <CLI/impl/Formatter_inl.hpp>
#include <CLI/impl/Option_inl.hpp>
#include <CLI/impl/Split_inl.hpp>
#include <CLI/impl/StringTools_inl.hpp>
#include <CLI/impl/Validators_inl.hpp>
#endif

namespace minitaw::cli {
std::string parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      throw InputError("{} ({} --help)", error.what(), app.get_name());
    std::ostringstream text;
    app.exit(error, text, text);
    return text.str();
  }
  return {};
}

CLI::Validator number_of(const std::string& unit, double least, double most) {
  const auto refusal = [=](const std::string& text) {
    double number = 0;
    const bool is_number = CLI::detail::lexical_cast(text, number);
    if (is_number && number >= least && number <= most)
      return std::string();
    return fmt::format("{} is no number of {} from {} to {}", text, unit, least, most);
  };
  return {refusal, ""};
}

CLI::Option* add_overrides(CLI::App& app, std::vector<std::string>& overrides) {
  return app
      .add_option("--set", overrides, "replace a key of the deck; a list is swept: --set seq=4K,8K")
      ->type_name("KEY=VALUE")
      ->type_size(1)
      ->allow_extra_args(false);
}
}  // namespace minitaw::cli
