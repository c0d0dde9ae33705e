// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <memory>
#include "cli/cli11.hpp"
#include "signals.hpp"
#include "sweep.hpp"

namespace minitaw::app {
namespace {
struct RunOptions {
  DeckOptions deck;
  SweepOptions sweep;
  JobFlags job;
};

int run(const Invocation& invocation, RunOptions& options) {
  if (options.sweep.output.empty())
    options.sweep.output =
        std::filesystem::path(options.deck.path).filename().replace_extension(".h5").string();
  catch_signals();  // before MPI starts: it may take a while
  return in_job(invocation, options.job, [&](MpiJob& mpi) {
    if (!mpi.is_root())
      catch_signals_silently();
    mpi.watchdog.phase("reading deck and result file");
    const deck::Deck deck = mpi.read(options.deck);
    for (const Case& c : deck.cases)
      mpi.runner.require_possible(c);
    const int code = run_sweep(deck, options.sweep, invocation, mpi);
    ignore_signals();
    return code;
  });
}
}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* verb =
      app.add_subcommand("run", "run every case of a deck; start it with mpiexec or srun");
  add_deck(*verb, options->deck);
  verb->add_option("-o,--output",
          options->sweep.output,
          "result file; if it exists, finished cases are kept and not run again (default: the "
          "deck's name "
          "with .h5, in the current folder)")
      ->type_name("FILE.h5");
  verb->add_flag("--retry",
      options->sweep.retry,
      "run those cases of the file again that ended wrong, oom, timeout or error");
  verb->add_flag("--interleave",
      options->sweep.interleave,
      "run the repetitions of all cases in random order");
  verb->add_option("--time-limit",
          options->sweep.time_limit,
          "stop before so many seconds are over, everything saved (default: the end of the Slurm "
          "job, if there is one)")
      ->check(cli::number_of("seconds", 1, 1e8))
      ->type_name("SECONDS");
  add_flops(*verb,
      "--peak",
      options->sweep.peak,
      "what the device of a rank can do, 989e12: the MFU is relative to it (default: dense, of its "
      "datasheet, for NVIDIA's data-centre devices)");
  verb->add_flag("--timeline",
      options->job.timeline,
      "keep when every action of one step ran, for scripts/timeline");
  verb->add_flag("--hosts",
      options->job.hosts,
      "print and keep the names of the hosts; without it they are called node 0, node 1, ...");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] { invocation.code = run(invocation, *options); });
}
}  // namespace minitaw::app
