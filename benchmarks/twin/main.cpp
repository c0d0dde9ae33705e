#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"
#include "engine/reference.hpp"
#include "overhead.hpp"

namespace minitaw::bench {
namespace {

constexpr const char* usage = "minitaw_twin DECK.toml [--set KEY=VALUE]... [--pairs N]";

struct Options {
  std::string deck;
  std::vector<std::string> overrides;
  int pairs = 21;
};

int pairs_of(const std::string& text) {
  const int pairs = std::atoi(text.c_str());
  if (pairs < 1 || std::to_string(pairs) != text)
    throw InputError(fmt::format("--pairs '{}': a whole number from 1 on is needed", text));
  return pairs;
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool named = word.starts_with("--");
    if (!named && options.deck.empty()) options.deck = word;
    else if ((word != "--set" && word != "--pairs") || i + 1 == argc)
      throw InputError(fmt::format("'{}' is not understood; usage: {}", word, usage));
    else if (word == "--set") options.overrides.emplace_back(argv[++i]);
    else options.pairs = pairs_of(argv[++i]);
  }
  if (options.deck.empty()) throw InputError(fmt::format("a deck is needed; usage: {}", usage));
  return options;
}

void run(const Options& options) {
  std::vector<Overhead> all;
  for (const deck::Case& c : deck::read_deck(options.deck, options.overrides, {1, {1}, false}).cases)
    all.push_back(measure_overhead(engine::serial_twin(c), options.pairs));
  fmt::print("{}", table(all));
}

}  // namespace
}  // namespace minitaw::bench

int main(int argc, char** argv) {
  using namespace minitaw;
  try {
    const bench::Options options = bench::read_options(argc, argv);
    const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
    bench::run(options);
  } catch (const InputError& error) {
    fmt::print(stderr, "minitaw_twin: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw_twin: {}\n", error.what());
    return 1;
  }
}
