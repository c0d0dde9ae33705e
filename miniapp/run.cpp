#include <filesystem>
#include <memory>

#include "cli/cli11.hpp"
#include "in_job.hpp"
#include "run_sweep.hpp"
#include "signals.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

struct Options {
  DeckOptions deck;
  std::string output;
  RunOptions sweep;
  JobFlags job;
};

int run(const Invocation& invocation, const Options& options) {
  const std::string output =
      options.output.empty()
          ? std::filesystem::path(options.deck.path).filename().replace_extension(".h5").string()
          : options.output;
  RunOptions sweep = options.sweep;
  sweep.deck = options.deck.path;
  sweep.overrides = options.deck.overrides;
  sweep.output = output;
  sweep.arguments = invocation.arguments();
  note_signals();  // before MPI starts: it may take a while
  return in_job(invocation, options.job, [&](MpiJob& mpi) { return run_sweep(sweep, mpi); });
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("run", "run every case of a deck; start it with mpiexec or srun");
  add_deck(*verb, options->deck);
  verb->add_option(
          "-o,--output", options->output,
          "result file; if it exists, finished cases are kept and not run again (default: the deck's name "
          "with .h5, in the current folder)")
      ->type_name("FILE.h5");
  verb->add_flag("--retry", options->sweep.retry,
                 "run those cases of the file again that ended wrong, oom, timeout or error");
  verb->add_flag("--interleave{1}", options->sweep.interleave,
                 "run the repetitions of all cases in random order; --interleave=SEED chooses another one");
  verb->add_option(
          "--time-limit", options->sweep.time_limit,
          "stop before this time is over, everything saved: 45m, 1:30:00 (default: the end of the Slurm "
          "job, if there is one)")
      ->type_name("TIME");
  verb->add_flag("--timeline", options->job.timeline,
                 "keep when every action of one step ran, for minitaw show --timeline");
  verb->add_flag("--hosts", options->job.hosts,
                 "print and keep the names of the hosts; without it they are called node 0, node 1, ...");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.action = [&invocation, options] { return run(invocation, *options); };
  });
}

}  // namespace minitaw::app
