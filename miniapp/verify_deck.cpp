#include "verify_deck.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/agree.hpp"
#include "engine/job.hpp"

namespace minitaw::app {
namespace {

using engine::Check;
using engine::Reference;
using engine::Tolerance;

/// The engine against plain loops in float64: rounding grows with depth and sequence.
Tolerance float64_tolerance(model::Dtype dtype) {
  return dtype == model::Dtype::fp32 ? Tolerance{1e-5, 1e-4, 1e-4} : Tolerance{2e-3, 5e-2, 2e-2};
}

struct Row {
  std::string schedule, groups, against;
  model::Dtype dtype;
  int ranks, replicas;
  Check check;
  Tolerance tolerance;
};

Check compare(const Reference& a, const Reference& b) {
  Check check;
  for (std::size_t s = 0; s < a.losses.size(); ++s) {
    const double error = std::abs(a.losses[s] - b.losses[s]) / std::abs(b.losses[s]);
    if (!(error <= check.loss_error)) check.loss_error = error;
  }
  check.gradients = engine::compare(a.gradients, b.gradients);
  check.weights = engine::compare(a.weights, b.weights);
  return check;
}

std::string line(const Row& row, std::size_t width) {
  return fmt::format("{:<{}} {:>5} {:<11} {:<5} {:<8} {:>9.1e} {:>9.1e} {:>9.1e}  {}\n", row.schedule, width,
                     deck::ranks_text(row.ranks, row.replicas), row.groups, name_of(row.dtype), row.against,
                     row.check.loss_error, row.check.gradients.worst, row.check.weights.worst,
                     row.check.passes(row.tolerance) ? "ok" : "WRONG: " + row.check.failure(row.tolerance));
}

std::string header(std::size_t width) {
  return fmt::format("{:<{}} {:>5} {:<11} {:<5} {:<8} {:>9} {:>9} {:>9}\n", "# schedule", width, "ranks",
                     "groups", "dtype", "against", "loss", "gradients", "weights");
}

nlohmann::json to_json(const Row& row) {
  return {{"schedule", row.schedule},
          {"ranks", row.ranks},
          {"replicas", row.replicas},
          {"groups", row.groups},
          {"dtype", name_of(row.dtype)},
          {"against", row.against},
          {"loss_error", row.check.loss_error},
          {"gradient_error", row.check.gradients.worst},
          {"gradient_tensor", row.check.gradients.tensor},
          {"weight_error", row.check.weights.worst},
          {"weight_tensor", row.check.weights.tensor},
          {"passes", row.check.passes(row.tolerance)}};
}

/// Collects rows on rank 0 and says them as they come.
class Report {
public:
  Report(const VerifyOptions& options, bool speaks, std::size_t width)
      : json_(options.json), speaks_(speaks), width_(width) {
    if (speaks_ && !json_) fmt::print("{}", header(width_));
  }

  void add(Row row) {
    if (speaks_ && !json_) fmt::print("{}", line(row, width_));
    std::fflush(stdout);
    rows_.push_back(std::move(row));
  }

  /// The exit code.
  [[nodiscard]] int close() const {
    const auto wrong = std::ranges::find_if(rows_, [](const Row& r) { return !r.check.passes(r.tolerance); });
    const bool valid = wrong == rows_.end();
    if (speaks_ && json_) {
      nlohmann::json all = {{"valid", valid}, {"cases", nlohmann::json::array()}};
      for (const Row& row : rows_) all["cases"].push_back(to_json(row));
      fmt::print("{}\n", all.dump(2));
    } else if (speaks_) {
      fmt::print("RESULT: {}\n", valid ? "VALID"
                                       : fmt::format("INVALID: {}: {}", wrong->schedule,
                                                     wrong->check.failure(wrong->tolerance)));
    }
    return valid ? 0 : 1;
  }

private:
  bool json_, speaks_;
  std::size_t width_;
  std::vector<Row> rows_;
};

std::size_t schedule_width(const deck::Deck& deck) {
  std::size_t width = 10;
  for (const deck::Case& c : deck.cases) width = std::max(width, c.schedule.size());
  return width;
}

}  // namespace

int verify_deck(const VerifyOptions& options, MpiJob& mpi) {
  const deck::Deck deck = mpi.read(options.deck, options.overrides);
  Report report(options, mpi.speaks(), schedule_width(deck));
  // Cases of one model follow each other by twos and threes, not all at once: dtype is an axis like any
  // other.
  std::map<std::string, Reference> references;
  for (const deck::Case& c : deck.cases) {
    const std::string key = engine::reference_key(c, c.steps);
    engine::agree(MPI_COMM_WORLD, [&] {
      if (!mpi.speaks() || references.contains(key)) return;
      if (references.size() >= 4) references.clear();
      const Reference& made = references[key] = engine::serial_reference(c, c.steps);
      report.add({"serial", "1", "float64", c.shape.dtype, 1, 1,
                  compare(made, engine::float64_reference(c, c.steps)), float64_tolerance(c.shape.dtype)});
    });
    const Check check = mpi.job().verify(c, c.steps, references[key]);
    if (mpi.speaks())
      report.add({c.schedule, c.groups.text(), "serial", c.shape.dtype, c.ranks, c.replicas, check,
                  engine::tolerance_for(c.shape.dtype)});
  }
  int code = mpi.speaks() ? report.close() : 0;
  MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return code;
}

}  // namespace minitaw::app
