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

  [[nodiscard]] std::string name() const {
    return fmt::format(
        "{}, {} in groups {}, {}", schedule, counted(ranks, "rank"), groups, name_of(dtype));
  }
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
              {"gradient", "first step", 10, error([](const Check& c) {
                 return c.first.gradient.worst;
               })},
              {"loss", "later steps", 11, error([](const Check& c) { return c.later.loss; }), 2},
              {"gradient", "later steps", 11, error([](const Check& c) {
                 return c.later.gradient.worst;
               })},
              {"weights", "", 8, error([](const Check& c) { return c.weights.worst; })},
              {"result",
                  "",
                  -6,
                  [](const Row& row) {
                    return row.check.passes(row.tolerance)
                               ? "ok"
                               : "WRONG: " + row.check.failure(row.tolerance);
                  }}},
      {},
      terminal_width()};
}

Json to_json(const Row& row) {
  const auto step = [](const Check::Step& found) {
    return Json{{"gradient_error", found.gradient.worst},
        {"gradient_tensor", found.gradient.tensor},
        {"loss_error", found.loss}};
  };
  const Check::Figure closest = row.check.closest(row.tolerance);
  return {{"against", row.tolerance.reference},
      {"closest", closest.what},
      {"dtype", name_of(row.dtype)},
      {"failure", row.check.failure(row.tolerance)},
      {"first_step", step(row.check.first)},
      {"groups", row.groups},
      {"later_steps", step(row.check.later)},
      {"limit_share", closest.share()},
      {"passes", row.check.passes(row.tolerance)},
      {"ranks", row.ranks},
      {"replicas", row.replicas},
      {"schedule", row.schedule},
      {"weight_error", row.check.weights.worst},
      {"weight_tensor", row.check.weights.tensor}};
}

bool is_right(const Row& row) {
  return row.check.passes(row.tolerance);
}

bool is_reference(const Row& row) {
  return row.tolerance.reference == harness::float64_name;
}

/// What was judged, how much room is left, what was not judged.
std::string scope_text(const std::vector<Row>& rows, const deck::Deck& deck) {
  const auto share = [](const Row& row) { return row.check.closest(row.tolerance).share(); };
  const Row& least = *std::ranges::max_element(rows, {}, share);
  const Check::Figure figure = least.check.closest(least.tolerance);
  std::string text = "# judged: losses of all steps, gradients of the first and the last, weights "
                     "after the last, bytes sent, memory "
                     "written\n"
                     "#   each case against one serial training (the same kernels), that against "
                     "loops in double precision\n";
  text += fmt::format("# closest to its limit for rounding, {:.2g} % of it: {}: {} against {}\n",
      100 * figure.share(),
      least.name(),
      figure.what,
      figure.from);
  for (const std::string& sentence : deck.unused)
    text += fmt::format("# not judged: {}\n", sentence);
  return text + "# not judged: speed; other models, sizes, numbers of ranks, devices\n";
}

/// "VALID: ...", or "INVALID: ..." with how many are wrong, and the first of them.
std::string verdict(const std::vector<Row>& rows) {
  const auto references = std::ranges::count_if(rows, is_reference),
             cases = std::ssize(rows) - references;
  const auto wrong = std::ranges::count_if(rows, std::not_fn(is_right));
  if (wrong == 0)
    return fmt::format("VALID: {} {} with the serial training, {} of it with the float64 reference",
        counted(cases, "case"),
        cases == 1 ? "agrees" : "agree",
        counted(references, "run"));
  const Row& first = *std::ranges::find_if_not(rows, is_right);
  return fmt::format("INVALID: {} of {} differ, first {}: {}",
      wrong,
      counted(std::ssize(rows), "comparison"),
      first.name(),
      first.check.failure(first.tolerance));
}

/// What to do about a case that is wrong.
std::string advice(const std::vector<Row>& rows) {
  const auto wrong_reference = [](const Row& row) { return is_reference(row) && !is_right(row); };
  return std::ranges::any_of(rows, wrong_reference)
             ? "# next: minitaw_kernels --verify, because one rank alone computes wrong, whatever "
               "the schedule\n"
             : "# next: the wrong case alone (--set), then again; minitaw screen --replay tells a "
               "device's fault\n";
}

/// Says what it has come to. The exit code.
int conclude(const std::vector<Row>& rows, const deck::Deck& deck, bool json) {
  const bool valid = std::ranges::all_of(rows, is_right);
  if (json) {
    Json cases = Json::array();
    for (const Row& row : rows)
      cases.push_back(to_json(row));
    write_stdout(json_text({{"cases", cases},
        {"notes", deck.notes},
        {"program", record::version_text()},
        {"valid", valid}}));
  } else {
    fmt::print(
        "{}{}RESULT: {}\n", scope_text(rows, deck), valid ? "" : advice(rows), verdict(rows));
  }
  return valid ? 0 : 1;
}

/// References of so many models are kept: cases of one follow each other by twos and threes, not
/// all at once.
constexpr std::size_t most_held = 4;

/// Throws InputError if some case does not fit, its references included.
void require_memory(const deck::Deck& deck, const MpiJob& mpi) {
  const MemoryBudget budget(mpi);
  std::set<std::string> models;
  for (const Case& c : deck.cases)
    models.insert(harness::reference_key(c));
  const int held = static_cast<int>(std::min(most_held, models.size()));
  for (const Case& c : deck.cases)
    if (const std::string reason =
            budget.reason_against(c, harness::memory_of_verify(c, c.steps, held));
        !reason.empty())
      throw InputError(
          fmt::format("verify, {} on {}: with the serial and the float64 reference on rank 0 "
                      "it {}; use a smaller model",
              c.schedule,
              counted(c.ranks, "rank"),
              reason));
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

/// Who computes what, and where: a verdict holds for this alone.
std::string head_text(const deck::Deck& deck, const MpiJob& mpi) {
  std::string text = fmt::format("# {}\n{}{}{}",
      record::version_text(),
      mpi.map_text(),
      record::settings_text(record::preview(deck.cases)),
      record::links_text(record::shaped_links()));
  for (const std::string& sentence : deck.notes)
    text += fmt::format("# {}\n", sentence);
  return text;
}

/// Compares every case with the serial reference, and that with the float64 model: losses,
/// gradients, last weights.
int verify(const Options& options, MpiJob& mpi) {
  const deck::Deck deck = mpi.read(options.deck);
  require_judgement(deck);
  require_memory(deck, mpi);
  const record::TextTable<Row> table = make_table(longest(list_of(deck.cases, &Case::schedule)));
  std::vector<Row> rows;  // of rank 0
  const auto say = [&](const std::string& text) {
    if (mpi.is_root() && !options.json)
      fmt::print("{}", text);
    std::fflush(stdout);
  };
  const auto add = [&](const Row& row) {
    say(table.row(row));
    rows.push_back(row);
  };
  say(head_text(deck, mpi));
  say(table.header());
  std::map<std::string, Reference> references;
  for (std::size_t i = 0; i < deck.cases.size(); ++i) {
    const Case& c = deck.cases[i];
    const std::string key = harness::reference_key(c);
    harness::agree(MPI_COMM_WORLD, [&] {
      if (!mpi.is_root() || references.contains(key))
        return;
      if (references.size() >= most_held)
        references.clear();
      say(fmt::format(
          "# case {} of {}: its serial and its float64 reference\n", i + 1, deck.cases.size()));
      const Reference& made = references[key] = harness::serial_reference(c, c.steps);
      add({"serial",
          "1",
          c.shape.dtype,
          1,
          1,
          harness::compare(made, harness::float64_reference(c, c.steps)),
          harness::float64_tolerance(c)});
    });
    const Check check = mpi.runner.verify(c, c.steps, references[key]);
    if (mpi.is_root())
      add({c.schedule,
          c.groups.text(),
          c.shape.dtype,
          c.ranks,
          c.replicas,
          check,
          harness::serial_tolerance(c)});
  }
  return mpi.on_root([&] { return conclude(rows, deck, options.json); });
}
}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "verify", "compare losses and gradients of every case with the serial reference");
  add_deck(*verb, options->deck);
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.code =
        in_job(invocation, options->job, [&](MpiJob& mpi) { return verify(*options, mpi); });
  });
}
}  // namespace minitaw::app
