#include <memory>

#include "cli/cli11.hpp"
#include "in_job.hpp"
#include "verb.hpp"
#include "verify_deck.hpp"

namespace minitaw::app {

namespace {

struct Options {
  DeckOptions deck;
  bool json = false;
  JobFlags job;
};

int verify(const Invocation& invocation, const Options& options) {
  const VerifyOptions what{options.deck.path, options.deck.overrides, options.json};
  return in_job(invocation, options.job, [&](MpiJob& mpi) { return verify_deck(what, mpi); });
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("verify", "compare losses and gradients of every case with the serial reference");
  add_deck(*verb, options->deck);
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.action = [&invocation, options] { return verify(invocation, *options); };
  });
}

}  // namespace minitaw::app
