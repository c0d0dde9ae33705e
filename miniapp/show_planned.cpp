#include "show_planned.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "engine/account.hpp"
#include "schedule/registry.hpp"
#include "schedule/validate.hpp"
#include "trace/mean_costs.hpp"

namespace minitaw::app {

namespace {

[[noreturn]] void refuse_other_plan() {
  throw InputError(
      "--planned: the file is from a version of minitaw that planned this case otherwise; run it "
      "again, or leave --planned out");
}

/// A number that a plan has at least as many actions as.
int count_of(const record::Row& row, const char* column, const trace::Timeline& measured) {
  const std::int64_t count = row.integer(column);
  if (count < 0 || count > std::ssize(measured.events)) refuse_other_plan();
  return static_cast<int>(count);
}

schedule::Program program_of(const record::Row& row, const trace::Timeline& measured) {
  schedule::Request request;
  request.spec = schedule::parse_spec(row.text("schedule"));
  request.groups = topology::parse_groups(row.text("groups"));
  request.micro_batches = count_of(row, "micro_batches", measured);
  request.layers = count_of(row, "layers", measured);
  request.replicas = std::max(1, count_of(row, "replicas", measured));  // 0 in files before schema 3
  schedule::check(request);
  schedule::Program program = schedule::build(request);
  schedule::require_valid(program);
  return program;
}

bool is_of(const trace::Event& e, int rank, const schedule::Action& a) {
  return e.rank == rank && e.kind == a.kind && e.lane == a.lane && e.payload == a.payload &&
         e.shard == a.shard && e.micro_batch == a.micro_batch && e.peer == a.peer;
}

bool is_of(const trace::Timeline& measured, const schedule::Program& program) {
  std::size_t next = 0;
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    for (const schedule::Action& a : program.ranks[r].actions)
      if (next == measured.events.size() || !is_of(measured.events[next++], r, a)) return false;
  return next == measured.events.size();
}

/// A file may come from a version whose schedule was another one.
void require_same_actions(const schedule::Program& program, const trace::Timeline& measured) {
  if (!is_of(measured, program)) refuse_other_plan();
}

std::string case_text(const record::Row& row) {
  return fmt::format("{}: {} ranks in groups {}, {} blocks, H = {}, S = {}, B = {}, M = {}, {}",
                     row.text("schedule"), row.integer("ranks"), row.text("groups"), row.integer("layers"),
                     row.integer("hidden"), row.integer("seq"), row.integer("micro_batch"),
                     row.integer("micro_batches"), row.text("dtype"));
}

/// Shares of the ranks' time; overlap is NaN without communication.
std::string parts_text(double seconds, double compute, double exposed, double idle, double overlap) {
  std::string text =
      fmt::format("step {:.4g} ms: {:.1f}% computing, {:.1f}% exposed to transfers, {:.1f}% idle",
                  seconds * 1e3, 100 * compute, 100 * exposed, 100 * idle);
  if (overlap >= 0) text += fmt::format("; {:.1f}% of communication hidden", 100 * overlap);
  return text;
}

std::string parts_text(const engine::StepAccount& step) {
  engine::RankAccount sum;
  double exposed = 0;
  for (const engine::RankAccount& rank : step.ranks) {
    sum.compute += rank.compute;
    sum.idle += rank.idle;
    sum.communication += rank.communication;
    sum.hidden += rank.hidden;
    exposed += rank.exposed_total();
  }
  const double all = step.length * static_cast<double>(step.ranks.size());
  return parts_text(step.length, sum.compute / all, exposed / all, sum.idle / all,
                    sum.hidden / sum.communication);
}

}  // namespace

trace::Timeline planned_timeline(const record::Row& row, const trace::Timeline& measured) {
  const schedule::Program program = program_of(row, measured);
  require_same_actions(program, measured);
  const bool unequal = !row.text("micro_batch_per_rank").empty();
  const auto spans = schedule::simulate(program, trace::mean_costs(measured, unequal));
  const std::string parts = parts_text(engine::account(program, engine::as_measured(program, spans)));
  const std::string title = fmt::format("{}\n{}\nevery action takes its measured mean (by kind, lane, "
                                        "payload, shard{}); transfers do not slow each "
                                        "other down",
                                        case_text(row), parts, unequal ? ", rank" : "");
  return trace::make_timeline(program, spans, title, false);
}

std::string measured_title(const record::Row& row, const trace::Timeline& measured) {
  const double exposed = row.real("exposed_share"), bubble = row.real("bubble");
  return fmt::format(
      "{}\n{}", case_text(row),
      parts_text(trace::length(measured), 1 - exposed - bubble, exposed, bubble, row.real("overlap")));
}

}  // namespace minitaw::app
