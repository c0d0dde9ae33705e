// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include "cli/cli11.hpp"
#include "signals.hpp"
#include "sweep.hpp"

namespace minitaw::app {
namespace {
class RunVerb final : public JobVerb {
public:
  explicit RunVerb(CLI::App& app)
      : JobVerb(app, "run", "run every case of a deck; start it with mpiexec or srun") {
    add_deck(command_, deck_);
    command_
        .add_option("-o,--output",
            options_.output,
            "result file; if it exists, finished cases are kept and not run again (default: the "
            "deck's name with .h5, in the current folder)")
        ->type_name("FILE.h5");
    command_.add_flag("--retry",
        options_.retry,
        "run those cases of the file again that ended wrong, oom, timeout or error");
    command_.add_flag(
        "--interleave", options_.interleave, "run the repetitions of all cases in random order");
    command_
        .add_option("--time-limit",
            options_.time_limit,
            "stop before so many seconds are over, everything saved (default: the end of the Slurm "
            "job, if there is one)")
        ->check(cli::number_of("seconds", 1, 1e8))
        ->type_name("SECONDS");
    add_flops(command_,
        "--peak",
        options_.peak,
        "what the device of a rank can do, 989e12: the MFU is relative to it (default: dense, of "
        "its datasheet, for NVIDIA's data-centre devices)");
    command_.add_flag("--timeline",
        flags_.timeline,
        "keep when every action of one step ran, for scripts/timeline");
    command_.add_flag("--hosts",
        flags_.hosts,
        "print and keep the names of the hosts; without it they are called node 0, node 1, ...");
    add_job_flags(command_, flags_);
  }

private:
  void before_mpi() override { catch_signals(); }  // MPI's start may take a while

  int work(const Invocation& invocation, MpiJob& mpi) override {
    if (options_.output.empty())
      options_.output =
          std::filesystem::path(deck_.path).filename().replace_extension(".h5").string();
    catch_signals_of(mpi.environment.rank());
    const deck::Deck deck = mpi.read(deck_);
    mpi.watchdog.phase("reading the result file");
    mpi.agree([&] {
      for (const Case& c : deck.cases)
        mpi.runner.require_possible(c);
    });
    const int code = run_sweep(deck, options_, invocation, mpi);
    ignore_signals();
    return code;
  }

  DeckOptions deck_;
  SweepOptions options_;
};
}  // namespace

std::unique_ptr<Verb> make_run(CLI::App& app) {
  return std::make_unique<RunVerb>(app);
}
}  // namespace minitaw::app
