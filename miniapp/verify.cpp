#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "harness/case_runner.hpp"
#include "job.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

using harness::Check;
using harness::Reference;
using harness::Tolerance;

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

std::string line(const Row& row, std::size_t width) {
  const Check& c = row.check;
  return fmt::format("{:<{}} {:>5} {:<11} {:<5} {:<17} {:>8.1e} {:>9.1e} {:>8.1e} {:>9.1e} {:>8.1e}  {}\n",
                     row.schedule, width, ranks_text(row.ranks, row.replicas), row.groups, name_of(row.dtype),
                     row.tolerance.reference, c.first.loss, c.first.gradient.worst, c.later.loss,
                     c.later.gradient.worst, c.weights.worst,
                     c.passes(row.tolerance) ? "ok" : "WRONG: " + c.failure(row.tolerance));
}

std::string header(std::size_t width) {
  return fmt::format("{0:<{1}} {2:>5} {2:<11} {2:<5} {2:<17} {3:>18} {4:>18} {2:>8}\n"
                     "{5:<{1}} {6:>5} {7:<11} {8:<5} {9:<17} {10:>8} {11:>9} {10:>8} {11:>9} {12:>8}\n",
                     "#", width, "", "first step", "later steps", "# schedule", "ranks", "groups", "dtype",
                     "against", "loss", "gradient", "weights");
}

Json to_json(const Row& row) {
  const auto step = [](const Check::Step& found) {
    return Json{{"gradient_error", found.gradient.worst},
                {"gradient_tensor", found.gradient.tensor},
                {"loss_error", found.loss}};
  };
  return {{"against", row.tolerance.reference},
          {"dtype", name_of(row.dtype)},
          {"first_step", step(row.check.first)},
          {"groups", row.groups},
          {"later_steps", step(row.check.later)},
          {"passes", row.check.passes(row.tolerance)},
          {"ranks", row.ranks},
          {"replicas", row.replicas},
          {"schedule", row.schedule},
          {"weight_error", row.check.weights.worst},
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
    fmt::print("RESULT: {}\n", valid ? "VALID"
                                     : fmt::format("INVALID: {}: {}", wrong->schedule,
                                                   wrong->check.failure(wrong->tolerance)));
  }
  return valid ? 0 : 1;
}

/// References of so many models are kept: cases of one follow each other by twos and threes, not all at once.
constexpr std::size_t most_held = 4;

/// Throws InputError if some case does not fit, its references included.
void require_memory(const deck::Deck& deck, const MpiJob& mpi) {
  const MemoryBudget budget(mpi);
  std::set<std::string> models;
  for (const Case& c : deck.cases) models.insert(harness::reference_key(c, c.steps));
  const int held = static_cast<int>(std::min(most_held, models.size()));
  for (const Case& c : deck.cases)
    if (const std::string reason = budget.reason_against(c, harness::memory_of_verify(c, c.steps, held));
        !reason.empty())
      throw InputError(
          fmt::format("verify, {} on {} ranks: with the serial and the float64 reference on rank 0 "
                      "it {}; use a smaller model",
                      c.schedule, c.ranks, reason));
}

/// Beyond this learning rate a model forgets what it has learnt from step to step, and rounding with it
/// grows.
void require_stability(const deck::Deck& deck) {
  constexpr double most = 0.01;
  for (const Case& c : deck.cases)
    if (c.learning_rate > most)
      throw InputError(
          fmt::format("verify, learning_rate = {}: above {} training is unstable, and the rounding of "
                      "a right build grows like an error",
                      c.learning_rate, most));
}

/// Compares every case of the deck with the serial reference, and the serial reference with the float64
/// model: losses of all steps, each gradient tensor of the first step, weights after the last.
int verify(const Options& options, MpiJob& mpi) {
  const deck::Deck deck = mpi.read(options.deck);
  require_stability(deck);
  require_memory(deck, mpi);
  std::size_t width = 10;  // of the schedules
  for (const Case& c : deck.cases) width = std::max(width, c.schedule.size());
  std::vector<Row> rows;  // rank 0's; said as they come
  const auto add = [&](const Row& row) {
    if (!options.json) fmt::print("{}{}", rows.empty() ? header(width) : "", line(row, width));
    std::fflush(stdout);
    rows.push_back(row);
  };
  std::map<std::string, Reference> references;
  for (const Case& c : deck.cases) {
    const std::string key = harness::reference_key(c, c.steps);
    harness::agree(MPI_COMM_WORLD, [&] {
      if (!mpi.is_root() || references.contains(key)) return;
      if (references.size() >= most_held) references.clear();
      const Reference& made = references[key] = harness::serial_reference(c, c.steps);
      add({"serial", "1", c.shape.dtype, 1, 1, harness::compare(made, harness::float64_reference(c, c.steps)),
           harness::float64_tolerance(c)});
    });
    const Check check = mpi.runner.verify(c, c.steps, references[key]);
    if (mpi.is_root())
      add({c.schedule, c.groups.text(), c.shape.dtype, c.ranks, c.replicas, check,
           harness::serial_tolerance(c)});
  }
  int code = mpi.is_root() ? conclude(rows, options.json) : 0;
  MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return code;
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("verify", "compare losses and gradients of every case with the serial reference");
  add_deck(*verb, options->deck);
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.code = in_job(invocation, options->job, [&](MpiJob& mpi) { return verify(*options, mpi); });
  });
}

}  // namespace minitaw::app
