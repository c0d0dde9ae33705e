#include "options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <map>

#include "base/error.hpp"

namespace minitaw::bench {

namespace {

using Take = std::function<void(Options&, const std::string& name, const std::string& value)>;

/// BLAS counts no further.
constexpr std::int64_t largest = 2'147'483'647;

std::int64_t size_of(const std::string& name, const std::string& text) {
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size < 1 || size > largest)
    throw InputError(fmt::format("{} {}: give a whole number from 1 to {}", name, text, largest));
  return size;
}

template <class Size>
Take to_size(Size Options::* member) {
  return [member](Options& options, const std::string& name, const std::string& value) {
    options.*member = size_of(name, value);
  };
}

Take to_text(std::string Options::* member) {
  return
      [member](Options& options, const std::string&, const std::string& value) { options.*member = value; };
}

void take_dtype(Options& options, const std::string& name, const std::string& value) {
  if (value != "fp32" && value != "bf16")
    throw InputError(fmt::format("{} {}: choose fp32 or bf16", name, value));
  options.dtype = value == "fp32" ? model::Dtype::fp32 : model::Dtype::bf16;
}

const std::map<std::string, Take>& options_with_value() {
  static const std::map<std::string, Take> all = {
      {"--deck", to_text(&Options::deck)},
      {"--set", [](Options& options, auto&, auto& value) { options.overrides.push_back(value); }},
      {"--tokens", to_size(&Options::tokens)},
      {"--hidden", to_size(&Options::hidden)},
      {"--ffn", to_size(&Options::ffn)},
      {"--vocab", to_size(&Options::vocab)},
      {"--heads", to_size(&Options::heads)},
      {"--kv-heads", to_size(&Options::kv_heads)},
      {"--dtype", take_dtype},
      {"--triad-mib", to_size(&Options::triad_mib)},
      {"--markdown", to_text(&Options::markdown)}};
  return all;
}

}  // namespace

Options read_options(const std::vector<std::string>& words) {
  Options options;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (*word == "--help" || *word == "-h") options.help = true;
    else if (*word == "--verify") options.verify = true;
    else {
      const auto known = options_with_value().find(*word);
      if (known == options_with_value().end())
        throw InputError(fmt::format("unknown option {}; minitaw_kernels --help lists all", *word));
      if (std::next(word) == words.end() || std::next(word)->empty())
        throw InputError(fmt::format("{} needs a value behind it", *word));
      ++word;
      known->second(options, known->first, *word);
    }
  }
  if (!options.overrides.empty() && options.deck.empty())
    throw InputError("--set changes a key of a deck: name one with --deck");
  if (options.verify && !options.markdown.empty())
    throw InputError("--markdown writes rates, and --verify measures none: choose one");
  return options;
}

std::string usage() {
  return R"(minitaw_kernels [options] [--benchmark_...]

The rate of every kernel, forward and backward, as a share of what this machine can do: the rates of a stream triad
and of a square matrix product are measured first, in the same run.

  --deck FILE           the kernel shapes of all cases of a deck
  --set KEY=VALUE       change a key of the deck, as in minitaw run; may be repeated
  --tokens N --hidden N --ffn N --vocab N --heads N [--kv-heads N]
                        one shape (default: 512 512 1376 4096 8), or the deck's with these sizes instead;
                        tokens are those of one sequence
  --dtype fp32|bf16     one type only (default: the deck's, or both)
  --verify              no rates: compare each kernel at these shapes with double precision; exit code 1 if one
                        is off by more than its tolerance
  --markdown FILE       write kernel, shape, FLOPs, bytes, time, rate and share of the limit as a table
  --triad-mib N         size of each array of the triad (default: four times the last cache)
  --benchmark_filter=R  only kernels whose names the regular expression matches ("-R": all others)
  --benchmark_min_time=0.1s, --benchmark_out=FILE.json, ...
                        as in every program of Google Benchmark

Exit code 0, 1 (--verify found a wrong kernel), or 2 (a mistake on the command line or in the deck).
)";
}

}  // namespace minitaw::bench
