// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "record/provenance.hpp"
#include "verb.hpp"

namespace {
using namespace minitaw;

/// Returns whether this process is rank 0, as the launcher's environment says it: MPI is not
/// started yet.
bool is_root() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name))
      return std::string_view(rank) == "0";
  return true;
}

/// Refuses a first word that is no verb, before the parser complains about arguments in general.
void require_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-')
    return;
  const std::string word = argv[1];
  const std::vector<std::string> verbs =
      list_of(app.get_subcommands([](const CLI::App*) { return true; }), &CLI::App::get_name);
  if (std::ranges::find(verbs, word) == verbs.end())
    throw InputError(
        "unknown verb \"{}\"{} (minitaw --help lists all)", word, did_you_mean(word, verbs));
}

int run(int argc, char** argv) {
  CLI::App app("Weight-pipelined training schedules, measured alike", "minitaw");
  const app::Invocation invocation{argc, argv};
  app.set_version_flag("--version", record::version_text());
  app.require_subcommand(1);
  const app::Verbs verbs = app::make_verbs(app, invocation);
  app.footer("minitaw VERB --help explains a verb, minitaw help keys the keys of a deck and the "
             "schedules.");
  require_verb(app, argc, argv);
  const std::string help = cli::parse(app, argc, argv);
  if (!help.empty() && is_root())
    app::write_stdout(help);
  return help.empty() ? (*std::ranges::find_if(verbs, &app::Verb::is_chosen))->execute(invocation)
                      : 0;
}
}  // namespace

/// A file that is opened later never takes the place of a standard stream that is closed. What is
/// written there fails.
void keep_streams_apart() {
  int lowest = 0;
  while (lowest >= 0 && lowest <= STDERR_FILENO)
    lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(lowest);
}

int main(int argc, char** argv) {
  keep_streams_apart();
  try {
    return run(argc, argv);
  } catch (const InputError& error) {
    if (is_root())
      app::print_error(error.what());
    return app::bad_input_code;
  } catch (const std::exception& error) {
    app::print_error(error.what(), false);
    return app::failure_code;
  }
}
