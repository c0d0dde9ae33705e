#include "options.hpp"

#include "cli/cli11.hpp"
#include "cli/parse.hpp"

namespace minitaw::bench {

namespace {

/// BLAS counts no further.
constexpr std::int64_t largest = 2'147'483'647;

void add_shape(CLI::App& app, Options& options) {
  const auto size = [&app](const char* name, auto& value, const char* what) {
    app.add_option(name, value, what)->check(CLI::Range(std::int64_t{1}, largest))->type_name("N");
  };
  app.add_option("--deck", options.deck, "the kernel shapes of all cases of a deck")->type_name("FILE");
  cli::add_overrides(app, options.overrides)->needs("--deck");
  size("--tokens", options.tokens, "one shape (default 512), or the deck's with this size: tokens of a sequence");
  size("--hidden", options.hidden, "likewise (default 512)");
  size("--ffn", options.ffn, "likewise (default 1376)");
  size("--vocab", options.vocab, "likewise (default 4096)");
  size("--heads", options.heads, "likewise (default 8)");
  size("--kv-heads", options.kv_heads, "likewise (default: as many as heads)");
  app.add_option_function<std::string>(
         "--dtype",
         [&options](const std::string& name) {
           options.dtype = name == "fp32" ? model::Dtype::fp32 : model::Dtype::bf16;
         },
         "one type only (default: the deck's, or both)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  size("--triad-mib", options.triad_mib, "size of each array of the triad (default: four times the last cache)");
}

}  // namespace

Options read_options(const std::vector<std::string>& words) {
  Options options;
  CLI::App app(
      "The rate of every kernel, forward and backward, as a share of what this machine can do: the rates of a "
      "stream triad and of a square matrix product are measured first, in the same run.",
      "minitaw_kernels");
  add_shape(app, options);
  auto* const verify = app.add_flag(
      "--verify", options.verify,
      "no rates: compare each kernel at these shapes with double precision; exit code 1 if one is off by more "
      "than its tolerance");
  app.add_option("--markdown", options.markdown,
                 "write kernel, shape, FLOPs, bytes, time, rate and share of the limit as a table")
      ->type_name("FILE")
      ->excludes(verify);
  app.footer(
      "Options of Google Benchmark: --benchmark_filter=R (only kernels whose names the regular expression "
      "matches, \"-R\": all others), --benchmark_min_time=0.1s, --benchmark_out=FILE.json, ...\n"
      "Exit code 0, 1 (--verify found a wrong kernel), or 2 (a mistake on the command line or in the deck).");
  std::vector<const char*> arguments = {"minitaw_kernels"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  options.help = cli::parse(app, static_cast<int>(arguments.size()), arguments.data());
  return options;
}

}  // namespace minitaw::bench
