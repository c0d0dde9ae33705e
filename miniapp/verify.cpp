// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "job.hpp"

namespace minitaw::app {
namespace {
using harness::Check, harness::Reference, harness::Tolerance;

struct Options {
  DeckOptions deck;
  bool json = false;
  JobFlags job;
};

struct Row {
  std::string schedule, groups;
  model::Dtype dtype;
  int ranks, replicas;
  Check check;
  Tolerance tolerance;
};

/// `width`: of the longest schedule. On a terminal, columns that do not fit are left out.
record::TextTable<Row> make_table(int width) {
  const auto error = [](auto value) {
    return [value](const Row& row) { return fmt::format("{:.1e}", value(row.check)); };
  };
  return {{{"schedule", "", -width, [](const Row& row) { return row.schedule; }},
              {"ranks", "", 5, [](const Row& row) { return ranks_text(row.ranks, row.replicas); }},
              {"groups", "", -11, [](const Row& row) { return row.groups; }, 4},
              {"dtype", "", -5, [](const Row& row) { return std::string(name_of(row.dtype)); }, 3},
              {"against", "", -17, [](const Row& row) { return row.tolerance.reference; }},
              {"loss", "first step", 10, error([](const Check& c) { return c.first.loss; }), 1},
              {"gradient", "first step", 10, error([](const Check& c) { return c.first.gradient.worst; })},
              {"loss", "later steps", 11, error([](const Check& c) { return c.later.loss; }), 2},
              {"gradient", "later steps", 11, error([](const Check& c) { return c.later.gradient.worst; })},
              {"weights", "", 8, error([](const Check& c) { return c.weights.worst; })},
              {"result", "", -6,
                  [](const Row& row) {
                    return row.check.passes(row.tolerance) ? "ok" : "WRONG: " + row.check.failure(row.tolerance);
                  }}},
      {}, terminal_width()};
}

Json to_json(const Row& row) {
  const auto step = [](const Check::Step& found) {
    return Json{{"gradient_error", found.gradient.worst}, {"gradient_tensor", found.gradient.tensor},
        {"loss_error", found.loss}};
  };
  return {{"against", row.tolerance.reference}, {"dtype", name_of(row.dtype)},
      {"failure", row.check.failure(row.tolerance)}, {"first_step", step(row.check.first)}, {"groups", row.groups},
      {"later_steps", step(row.check.later)}, {"passes", row.check.passes(row.tolerance)}, {"ranks", row.ranks},
      {"replicas", row.replicas}, {"schedule", row.schedule}, {"weight_error", row.check.weights.worst},
      {"weight_tensor", row.check.weights.tensor}};
}

/// Says what it has come to. The exit code.
int conclude(const std::vector<Row>& rows, bool json) {
  const auto wrong = std::ranges::find_if(rows, [](const Row& r) { return !r.check.passes(r.tolerance); });
  const bool valid = wrong == rows.end();
  if (json) {
    Json cases = Json::array();
    for (const Row& row : rows) cases.push_back(to_json(row));
    write_stdout(json_text({{"cases", cases}, {"valid", valid}}));
  } else {
    fmt::print("RESULT: {}\n",
        valid ? "VALID" : fmt::format("INVALID: {}: {}", wrong->schedule, wrong->check.failure(wrong->tolerance)));
  }
  return valid ? 0 : 1;
}

/// References of so many models are kept: cases of one follow each other by twos and threes, not all at once.
constexpr std::size_t most_held = 4;

/// Throws InputError if some case does not fit, its references included.
void require_memory(const deck::Deck& deck, const MpiJob& mpi) {
  const MemoryBudget budget(mpi);
  std::set<std::string> models;
  for (const Case& c : deck.cases) models.insert(harness::reference_key(c));
  const int held = static_cast<int>(std::min(most_held, models.size()));
  for (const Case& c : deck.cases)
    if (const std::string reason = budget.reason_against(c, harness::memory_of_verify(c, c.steps, held));
        !reason.empty())
      throw InputError(fmt::format("verify, {} on {}: with the serial and the float64 reference on rank 0 "
                                   "it {}; use a smaller model",
          c.schedule, counted(c.ranks, "rank"), reason));
}

/// A gradient that is missing has an error of 1, which the first step must find.
void require_judgement(const deck::Deck& deck) {
  for (const Case& c : deck.cases)
    if (const double most =
            std::max(harness::float64_tolerance(c).largest(c.steps), harness::serial_tolerance(c).largest(c.steps));
        !(most < 1))
      throw InputError(
          fmt::format("verify, {}, learning_rate = {}: rounding alone may change a gradient by {:.2g} times "
                      "itself; use a lower learning_rate, dtype = fp32, fewer layers or a larger hidden",
              c.schedule, c.learning_rate, most));
}

/// Compares every case with the serial reference, and that with the float64 model: losses, gradients, last weights.
int verify(const Options& options, MpiJob& mpi) {
  const deck::Deck deck = mpi.read(options.deck);
  require_judgement(deck);
  require_memory(deck, mpi);
  const record::TextTable<Row> table = make_table(longest(list_of(deck.cases, &Case::schedule)));
  std::vector<Row> rows;  // of rank 0
  const auto say = [&](const std::string& text) {
    if (mpi.is_root() && !options.json) fmt::print("{}", text);
    std::fflush(stdout);
  };
  const auto add = [&](const Row& row) {
    say(table.row(row));
    rows.push_back(row);
  };
  say(table.header());
  std::map<std::string, Reference> references;
  for (std::size_t i = 0; i < deck.cases.size(); ++i) {
    const Case& c = deck.cases[i];
    const std::string key = harness::reference_key(c);
    harness::agree(MPI_COMM_WORLD, [&] {
      if (!mpi.is_root() || references.contains(key)) return;
      if (references.size() >= most_held) references.clear();
      say(fmt::format("# case {} of {}: its serial and its float64 reference\n", i + 1, deck.cases.size()));
      const Reference& made = references[key] = harness::serial_reference(c, c.steps);
      add({"serial", "1", c.shape.dtype, 1, 1, harness::compare(made, harness::float64_reference(c, c.steps)),
          harness::float64_tolerance(c)});
    });
    const Check check = mpi.runner.verify(c, c.steps, references[key]);
    if (mpi.is_root())
      add({c.schedule, c.groups.text(), c.shape.dtype, c.ranks, c.replicas, check, harness::serial_tolerance(c)});
  }
  return mpi.on_root([&] { return conclude(rows, options.json); });
}
}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("verify", "compare losses and gradients of every case with the serial reference");
  add_deck(*verb, options->deck);
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.code = in_job(invocation, options->job, [&](MpiJob& mpi) { return verify(*options, mpi); });
  });
}
}  // namespace minitaw::app
