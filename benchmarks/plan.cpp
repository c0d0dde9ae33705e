// SPDX-License-Identifier: BSD-3-Clause
#include "plan.hpp"

#include <fmt/format.h>
#include <map>
#include <regex>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"

namespace minitaw::bench {
namespace {
/// BLAS counts no further.
constexpr std::int64_t largest = 2'147'483'647;

void add_shape(CLI::App& app, Options& options) {
  const auto size = [&app](const char* name, auto& value, const char* what) {
    app.add_option(name, value, what)->check(CLI::Range(std::int64_t{1}, largest))->type_name("N");
  };
  app.add_option("--deck", options.deck, "the kernel shapes of all cases of a deck")
      ->type_name("FILE");
  cli::add_overrides(app, options.overrides)->needs("--deck");
  size("--tokens",
      options.tokens,
      "one shape (default 512), or the deck's with this size: tokens of a sequence");
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
  size("--triad-mib",
      options.triad_mib,
      "size of each array of the triad (default: four times the last cache)");
}

Shape default_shape(model::Dtype dtype) {
  return {.layers = 1,
      .hidden = 512,
      .heads = 8,
      .kv_heads = 8,
      .ffn = 1376,
      .vocab = 4096,
      .seq = 512,
      .micro_batch = 1,
      .dtype = dtype};
}

std::vector<Shape> shapes_of_deck(const Options& options) {
  const deck::Job job{.ranks = 1, .node_sizes = {}, .planning = true};
  std::vector<Shape> shapes;
  const deck::Deck deck = deck::read_deck(options.deck, options.overrides, job);
  for (const std::string& sentence : deck.left_out)
    fmt::print(stderr, "# {}\n", sentence);
  for (const Case& c : deck.cases) {
    Shape& shape = shapes.emplace_back(c.shape);
    shape.layers = 1;
  }
  return shapes;
}

void change(Shape& shape, const Options& options) {
  if (options.tokens)
    shape.seq = *options.tokens, shape.micro_batch = 1;
  if (options.hidden)
    shape.hidden = *options.hidden;
  if (options.ffn)
    shape.ffn = *options.ffn;
  if (options.vocab)
    shape.vocab = *options.vocab;
  if (options.heads)
    shape.heads = shape.kv_heads = static_cast<int>(*options.heads);
  if (options.kv_heads)
    shape.kv_heads = static_cast<int>(*options.kv_heads);
  if (options.dtype)
    shape.dtype = *options.dtype;
}

auto key(const Shape& s) {
  return std::make_tuple(
      s.dtype, s.hidden, s.heads, s.head_dim(), s.kv_heads, s.ffn, s.vocab, s.seq, s.micro_batch);
}
}  // namespace

Options read_options(const std::vector<std::string>& words) {
  Options options;
  CLI::App app(
      "The rate of every kernel, forward and backward, as a share of what this machine can do: the "
      "rates of a "
      "stream triad and of a square matrix product are measured first, in the same run.",
      "minitaw_kernels");
  add_shape(app, options);
  auto* const verify = app.add_flag("--verify",
      options.verify,
      "no rates: compare each kernel at these shapes with double precision; "
      "exit code 1 if one is off by more "
      "than its tolerance");
  app.add_option("--markdown",
         options.markdown,
         "write kernel, shape, FLOPs, bytes, time, rate and share of the limit as a table")
      ->type_name("FILE")
      ->excludes(verify);
  app.footer(
      "Options of Google Benchmark: --benchmark_filter=R (only kernels whose names the regular "
      "expression "
      "matches, \"-R\": all others), --benchmark_min_time=0.1s, --benchmark_out=FILE.json, ...\n"
      "Exit code 0, 1 (--verify found a wrong kernel), or 2 (a mistake on the command line or in "
      "the deck).");
  std::vector<const char*> arguments = {"minitaw_kernels"};
  for (const std::string& word : words)
    arguments.push_back(word.c_str());
  options.help = cli::parse(app, static_cast<int>(arguments.size()), arguments.data());
  return options;
}

std::vector<Shape> shapes_of(const Options& options) {
  std::vector<Shape> shapes = options.deck.empty() ? std::vector{default_shape(model::Dtype::fp32),
                                                         default_shape(model::Dtype::bf16)}
                                                   : shapes_of_deck(options);
  std::set<decltype(key(shapes[0]))> seen;
  std::vector<Shape> found;
  for (Shape& shape : shapes) {
    change(shape, options);
    model::check(shape);
    if (seen.insert(key(shape)).second)
      found.push_back(shape);
  }
  return found;
}

Kernels distinct(Kernels all) {
  Kernels found;
  std::set<std::string> seen;
  std::map<std::string, int> shapes_of_name;
  for (Kernel& kernel : all)
    if (seen.insert(kernel.name + " " + kernel.shape).second) {
      ++shapes_of_name[kernel.name];
      found.push_back(std::move(kernel));
    }
  for (Kernel& kernel : found) {
    kernel.label = kernel.name;
    if (shapes_of_name[kernel.name] == 1)
      continue;
    kernel.label += "/" + kernel.shape;
    std::ranges::replace(kernel.label, ' ', ',');  // one word of a command line
  }
  return found;
}

int verify(const Kernels& kernels, std::FILE* out) {
  Kernels wrong;
  for (const Kernel& kernel : kernels) {
    const Problem problem = kernel.make();
    problem.reset();
    problem.run();
    const double error = problem.error();
    const bool right = error <= kernel.tolerance;
    fmt::print(out,
        "{:<6} {:<38} {:<38} error {:.1e}, at most {:.0e}\n",
        right ? "ok" : "WRONG",
        kernel.name,
        kernel.shape,
        error,
        kernel.tolerance);
    if (!right)
      wrong.push_back(kernel);
  }
  fmt::print(out, "{} of {} kernels are right\n", kernels.size() - wrong.size(), kernels.size());
  for (const Kernel& kernel : wrong)
    fmt::print(out, "WRONG: {} at {}\n", kernel.name, kernel.shape);
  return static_cast<int>(wrong.size());
}

Kernels selected(const Kernels& kernels, const std::string& filter) {
  const bool without = filter.starts_with('-');
  std::regex expression;
  try {
    expression =
        std::regex(filter == "all" ? "." : filter.substr(without ? 1 : 0), std::regex::extended);
  } catch (const std::regex_error&) {
    throw InputError("--benchmark_filter={}: this is not a regular expression", filter);
  }
  Kernels found;
  for (const Kernel& kernel : kernels)
    if (std::regex_search(kernel.label, expression) != without)
      found.push_back(kernel);
  if (found.empty())
    throw InputError("--benchmark_filter={}: no kernel has such a name", filter);
  return found;
}
}  // namespace minitaw::bench
