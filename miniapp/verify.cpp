// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include "base/error.hpp"
#include "budget.hpp"
#include "cli/cli11.hpp"

namespace minitaw::app {
namespace {
using harness::Check, harness::Tolerance, harness::Training;

struct VerifyOptions {
  DeckOptions deck;
  int repeat = 0;  ///< repetitions of a step that are compared; 0: none, cases and references are
  bool json = false;
};

std::string description_of(const Case& c) {
  return fmt::format("{}, {} in groups {}, {}{}",
      c.schedule,
      counted(c.ranks, "rank"),
      c.groups.text(),
      c.shape.shares_sequences() ? fmt::format("context {}, ", c.shape.context.count) : "",
      name_of(c.shape.dtype));
}

/// A case beside its reference: the serial training, or that beside the float64 reference.
struct VerifiedCase {
  Case asked;
  Check check;
  Tolerance tolerance;

  std::string failure() const { return check.failure(tolerance); }

  bool passes() const { return failure().empty(); }

  Check::Figure closest() const { return check.closest(tolerance); }

  bool is_of_reference() const { return tolerance.reference == harness::float64_name; }
};

TableColumn<VerifiedCase> error_column(
    const char* title, const char* units, const char* name, auto value) {
  return {.title = title,
      .units = units,
      .value = value,
      .format = {.style = Format::scientific, .decimals = 1},
      .name = name};
}

std::vector<TableColumn<VerifiedCase>> all_columns() {
  using C = VerifiedCase;
  return {{.title = "schedule", .value = [](const C& c) { return c.asked.schedule; }, .width = -1},
      {.title = "ranks",
          .value = [](const C& c) { return ranks_text(c.asked.ranks, c.asked.replicas); }},
      setting_column<C>("groups"),
      setting_column<C>("context"),
      setting_column<C>("dtype"),
      {.title = "against",
          .value = [](const C& c) { return c.tolerance.reference; },
          .width = -17,
          .name = "against"},
      error_column("loss",
          "first step",
          "first_step.loss_error",
          [](const C& c) { return c.check.first.loss; }),
      error_column("gradient",
          "first step",
          "first_step.gradient_error",
          [](const C& c) { return c.check.first.gradient.worst; }),
      error_column("loss",
          "later steps",
          "later_steps.loss_error",
          [](const C& c) { return c.check.later.loss; }),
      error_column("gradient",
          "later steps",
          "later_steps.gradient_error",
          [](const C& c) { return c.check.later.gradient.worst; }),
      error_column("weights", "", "weight_error", [](const C& c) { return c.check.weights.worst; }),
      {.title = "result",
          .value = [](const C& c) { return c.passes() ? "ok" : "WRONG: " + c.failure(); },
          .width = -1}};
}

Json json_of_verified(const VerifiedCase& c) {
  Json json = {{"settings", settings_json(c.asked)},
      {"passes", c.passes()},
      {"failure", c.failure()},
      {"closest", c.closest().what},
      {"limit_share", c.closest().share()}};
  put(json, all_columns(), c);
  return json;
}

/// "VALID: ...", or "INVALID: ..." with how many are wrong, and the first of them.
std::string verdict_of(const std::vector<VerifiedCase>& compared) {
  const auto references = std::ranges::count_if(compared, &VerifiedCase::is_of_reference),
             cases = std::ssize(compared) - references,
             wrong = std::ranges::count(compared, false, &VerifiedCase::passes);
  if (wrong == 0)
    return fmt::format("VALID: {} {} with the serial training, {} of it with the float64 reference",
        counted(cases, "case"),
        cases == 1 ? "agrees" : "agree",
        counted(references, "run"));
  const VerifiedCase& first = *std::ranges::find(compared, false, &VerifiedCase::passes);
  return fmt::format("INVALID: {} of {} differ, first {}: {}",
      wrong,
      counted(std::ssize(compared), "comparison"),
      description_of(first.asked),
      first.failure());
}

/// Says what was judged, how much room is left, and what was not judged.
std::string scope_text(const std::vector<VerifiedCase>& compared, const deck::Deck& deck) {
  const auto share = [](const VerifiedCase& c) { return c.closest().share(); };
  const VerifiedCase& least = *std::ranges::max_element(compared, {}, share);
  std::string text = fmt::format(
      "# judged: losses, gradients, weights, bytes sent, memory written; not speed, nor other "
      "models, sizes, numbers of ranks, devices\n"
      "# closest to its limit for rounding, {:.2g} % of it: {}: {} against {}\n",
      100 * share(least),
      description_of(least.asked),
      least.closest().what,
      least.closest().from);
  for (const std::string& sentence : deck.left_out)
    text += fmt::format("# not judged: {}\n", sentence);
  if (std::ranges::any_of(
          compared, [](const VerifiedCase& c) { return c.is_of_reference() && !c.passes(); }))
    text += "# next: minitaw_kernels --verify, because one rank alone computes wrong\n";
  return text;
}

/// A line for the case, and one for each of the first tensors that differ.
std::string to_text(const Case& c, const std::vector<std::string>& deviations) {
  constexpr std::size_t most = 8;
  const std::size_t count = deviations.size();
  std::string text = fmt::format("{}: {}\n",
      description_of(c),
      count == 0 ? "same bits" : "DIFFERENT: " + counted(std::ssize(deviations), "tensor"));
  for (std::size_t i = 0; i < std::min(count, most); ++i)
    text += fmt::format("  {}\n", deviations[i]);
  if (count > most)
    text += fmt::format("  and {} more (--json has all)\n", count - most);
  return text;
}

/// The verb in a job.
class Verification {
public:
  Verification(const Invocation& invocation, const VerifyOptions& options, MpiJob& mpi)
      : invocation_(invocation),
        options_(options),
        mpi_(mpi),
        deck_(mpi.read(options.deck)) {}

  /// Compares every case with the serial reference, and that with the float64 model: losses,
  /// gradients, last weights. The exit code.
  int compare() {
    mpi_.agree([this] { require_judgement(); });
    for (const Case& c : deck_.cases)
      require_memory(
          c, memory_of_verify(c, c.steps), "with the serial and the float64 reference on rank 0 ");
    const TextTable<VerifiedCase> table(all_columns(), list_of(deck_.cases, [](const Case& c) {
      return VerifiedCase{c, {}, harness::serial_tolerance(c)};  // as wide as a row becomes
    }));
    std::vector<VerifiedCase> compared;  // of rank 0
    const auto add = [&](const VerifiedCase& c) {
      say(table.row(c));
      compared.push_back(c);
    };
    say(mpi_.head_text(deck_) + table.header());
    std::vector<Case> cases = deck_.cases;  // those that share a reference follow each other
    std::ranges::stable_sort(cases, {}, harness::reference_key);
    Training reference;
    std::string key;  // of the reference
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      if (key != harness::reference_key(c))
        harness::agree_on_root(MPI_COMM_WORLD, [&] {
          say(fmt::format(
              "# case {} of {}: its serial and its float64 reference\n", i + 1, cases.size()));
          reference = {};  // memory_of_verify() counts one at a time
          reference = harness::serial_reference(c, c.steps);
          add({harness::serial_case(c),
              harness::compare(reference, harness::float64_reference(c, c.steps)),
              harness::float64_tolerance(c)});
        });
      key = harness::reference_key(c);
      const Check check = mpi_.runner.verify(c, c.steps, reference);
      if (mpi_.is_root())
        add({c, check, harness::serial_tolerance(c)});
    }
    return mpi_.on_root([&] {
      return conclude(
          verdict_of(compared), scope_text(compared, deck_), list_of(compared, json_of_verified));
    });
  }

  /// Executes the first step of every case several times from the same state, and compares every
  /// bit of what it leaves on each rank. The exit code.
  int repeat() {
    for (const Case& c : deck_.cases)
      require_memory(c, {}, "");
    say(mpi_.head_text(deck_));
    std::vector<std::string> differing;  // the first deviation of each case that has some
    Json cases = Json::array();
    for (const Case& c : deck_.cases) {
      const std::vector<std::string> deviations = mpi_.runner.repeat(c, options_.repeat);
      say(to_text(c, deviations));
      cases.push_back({{"settings", settings_json(c)},
          {"passes", deviations.empty()},
          {"deviations", deviations}});
      if (!deviations.empty())
        differing.push_back(fmt::format("{}: {}", c.schedule, deviations.front()));
    }
    const std::string count = counted(std::ssize(deck_.cases), "case");
    const std::string verdict =
        differing.empty()
            ? fmt::format("VALID: {}, each step {} times: losses, gradients and weights have the "
                          "same bits on every rank",
                  count,
                  options_.repeat)
            : fmt::format("INVALID: a repeated step has other bits in {} of {}, first {}",
                  differing.size(),
                  count,
                  differing.front());
    return mpi_.on_root([&] { return conclude(verdict, "", cases); });
  }

private:
  /// A gradient that is missing has an error of 1, which the first step must find.
  void require_judgement() const {
    for (const Case& c : deck_.cases)
      if (const double most = std::max(harness::float64_tolerance(c).largest(c.steps),
              harness::serial_tolerance(c).largest(c.steps));
          !(most < 1))
        throw InputError(
            "verify, {}, learning_rate = {}: rounding alone may change a gradient by {:.2g} times "
            "itself; use a lower learning_rate, dtype = fp32, fewer layers or a larger hidden",
            c.schedule,
            c.learning_rate,
            most);
  }

  void require_memory(const Case& c, const ReferenceMemory& reference, const char* with) const {
    harness::agree_on_root(MPI_COMM_WORLD, [&] {
      const std::string reason = budget_.reason_against(c, reference);
      if (!reason.empty())
        throw InputError("verify, {} on {}: {}it {}; use a smaller model",
            c.schedule,
            counted(c.ranks, "rank"),
            with,
            reason);
    });
  }

  /// Prints a text at once, on rank 0 and unless JSON is asked for.
  void say(const std::string& text) const {
    if (mpi_.is_root() && !options_.json)
      (void)try_stdout(text);  // conclude() refuses what cannot be written
  }

  /// Writes what every rank has come to. The exit code.
  int conclude(const std::string& verdict, const std::string& scope, const Json& cases) const {
    const bool valid = verdict.starts_with("VALID");
    if (options_.json)
      write_json(invocation_,
          {{"verdict", verdict}, {"valid", valid}, {"cases", cases}, {"notes", deck_.notes}});
    else
      write_stdout(fmt::format("{}RESULT: {}\n", scope, verdict));
    return valid ? 0 : 1;
  }

  const Invocation& invocation_;
  const VerifyOptions& options_;
  MpiJob& mpi_;
  const deck::Deck deck_;
  const MemoryBudget budget_{mpi_};
};

class Verify final : public JobVerb {
public:
  explicit Verify(CLI::App& app)
      : JobVerb(
            app, "verify", "compare losses and gradients of every case with the serial reference") {
    add_deck(command_, options_.deck);
    command_
        .add_option("--repeat",
            options_.repeat,
            "instead: execute the first step of every case so many times, and compare every bit")
        ->check(CLI::Range(2, 10'000))
        ->type_name("N");
    add_json(command_, options_.json);
    add_job_flags(command_, flags_);
  }

private:
  int work(const Invocation& invocation, MpiJob& mpi) override {
    Verification verification(invocation, options_, mpi);
    return options_.repeat > 0 ? verification.repeat() : verification.compare();
  }

  VerifyOptions options_;
};
}  // namespace

std::unique_ptr<Verb> make_verify(CLI::App& app) {
  return std::make_unique<Verify>(app);
}
}  // namespace minitaw::app
