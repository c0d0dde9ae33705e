// SPDX-License-Identifier: BSD-3-Clause
#include "record/schema.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include "base/error.hpp"
#include "deck/deck.hpp"
#include "deck/keys.hpp"
#include "record/verdict.hpp"

namespace minitaw::record {
namespace {
using M = MeasuredRun;
using R = CaseResult;
using Time = trace::RankTime;
using schedule::Traffic;

/// A column of every printed table.
Shown always(const std::string& title, const std::string& units, int width, Format format = {}) {
  return {.title = title, .units = units, .format = format, .width = width};
}

/// A column that a narrow table goes without.
Shown wide(const std::string& title, const std::string& units, int width, Format format = {}) {
  Shown column = always(title, units, width, format);
  column.wide = true;
  return column;
}

constexpr Format as_loss{.style = Format::fixed, .decimals = 4};
constexpr Format as_error{.style = Format::scientific, .decimals = 0};

/// An empty case in which nothing is divided by 0.
Case example_case() {
  Case c;
  c.shape.heads = c.shape.kv_heads = 1;
  return c;
}

// Columns.

/// `value` is a function or a member of a run, or of one of its parts.
template <class Value>
Column column(const std::string& name,
    const std::string& units,
    const std::string& doc,
    const Value& value,
    std::optional<Shown> shown = {}) {
  const auto cell = [value](const M& m) -> Cell {
    if constexpr (std::is_invocable_v<Value, M>)
      return std::invoke(value, m);
    else if constexpr (std::is_invocable_v<Value, R>)
      return std::invoke(value, m.result);
    else if constexpr (std::is_invocable_v<Value, RunPosition>)
      return std::invoke(value, m.position);
    else {
      static_assert(std::is_invocable_v<Value, trace::RankTime>,
          "a value is taken of MeasuredRun, CaseResult, RunPosition or RankTime");
      return std::invoke(value, m.mean);
    }
  };
  return {{name, units, "run", doc}, cell, std::move(shown)};
}

/// Returns what an instrument has found, or `otherwise` if none has.
std::function<Cell(const M&)> found(std::string_view name, const Cell& otherwise) {
  return [=](const M& m) {
    for (const auto& [known, value] : m.result.found)
      if (known == name)
        return value;
    return otherwise;
  };
}

/// The largest value of all ranks.
auto worst(auto value_of_rank) {
  return [=](const R& result) {
    std::uint64_t most = 0;
    for (const RankMemory& rank : result.memory)
      most = std::max(most, std::invoke(value_of_rank, rank));
    return static_cast<std::int64_t>(most);
  };
}

double mean_idle_ticks(const R& result) {
  const std::vector<int>& ticks = result.idle_ticks;
  return std::accumulate(ticks.begin(), ticks.end(), 0.0) / static_cast<double>(ticks.size());
}

std::vector<Column> columns_of_settings() {
  const std::map<std::string, Shown> shown = {
      {"schedule", always("schedule", "", -8)},
      {"ranks", wide("ranks", "", 5)},
      {"groups", wide("groups", "", -6)},
      {"seq", wide("seq", "token", 7)},
      {"micro_batch", wide("B", "", 3)},
      {"micro_batches", wide("M", "", 4)},
  };
  std::vector<Column> all;
  for (const deck::Setting& setting : deck::settings()) {
    const bool is_text = std::holds_alternative<std::string>(setting.value(example_case()));
    const std::string units = is_text ? "text" : setting.units;
    const auto value = [&setting](const M& m) { return setting.value(m.asked()); };
    all.push_back(column(setting.name, units, setting.doc, value));
    all.back().is_setting = true;
    if (const auto look = shown.find(setting.name); look != shown.end())
      all.back().shown = look->second;
  }
  return all;
}

/// The time of the day at the begin (0) or the end of timed steps; empty: it was not reached.
auto real_time(std::size_t moment) {
  constexpr std::size_t real = 1;
  return [=](const R& r) { return r.clocks.empty() ? "" : utc_text(r.clocks.at(moment).at(real)); };
}

std::vector<Column> columns_of_position() {
  return {
      column("case",
          "1",
          "Number of the case, in the order of the first runs.",
          &RunPosition::case_number,
          always("case", "", 5)),
      column("repetition",
          "1",
          "Repetition of the case, from 0. The last row of a repetition counts.",
          &RunPosition::repetition,
          wide("rep", "", 3)),
      column("session", "1", "Session that ran it: /sessions/NNNN.", &RunPosition::session),
      column("started", "text", "Start of the run, ISO 8601, UTC.", &R::started),
      column(
          "begun", "text", "Begin of the first timed step, by the clock of rank 0.", real_time(0)),
      column("ended", "text", "End of the last timed step on all ranks.", real_time(1)),
  };
}

std::vector<Column> columns_of_rates() {
  return {
      column("median_s",
          "s",
          "Median of the samples. A sample is a timed step, by its slowest rank.",
          &M::step,
          always("step", "s", 9)),
      column("q1_s",
          "s",
          "First quartile of the samples, interpolated linearly.",
          &M::q1,
          wide("q1", "s", 9)),
      column("q3_s", "s", "Third quartile of the samples.", &M::q3, wide("q3", "s", 9)),
      column("samples", "1", "Timed steps.", [](const M& m) { return std::ssize(m.samples); }),
      column("spread", "1", "(q3_s - q1_s) / median_s.", &M::spread),
      column("tokens_per_s",
          "token/s",
          "M B S / median_s.",
          &M::tokens_per_s,
          always("rate", "token/s", 9)),
      column("tokens_per_s_rank",
          "token/s",
          "tokens_per_s / ranks.",
          [](const M& m) { return m.tokens_per_s / m.asked().ranks; }),
      column("tflops_causal",
          "TFLOP/s",
          "Model FLOPs of all ranks with causal attention, recomputation not counted.",
          &M::tflops),
      column("tflops_rank",
          "TFLOP/s",
          "tflops_causal / ranks.",
          &M::tflops_rank,
          wide("rank", "TFLOP/s", 9)),
      column("peak",
          "TFLOP/s",
          "Peak of the device of a rank: run --peak, or its dense datasheet value. NaN: unknown.",
          [](const R& r) { return 1e-12 * r.peak; }),
      column(
          "mfu",
          "1",
          "Model FLOPs utilisation: tflops_rank / peak.",
          [](const M& m) { return 1e12 * m.tflops_rank / m.result.peak; },
          wide("MFU", "%", 5, as_percent)),
  };
}

std::vector<Column> columns_of_memory() {
  return {
      column("memory_planned",
          "B",
          "Planned for the worst rank, sum over kinds.",
          worst(&RankMemory::planned_sum)),
      column("memory_measured",
          "B",
          "Allocated through Kokkos on the worst rank, sum over kinds and memory/other.",
          worst(&RankMemory::measured_sum),
          always("memory", "MiB", 9, as_mebibytes)),
      column("process_peak",
          "B",
          "Largest resident set of the worst rank; 0: not known.",
          worst(&RankMemory::process_peak)),
      column("device_used",
          "B",
          "In use on the worst device at the end, by all programs; 0: no device.",
          worst(&RankMemory::device_used)),
  };
}

std::vector<Column> columns_of_bytes() {
  return {
      column("bytes_inside",
          "B",
          "Counted in a step, inside groups.",
          &M::counted_inside,
          wide("inside", "MiB/step", 9, as_mebibytes)),
      column("bytes_between",
          "B",
          "Counted in a step, between groups.",
          &M::counted_between,
          wide("between", "MiB/step", 9, as_mebibytes)),
      column("rate_inside",
          "GB/s",
          "bytes_inside / median_s, all ranks together.",
          [](const M& m) { return 1e-9 * static_cast<double>(m.counted_inside) / m.step; }),
      column("rate_between",
          "GB/s",
          "bytes_between / median_s, all ranks together.",
          [](const M& m) { return 1e-9 * static_cast<double>(m.counted_between) / m.step; }),
      column("planned_inside", "B", "Planned for a step, inside groups.", &M::planned_inside),
      column("planned_between", "B", "Planned for a step, between groups.", &M::planned_between),
      column("bytes_source",
          "text",
          "How the transport knows: counted in each call, or by formula (collectives of NCCL).",
          &R::bytes_source),
  };
}

std::vector<Column> columns_of_time() {
  return {
      column("accounted_step",
          "1",
          "Timed step that times and timeline are of, from 0: that of lower median length. "
          "-1: none.",
          &R::accounted_step),
      column("accounted_s",
          "s",
          "T, the length of that step, from the begin of the first rank to the end of the last.",
          &R::accounted_length),
      column(
          "exposed_share",
          "1",
          "Exposed to transfers / T, mean over ranks.",
          [](const M& m) { return m.mean.exposed_total() / m.result.accounted_length; },
          always("exposed", "%", 7, as_percent)),
      column(
          "idle_share",
          "1",
          "The bubble: idle / T, mean over ranks.",
          [](const M& m) { return m.mean.idle / m.result.accounted_length; },
          always("idle", "%", 6, as_percent)),
      column("compute_s", "s", "Computing, mean over ranks.", &Time::compute),
      column("idle_s", "s", "Idle, mean over ranks.", &Time::idle),
      column("overlap",
          "1",
          "Hidden / communication, all ranks together. NaN: no communication.",
          &Time::overlap,
          wide("overlap", "%", 7, as_percent)),
      column("slowest_rank",
          "1",
          "Rank whose own computing takes longest. -1: not known.",
          found("slowest_rank", std::int64_t{-1})),
      column("slowest_ratio",
          "1",
          "Its time to the median of all ranks. NaN: not known.",
          found("slowest_ratio", R::unknown)),
      column("ticks", "tick", "Length of the schedule.", &R::ticks),
      column("idle_ticks", "tick", "Ticks without computation, mean over ranks.", mean_idle_ticks),
  };
}

std::vector<Column> columns_of_exposure() {
  std::vector<Column> all;
  for (const auto& [kind, name] : schedule::table_of<Traffic>)
    all.push_back(column(fmt::format("exposed_{}_s", name),
        "s",
        fmt::format("Exposed to transfers of the kind {}, mean over ranks.", name),
        [kind](const M& m) { return m.mean.exposed[index_of(kind)]; }));
  return all;
}

std::vector<Column> columns_of_checks() {
  return {
      column(
          "first_loss",
          "nat/token",
          "Loss of the first step.",
          [](const R& r) { return r.losses.empty() ? R::unknown : r.losses.front(); },
          wide("loss0", "nat", 8, as_loss)),
      column(
          "last_loss",
          "nat/token",
          "Loss of the last step.",
          [](const R& r) { return r.losses.empty() ? R::unknown : r.losses.back(); },
          wide("loss", "nat", 8, as_loss)),
      column("gradient_error",
          "1",
          "Largest relative error of a gradient tensor against the serial reference. "
          "NaN: not checked.",
          &R::max_gradient_error,
          wide("check", "", 7, as_error)),
      column("loss_error",
          "1",
          "Largest relative error of a loss. NaN: not checked.",
          &R::max_loss_error),
      column("attention_used",
          "text",
          "Attention kernel that ran: host, portable, cudnn.",
          &R::attention),
      column("transport_used",
          "text",
          "What moved the data: none, mpi, mpi staged, mpi direct, nccl.",
          &R::transport),
      column("matmul_algorithms",
          "text",
          "Algorithm of cuBLASLt for each kind of product on rank 0, the fastest. Empty without "
          "it.",
          &R::matmul_algorithms),
      column("energy_source",
          "text",
          "What counted the energy, or \"unavailable: \" and why.",
          found("energy_source", std::string())),
      column("energy",
          "J",
          "Energy of all ranks in the timed steps. NaN: unavailable.",
          found("energy", R::unknown)),
      column("energy_per_token",
          "J/token",
          "The same, per token.",
          found("energy_per_token", R::unknown)),
      column(
          "status",
          "text",
          "ok, wrong (a check failed), oom (memory ran out), timeout (too long, or no progress), "
          "skipped (planned memory does not fit), error (it ended early).",
          [](const R& r) { return name_of(r.status); },
          always("status", "", -6)),
      column("reason", "text", "Why the status is not ok.", &R::reason),
      column("verdict",
          "text",
          "VALID, VALID with doubts in brackets, or INVALID: and why.",
          verdict_of),
  };
}

Column identity_column() {
  Column identity = column("identity",
      "text",
      "All settings in one line: runs of equal identity are of one case.",
      [](const M& m) { return deck::identity(m.asked()); });
  identity.is_setting = true;
  return identity;
}

// Arrays.

/// Numbers, or rows of numbers; all integers become one type.
template <class Part>
Elements elements_of(const std::vector<Part>& parts) {
  if constexpr (std::is_arithmetic_v<Part>) {
    using Stored = std::conditional_t<std::is_integral_v<Part>, std::int64_t, Part>;
    return {std::vector<Stored>(parts.begin(), parts.end()), {parts.size()}};
  } else {
    std::vector<std::decay_t<decltype(parts[0][0])>> flat;
    for (const Part& row : parts)
      flat.insert(flat.end(), row.begin(), row.end());
    return {elements_of(flat).values, {parts.size(), parts.empty() ? 0 : parts[0].size()}};
  }
}

/// One part of each entry of a list.
template <class Entry, class Part = std::identity>
std::function<Elements(const R&)> each(std::vector<Entry> R::* entries, Part part = {}) {
  return [=](const R& r) { return elements_of(list_of(r.*entries, part)); };
}

std::vector<Array> arrays_of_run() {
  const auto memory = schedule::names_of<schedule::Memory>(),
             traffic = schedule::names_of<Traffic>();
  using Rank = RankMemory;
  using Link = LinkBytes;
  return {
      {{"seconds", "s", "timed step, rank", "Each timed step on each rank."}, each(&R::seconds)},
      {{"clocks",
           "s",
           "moment, clock",
           "Clocks of rank 0 before the first and after the last timed step.",
           {clock_names.begin(), clock_names.end()}},
          each(&R::clocks)},
      {{"losses", "nat/token", "step", "Mean loss of every step, warm-up included."},
          each(&R::losses)},
      {{"idle_ticks", "tick", "rank", "Ticks without computation."}, each(&R::idle_ticks)},
      {{"memory/planned", "B", "rank, kind", "Planned, by kind.", memory},
          each(&R::memory, &Rank::planned)},
      {{"memory/measured", "B", "rank, kind", "Allocated through Kokkos, by kind.", memory},
          each(&R::memory, &Rank::measured)},
      {{"memory/other", "B", "rank", "Allocated through Kokkos, of no planned kind."},
          each(&R::memory, &Rank::other)},
      {{"memory/process_begin", "B", "rank", "Resident set when the run began; 0: not known."},
          each(&R::memory, &Rank::process_begin)},
      {{"memory/process_peak",
           "B",
           "rank",
           "Largest resident set during the run, but for the check of the first step."},
          each(&R::memory, &Rank::process_peak)},
      {{"time/compute", "s", "rank", "Computing."}, each(&R::time, &Time::compute)},
      {{"time/exposed_by_kind", "s", "rank, kind", "Waiting for transfers, by kind.", traffic},
          each(&R::time, &Time::exposed)},
      {{"time/idle", "s", "rank", "The rest of the step."}, each(&R::time, &Time::idle)},
      {{"time/communication", "s", "rank", "Transfers under way, hidden or not."},
          each(&R::time, &Time::communication)},
      {{"time/hidden", "s", "rank", "Transfers under way while the rank computed."},
          each(&R::time, &Time::hidden)},
      {{"bytes/from", "1", "transfer", "Rank that sends."}, each(&R::bytes, &Link::from)},
      {{"bytes/to", "1", "transfer", "Rank that receives."}, each(&R::bytes, &Link::to)},
      {{"bytes/kind", "1", "transfer", "Code of what is sent.", {}, traffic},
          each(&R::bytes, [](const Link& link) { return static_cast<int>(link.kind); })},
      {{"bytes/planned", "B", "transfer", "Bytes of a step, as the schedule plans them."},
          each(&R::bytes, &Link::planned)},
      {{"bytes/counted", "B", "transfer", "The same, as the transport counted them."},
          each(&R::bytes, &Link::counted)},
  };
}

std::vector<Array> arrays_of_timeline() {
  std::vector<Array> all;
  for (const trace::EventField& field : trace::event_fields()) {
    const auto data = [&field](const R& r) {
      const auto values = [&](auto value) {
        return elements_of(list_of(r.timeline->events, value));
      };
      return std::visit(values, field.value);
    };
    const std::string name = std::string("timeline/") + field.name;
    all.push_back({{name, field.units, "event", field.doc, {}, field.codes}, data, true});
  }
  return all;
}

template <class Entry>
std::vector<Entry> joined(const std::vector<std::vector<Entry>>& lists) {
  std::vector<Entry> all;
  for (const std::vector<Entry>& list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}
}  // namespace

const std::vector<Column>& columns() {
  static const std::vector<Column> all = joined<Column>({columns_of_position(),
      columns_of_settings(),
      columns_of_rates(),
      columns_of_memory(),
      columns_of_bytes(),
      columns_of_time(),
      columns_of_exposure(),
      columns_of_checks(),
      {identity_column()}});
  return all;
}

const std::vector<Array>& arrays() {
  static const std::vector<Array> all = joined<Array>({arrays_of_run(), arrays_of_timeline()});
  return all;
}

Row example_row() {
  return preview({example_case()}).front();
}
}  // namespace minitaw::record
