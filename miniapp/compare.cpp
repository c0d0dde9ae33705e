#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "compare_output.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

namespace compare = record::compare;

struct Options {
  std::vector<std::string> files, base, fresh, allow;
  compare::Rules rules;
  std::string junit, markdown;
  bool json = false, strict = false;
};

/// Either two files, or any number of each side.
void settle_sides(Options& options) {
  const bool named = !options.base.empty() || !options.fresh.empty();
  if (named == !options.files.empty() || (!named && options.files.size() != 2) ||
      (named && (options.base.empty() || options.fresh.empty())))
    throw InputError("compare takes two files, the base and the new one, or several of each: "
                     "minitaw compare --base a1.h5 a2.h5 --new b1.h5 b2.h5");
  if (named) return;
  options.base = {options.files[0]};
  options.fresh = {options.files[1]};
}

void require_rules(const compare::Rules& rules) {
  const auto within = [](double value, double low, double high) { return value > low && value < high; };
  if (!within(rules.time.threshold, 0, 1e6) || !within(rules.memory_threshold, 0, 1e6))
    throw InputError("--threshold and --memory-threshold are shares above 0, for example 0.05 for 5 %");
  if (!within(rules.time.confidence, 0.5, 0.99999))
    throw InputError("--confidence is a probability between 0.5 and 0.99999, for example 0.95");
  if (!(rules.time.quantile >= 0 && rules.time.quantile <= 0.5))
    throw InputError("--quantile lies between 0 (the fastest sample) and 0.5 (the median)");
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!file || !(file << text) || !file.flush()) throw InputError(fmt::format("{} cannot be written", path));
}

std::string name_of(const std::vector<std::string>& paths) {
  return paths.size() == 1 ? paths.front() : fmt::format("{} and {} more", paths.front(), paths.size() - 1);
}

int exit_code(const compare::Comparison& comparison, bool strict) {
  const compare::Outcome outcome = comparison.outcome();
  return outcome == compare::Outcome::worse || (strict && outcome == compare::Outcome::ambiguous) ? 1 : 0;
}

int run(Options options) {
  settle_sides(options);
  require_rules(options.rules);
  compare::require_known(options.allow);
  options.rules.allowed = {options.allow.begin(), options.allow.end()};
  const compare::Side base = compare::read_side(options.base), fresh = compare::read_side(options.fresh);
  const compare::Comparison comparison = compare::compare(base, fresh, options.rules);
  const CompareHeading heading{name_of(options.base), name_of(options.fresh)};
  if (!options.junit.empty()) write_text(options.junit, compare_junit(comparison, options.strict));
  if (!options.markdown.empty()) write_text(options.markdown, compare_markdown(comparison, heading));
  fmt::print("{}", options.json ? compare_json(comparison, heading) : compare_text(comparison, heading));
  return exit_code(comparison, options.strict);
}

void add_rules(CLI::App& verb, Options& options) {
  compare::Rules& rules = options.rules;
  verb.add_option("--threshold", rules.time.threshold, "least relative difference of step times that matters")
      ->capture_default_str();
  verb.add_option("--memory-threshold", rules.memory_threshold, "the same of memory")->capture_default_str();
  verb.add_option("--confidence", rules.time.confidence, "of the interval of the ratio of step times")
      ->capture_default_str();
  verb.add_option("--quantile", rules.time.quantile,
                  "which sample stands for a run: 0 the fastest, 0.5 the median")
      ->capture_default_str();
  verb.add_option("--allow", options.allow,
                  "what may differ although it matters: dtype, recompute, attention, transport, seed, "
                  "learning_rate, device, processor, nodes, build_type, threads; may be repeated")
      ->type_name("NAME")
      ->type_size(1)
      ->allow_extra_args(false);
  verb.add_flag("--strict", options.strict, "AMBIGUOUS fails too");
}

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "compare", "has the second result become slower, larger or wrong against the first?");
  verb->add_option("FILES", options->files, "the base and the new result file (.h5)");
  verb->add_option("--base", options->base,
                   "several files of the base: the i-th is paired with the i-th --new")
      ->type_name("FILE.h5");
  verb->add_option("--new", options->fresh, "as many of the new one, measured in turn with them")
      ->type_name("FILE.h5");
  add_rules(*verb, *options);
  verb->add_flag("--json", options->json, "print one JSON object and nothing else");
  verb->add_option("--junit", options->junit, "write a test report for CI")->type_name("FILE.xml");
  verb->add_option("--markdown", options->markdown, "write a table for the summary of a CI job")
      ->type_name("FILE.md");
  verb->callback([&invocation, options] { invocation.action = [options] { return run(*options); }; });
}

}  // namespace minitaw::app
