// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/keys.hpp"
#include "record/provenance.hpp"
#include "verb.hpp"

namespace {
using namespace minitaw;
constexpr int bad_input = 2, failed = 1;

/// Returns whether this process is rank 0, as the launcher's environment says it: MPI is not
/// started yet.
bool is_root() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name))
      return std::string_view(rank) == "0";
  return true;
}

/// A first word that is no verb, answered before the parser complains about arguments in general.
void check_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2)
    throw InputError(
        "no verb given; write for example minitaw run DECK (minitaw --help lists all)");
  if (argv[1][0] == '-')
    return;
  const std::vector<std::string> verbs = app::verb_names(app);
  const std::string word = argv[1];
  if (std::ranges::find(verbs, word) == verbs.end())
    throw InputError(fmt::format(
        "unknown verb \"{}\"{} (minitaw --help lists all)", word, did_you_mean(word, verbs)));
}

void check_keys(const CLI::App& app, int argc, char** argv) {
  const CLI::App* verb = app.get_subcommand(argv[1]);
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    std::string key = option.substr(0, option.find('='));
    if (!key.starts_with("--") || verb->get_option_no_throw(key) != nullptr)
      continue;
    key.erase(0, 2);
    std::ranges::replace(key, '-', '_');
    if (deck::find_key(key) != nullptr)
      throw InputError(fmt::format("--{} is a key of the deck; write --set {}=VALUE", key, key));
  }
}

int run(int argc, char** argv) {
  CLI::App app("Weight-pipelined training schedules, measured alike", "minitaw");
  app::Invocation invocation{argc, argv};
  app.set_version_flag("--version", record::version_text());
  app.require_subcommand(1);
  app::add_verbs(app, invocation);
  check_verb(app, argc, argv);
  if (argv[1][0] != '-')
    check_keys(app, argc, argv);
  const std::string help = cli::parse(app, argc, argv);  // calls the verb, unless help is asked for
  if (!help.empty() && is_root())
    fmt::print("{}", app::for_terminal(help));
  return invocation.code;
}
}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const InputError& error) {
    if (is_root())
      app::print_error(error.what());
    return bad_input;
  } catch (const std::exception& error) {
    app::print_error(error.what(), false);  // the validator draws a grid
    return failed;
  }
}
