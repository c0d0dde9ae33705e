#include <memory>

#include "in_job.hpp"
#include "verb.hpp"
#include "verify_deck.hpp"

namespace minitaw::app {

namespace {

struct Options {
  DeckOptions deck;
  bool json = false;
  double watchdog = 300;
};

int verify(const Invocation& invocation, const Options& options) {
  const VerifyOptions what{options.deck.path, options.deck.overrides, options.json};
  return in_job(invocation, options.watchdog, [&](MpiJob& mpi) { return verify_deck(what, mpi); });
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("verify", "compare losses and gradients of every case with the serial reference");
  add_deck(*verb, options->deck);
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_option("--watchdog", options->watchdog, "seconds without progress after which a step is given up")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->callback([&invocation, options] {
    invocation.action = [&invocation, options] { return verify(invocation, *options); };
  });
}

}  // namespace minitaw::app
