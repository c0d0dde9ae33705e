#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <limits>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "cli/parse.hpp"
#include "engine/reference.hpp"
#include "overhead.hpp"

namespace minitaw::bench {
namespace {

struct Options {
  std::string deck;
  std::vector<std::string> overrides;
  int pairs = 21;
  std::string help;  ///< what to print instead of all that, if it was asked for
};

Options read_options(int argc, char** argv) {
  Options options;
  CLI::App app("The serial step by the engine and by a plain loop of the same calls, in pairs.", "minitaw_baseline");
  app.add_option("DECK", options.deck, "TOML file of the cases")->required();
  cli::add_overrides(app, options.overrides);
  app.add_option("--pairs", options.pairs, "steps of each, one after the other")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()))
      ->capture_default_str();
  options.help = cli::parse(app, argc, argv);
  return options;
}

void run(const Options& options) {
  std::vector<Overhead> all;
  for (const deck::Case& c : deck::read_deck(options.deck, options.overrides, {1, {1}, false}).cases)
    all.push_back(measure_overhead(engine::serial_case(c), options.pairs));
  fmt::print("{}", table(all));
}

}  // namespace
}  // namespace minitaw::bench

int main(int argc, char** argv) {
  using namespace minitaw;
  try {
    const bench::Options options = bench::read_options(argc, argv);
    if (!options.help.empty()) return fmt::print("{}", options.help), 0;
    const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
    bench::run(options);
  } catch (const InputError& error) {
    fmt::print(stderr, "minitaw_baseline: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw_baseline: {}\n", error.what());
    return 1;
  }
}
