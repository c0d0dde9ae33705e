// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "job.hpp"

namespace minitaw::app {
namespace {
using harness::Check, harness::Reference, harness::Tolerance;

struct VerifyOptions {
  DeckOptions deck;
  int repeat = 0;  ///< repetitions of a step that are compared; 0: none, cases and references are
  bool json = false;
  JobFlags job;
};

std::string name_of(const Case& c) {
  return fmt::format("{}, {} in groups {}, {}{}",
      c.schedule,
      counted(c.ranks, "rank"),
      c.groups.text(),
      c.shape.shares_sequences() ? fmt::format("context {}, ", c.shape.context.count) : "",
      name_of(c.shape.dtype));
}

/// A case beside its reference: the serial training, or that beside the float64 reference.
struct Comparison {
  Case settings;
  Check check;
  Tolerance tolerance;

  [[nodiscard]] std::string failure() const { return check.failure(tolerance); }

  [[nodiscard]] bool passes() const { return check.passes(tolerance); }
};

using Column = TableColumn<Comparison>;

Column error_column(const char* title, const char* units, int width, const char* name, auto value) {
  return {title, units, value, {.style = Format::scientific, .decimals = 1}, width, false, name};
}

/// `width`: of the longest schedule.
std::vector<Column> columns_of(int width) {
  using C = Comparison;
  return {{.title = "schedule",
              .value = [](const C& c) { return c.settings.schedule; },
              .width = -width},
      {.title = "ranks",
          .value = [](const C& c) { return ranks_text(c.settings.ranks, c.settings.replicas); },
          .width = 5},
      {.title = "groups",
          .value = [](const C& c) { return c.settings.groups.text(); },
          .width = -11},
      {.title = "context",
          .value = [](const C& c) { return c.settings.shape.context.count; },
          .width = 7},
      {.title = "dtype",
          .value = [](const C& c) { return name_of(c.settings.shape.dtype); },
          .width = -5},
      {.title = "against",
          .value = [](const C& c) { return c.tolerance.reference; },
          .width = -17,
          .name = "against"},
      error_column("loss",
          "first step",
          10,
          "first_step.loss_error",
          [](const C& c) { return c.check.first.loss; }),
      error_column("gradient",
          "first step",
          10,
          "first_step.gradient_error",
          [](const C& c) { return c.check.first.gradient.worst; }),
      error_column("loss",
          "later steps",
          11,
          "later_steps.loss_error",
          [](const C& c) { return c.check.later.loss; }),
      error_column("gradient",
          "later steps",
          11,
          "later_steps.gradient_error",
          [](const C& c) { return c.check.later.gradient.worst; }),
      error_column(
          "weights", "", 8, "weight_error", [](const C& c) { return c.check.weights.worst; }),
      {.title = "result",
          .value = [](const C& c) { return c.passes() ? "ok" : "WRONG: " + c.failure(); },
          .width = -6}};
}

Json to_json(const Comparison& c) {
  const Check::Figure closest = c.check.closest(c.tolerance);
  Json json = {{"settings", settings_json(c.settings)},
      {"passes", c.passes()},
      {"failure", c.failure()},
      {"closest", closest.what},
      {"limit_share", closest.share()}};
  put(json, columns_of(0), c);
  return json;
}

bool is_reference(const Comparison& c) {
  return c.tolerance.reference == harness::float64_name;
}

/// What was judged, how much room is left, what was not judged.
std::string scope_text(const std::vector<Comparison>& compared, const deck::Deck& deck) {
  const auto share = [](const Comparison& c) { return c.check.closest(c.tolerance).share(); };
  const Comparison& least = *std::ranges::max_element(compared, {}, share);
  const Check::Figure figure = least.check.closest(least.tolerance);
  std::string text =
      "# judged: losses of all steps, gradients of the first and the last, weights after the last, "
      "bytes sent, memory written\n"
      "#   each case against one serial training (the same kernels), that against loops in double "
      "precision\n";
  text += fmt::format("# closest to its limit for rounding, {:.2g} % of it: {}: {} against {}\n",
      100 * figure.share(),
      name_of(least.settings),
      figure.what,
      figure.from);
  for (const std::string& sentence : deck.unused)
    text += fmt::format("# not judged: {}\n", sentence);
  return text + "# not judged: speed; other models, sizes, numbers of ranks, devices\n";
}

/// "VALID: ...", or "INVALID: ..." with how many are wrong, and the first of them.
std::string verdict(const std::vector<Comparison>& compared) {
  const auto references = std::ranges::count_if(compared, is_reference),
             cases = std::ssize(compared) - references;
  const auto wrong = std::ranges::count_if(compared, std::not_fn(&Comparison::passes));
  if (wrong == 0)
    return fmt::format("VALID: {} {} with the serial training, {} of it with the float64 reference",
        counted(cases, "case"),
        cases == 1 ? "agrees" : "agree",
        counted(references, "run"));
  const Comparison& first = *std::ranges::find_if_not(compared, &Comparison::passes);
  return fmt::format("INVALID: {} of {} differ, first {}: {}",
      wrong,
      counted(std::ssize(compared), "comparison"),
      name_of(first.settings),
      first.failure());
}

/// What to do about a case that is wrong.
std::string advice(const std::vector<Comparison>& compared) {
  const auto wrong_reference = [](const Comparison& c) { return is_reference(c) && !c.passes(); };
  return std::ranges::any_of(compared, wrong_reference)
             ? "# next: minitaw_kernels --verify, because one rank alone computes wrong, whatever "
               "the schedule\n"
             : "# next: the wrong case alone (--set), then again; with --repeat 10 a device's "
               "fault "
               "shows\n";
}

/// Throws InputError if some case does not fit, its references included if it is compared with
/// them.
void require_memory(const deck::Deck& deck, const MpiJob& mpi, bool with_references) {
  const MemoryBudget budget(mpi);
  for (const Case& c : deck.cases) {
    const std::string reason = budget.reason_against(
        c, with_references ? harness::memory_of_verify(c, c.steps) : harness::ReferenceMemory());
    if (!reason.empty())
      throw InputError(fmt::format("verify, {} on {}: {}it {}; use a smaller model",
          c.schedule,
          counted(c.ranks, "rank"),
          with_references ? "with the serial and the float64 reference on rank 0 " : "",
          reason));
  }
}

/// Prints a text at once, on rank 0 and unless JSON is asked for.
void say(const VerifyOptions& options, const MpiJob& mpi, const std::string& text) {
  if (mpi.is_root() && !options.json)
    fmt::print("{}", text);
  std::fflush(stdout);
}

/// Writes what every rank has come to, as text or as JSON with these cases. The exit code.
int conclude(
    bool valid, const std::string& text, bool as_json, Json cases, const deck::Deck& deck) {
  write_stdout(as_json ? json_text({{"valid", valid},
                             {"cases", std::move(cases)},
                             {"notes", deck.notes},
                             {"program", record::version_text()}})
                       : text);
  return valid ? 0 : 1;
}

/// A gradient that is missing has an error of 1, which the first step must find.
void require_judgement(const deck::Deck& deck) {
  for (const Case& c : deck.cases)
    if (const double most = std::max(harness::float64_tolerance(c).largest(c.steps),
            harness::serial_tolerance(c).largest(c.steps));
        !(most < 1))
      throw InputError(fmt::format(
          "verify, {}, learning_rate = {}: rounding alone may change a gradient by {:.2g} times "
          "itself; use a lower learning_rate, dtype = fp32, fewer layers or a larger hidden",
          c.schedule,
          c.learning_rate,
          most));
}

/// Compares every case with the serial reference, and that with the float64 model: losses,
/// gradients, last weights.
int verify(const VerifyOptions& options, MpiJob& mpi) {
  const deck::Deck deck = mpi.read(options.deck);
  require_judgement(deck);
  require_memory(deck, mpi, true);
  const TextTable<Comparison> table(columns_of(longest(list_of(deck.cases, &Case::schedule))), {});
  std::vector<Comparison> compared;  // of rank 0
  const auto add = [&](const Comparison& c) {
    say(options, mpi, table.row(c));
    compared.push_back(c);
  };
  say(options, mpi, mpi.head_text(deck) + table.header());
  std::vector<Case> cases = deck.cases;  // those that share a reference follow each other
  std::ranges::stable_sort(cases, {}, harness::reference_key);
  Reference reference;
  std::string key;  // of the reference
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    if (key != harness::reference_key(c))
      harness::agree(MPI_COMM_WORLD, [&] {
        if (!mpi.is_root())
          return;
        say(options,
            mpi,
            fmt::format(
                "# case {} of {}: its serial and its float64 reference\n", i + 1, cases.size()));
        reference = {};  // memory_of_verify() counts one at a time
        reference = harness::serial_reference(c, c.steps);
        add({harness::serial_case(c),
            harness::compare(reference, harness::float64_reference(c, c.steps)),
            harness::float64_tolerance(c)});
      });
    key = harness::reference_key(c);
    const Check check = mpi.runner.verify(c, c.steps, reference);
    if (mpi.is_root())
      add({c, check, harness::serial_tolerance(c)});
  }
  return mpi.on_root([&] {
    const bool valid = std::ranges::all_of(compared, &Comparison::passes);
    const std::string text = scope_text(compared, deck) + (valid ? "" : advice(compared)) +
                             fmt::format("RESULT: {}\n", verdict(compared));
    return conclude(valid, text, options.json, list_of(compared, to_json), deck);
  });
}

/// A line for the case, and one for each of the first tensors that differ.
std::string to_text(const Case& c, const std::vector<std::string>& deviations) {
  constexpr std::size_t most = 8;
  std::string text = fmt::format("{}: {}\n",
      name_of(c),
      deviations.empty() ? "same bits"
                         : fmt::format("DIFFERENT: {}", counted(std::ssize(deviations), "tensor")));
  for (std::size_t i = 0; i < std::min(deviations.size(), most); ++i)
    text += fmt::format("  {}\n", deviations[i]);
  if (deviations.size() > most)
    text += fmt::format("  and {} more (--json has all)\n", deviations.size() - most);
  return text;
}

/// Executes the first step of every case several times from the same state, and compares every bit
/// of what it leaves on each rank.
int repeat(const VerifyOptions& options, MpiJob& mpi) {
  const deck::Deck deck = mpi.read(options.deck);
  require_memory(deck, mpi, false);
  say(options, mpi, mpi.head_text(deck));
  std::vector<std::string> differing;  // the first deviation of each case that has some
  Json cases = Json::array();
  for (const Case& c : deck.cases) {
    const std::vector<std::string> deviations = mpi.runner.repeat(c, options.repeat);
    say(options, mpi, to_text(c, deviations));
    cases.push_back({{"settings", settings_json(c)},
        {"passes", deviations.empty()},
        {"deviations", deviations}});
    if (!deviations.empty())
      differing.push_back(fmt::format("{}: {}", c.schedule, deviations.front()));
  }
  return mpi.on_root([&] {
    const bool valid = differing.empty();
    const std::string count = counted(std::ssize(deck.cases), "case");
    const std::string text =
        valid
            ? fmt::format("RESULT: VALID: {}, each step {} times: losses, gradients and weights "
                          "have the same bits on every rank\n",
                  count,
                  options.repeat)
            : fmt::format("RESULT: INVALID: a repeated step has other bits in {} of {}, first {}\n",
                  differing.size(),
                  count,
                  differing.front());
    return conclude(valid, text, options.json, std::move(cases), deck);
  });
}
}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* verb = app.add_subcommand(
      "verify", "compare losses and gradients of every case with the serial reference");
  add_deck(*verb, options->deck);
  verb->add_option("--repeat",
          options->repeat,
          "instead: execute the first step of every case so many times, and compare every bit")
      ->check(CLI::Range(2, 10'000))
      ->type_name("N");
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.code = in_job(invocation, options->job, [&](MpiJob& mpi) {
      return options->repeat > 0 ? repeat(*options, mpi) : verify(*options, mpi);
    });
  });
}
}  // namespace minitaw::app
