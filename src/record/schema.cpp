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
using M = Measured;
using R = CaseResult;
using Time = trace::RankTime;
using schedule::Traffic;

constexpr Format as_loss{.style = Format::fixed, .decimals = 4};
constexpr Format as_error{.style = Format::scientific, .decimals = 0};

/// A case that says nothing, and divides by no 0.
Case example_case() {
  Case c;
  c.shape.heads = c.shape.kv_heads = 1;
  return c;
}

// Columns.

/// `value`: of a run, or of the part of it that has it.
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
    else if constexpr (std::is_invocable_v<Value, Place>)
      return std::invoke(value, m.place);
    else
      return std::invoke(value, m.mean);
  };
  return {{name, units, "run", doc}, cell, std::move(shown)};
}

/// What an instrument has found, or what it is without one.
std::function<Cell(const M&)> found(std::string_view name, const Cell& otherwise) {
  return [=](const M& m) {
    for (const auto& [known, value] : m.result.found)
      if (known == name)
        return value;
    return otherwise;
  };
}

/// Of the rank that has most.
template <class Value>
std::int64_t worst(const M& m, const Value& value) {
  std::uint64_t most = 0;
  for (const RankMemory& rank : m.result.memory)
    most = std::max(most, std::invoke(value, rank));
  return static_cast<std::int64_t>(most);
}

double mean_idle_ticks(const R& result) {
  const std::vector<int>& ticks = result.idle_ticks;
  return std::accumulate(ticks.begin(), ticks.end(), 0.0) / static_cast<double>(ticks.size());
}

double loss_at(const std::vector<double>& losses, std::size_t step) {
  return step < losses.size() ? losses[step] : R::unknown;
}

std::vector<Column> columns_of_settings() {
  const std::map<std::string, Shown> shown = {
      {"schedule", {.title = "schedule", .width = -8}},
      {"ranks", {.title = "ranks", .width = 5, .wide = true}},
      {"groups", {.title = "groups", .width = -6, .wide = true}},
      {"seq", {.title = "seq", .units = "token", .width = 7, .wide = true}},
      {"micro_batch", {.title = "B", .width = 3, .wide = true}},
      {"micro_batches", {.title = "M", .width = 4, .wide = true}},
  };
  std::vector<Column> all;
  for (const deck::Setting& setting : deck::columns()) {
    const bool is_text = std::holds_alternative<std::string>(setting.value(example_case()));
    const std::string units = is_text ? "text" : setting.units;
    const auto value = [&setting](const M& m) { return setting.value(m.settings()); };
    all.push_back(column(setting.name, units, setting.doc, value));
    all.back().is_setting = true;
    if (const auto look = shown.find(setting.name); look != shown.end())
      all.back().shown = look->second;
  }
  return all;
}

std::vector<Column> columns_of_place() {
  return {
      column("case",
          "1",
          "Number of the case, in the order of the first runs.",
          &Place::case_number,
          Shown{.title = "case", .width = 5}),
      column("repetition",
          "1",
          "Repetition of the case, from 0. The last row of a repetition counts.",
          &Place::repetition,
          Shown{.title = "rep", .width = 3, .wide = true}),
      column("session", "1", "Session that ran it: /sessions/NNNN.", &Place::session),
      column("started", "text", "Start of the run, ISO 8601, UTC.", &R::started),
      column("begun", "text", "Begin of the first timed step, by the clock of rank 0.", &R::begun),
      column("ended", "text", "End of the last timed step on all ranks.", &R::ended),
  };
}

std::vector<Column> columns_of_rates() {
  return {
      column("median_s",
          "s",
          "Median of the samples. A sample is a timed step, by its slowest rank.",
          &M::step,
          Shown{.title = "step", .units = "s", .width = 9}),
      column(
          "q1_s",
          "s",
          "First quartile of the samples, interpolated linearly.",
          [](const M& m) { return quantile(m.samples, 0.25); },
          Shown{.title = "q1", .units = "s", .width = 9, .wide = true}),
      column(
          "q3_s",
          "s",
          "Third quartile of the samples.",
          [](const M& m) { return quantile(m.samples, 0.75); },
          Shown{.title = "q3", .units = "s", .width = 9, .wide = true}),
      column("samples", "1", "Timed steps.", [](const M& m) { return std::ssize(m.samples); }),
      column("spread", "1", "(q3_s - q1_s) / median_s.", &M::spread),
      column("tokens_per_s",
          "token/s",
          "M B S / median_s.",
          &M::tokens_per_s,
          Shown{.title = "rate", .units = "token/s", .width = 9}),
      column("tokens_per_s_rank",
          "token/s",
          "tokens_per_s / ranks.",
          [](const M& m) { return m.tokens_per_s / m.settings().ranks; }),
      column("tflops_causal",
          "TFLOP/s",
          "Model FLOPs of all ranks with causal attention, recomputation not counted.",
          &M::tflops),
      column(
          "tflops_rank",
          "TFLOP/s",
          "tflops_causal / ranks.",
          [](const M& m) { return m.tflops / m.settings().ranks; },
          Shown{.title = "rank", .units = "TFLOP/s", .width = 9, .wide = true}),
      column("peak",
          "TFLOP/s",
          "Peak of the device of a rank: run --peak, or its dense datasheet value. NaN: unknown.",
          [](const M& m) { return 1e-12 * m.result.peak; }),
      column(
          "mfu",
          "1",
          "Model FLOPs utilisation: tflops_rank / peak.",
          [](const M& m) { return 1e12 * m.tflops / m.settings().ranks / m.result.peak; },
          Shown{.title = "MFU", .units = "%", .format = as_percent, .width = 5, .wide = true}),
  };
}

std::vector<Column> columns_of_memory() {
  return {
      column("memory_planned",
          "B",
          "Planned for the worst rank, sum over kinds.",
          [](const M& m) { return worst(m, &RankMemory::planned_sum); }),
      column(
          "memory_measured",
          "B",
          "Allocated through Kokkos on the worst rank, sum over kinds and memory/other.",
          [](const M& m) { return worst(m, &RankMemory::measured_sum); },
          Shown{.title = "memory", .units = "MiB", .format = as_mebibytes, .width = 9}),
      column("process_peak",
          "B",
          "Largest resident set of the worst rank; 0: not known.",
          [](const M& m) { return worst(m, &RankMemory::process_peak); }),
      column("device_used",
          "B",
          "In use on the worst device at the end, by all programs; 0: no device.",
          [](const M& m) { return worst(m, &RankMemory::device_used); }),
  };
}

std::vector<Column> columns_of_bytes() {
  return {
      column(
          "bytes_inside",
          "B",
          "Counted in a step, inside groups.",
          [](const M& m) { return m.counted.inside; },
          Shown{.title = "inside",
              .units = "MiB/step",
              .format = as_mebibytes,
              .width = 9,
              .wide = true}),
      column(
          "bytes_between",
          "B",
          "Counted in a step, between groups.",
          [](const M& m) { return m.counted.between; },
          Shown{.title = "between",
              .units = "MiB/step",
              .format = as_mebibytes,
              .width = 9,
              .wide = true}),
      column("rate_inside",
          "GB/s",
          "bytes_inside / median_s, all ranks together.",
          [](const M& m) { return 1e-9 * static_cast<double>(m.counted.inside) / m.step; }),
      column("rate_between",
          "GB/s",
          "bytes_between / median_s, all ranks together.",
          [](const M& m) { return 1e-9 * static_cast<double>(m.counted.between) / m.step; }),
      column("planned_inside",
          "B",
          "Planned for a step, inside groups.",
          [](const M& m) { return m.planned.inside; }),
      column("planned_between",
          "B",
          "Planned for a step, between groups.",
          [](const M& m) { return m.planned.between; }),
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
          Shown{.title = "exposed", .units = "%", .format = as_percent, .width = 7}),
      column(
          "idle_share",
          "1",
          "The bubble: idle / T, mean over ranks.",
          [](const M& m) { return m.mean.idle / m.result.accounted_length; },
          Shown{.title = "idle", .units = "%", .format = as_percent, .width = 6}),
      column("compute_s", "s", "Computing, mean over ranks.", &Time::compute),
      column("idle_s", "s", "Idle, mean over ranks.", &Time::idle),
      column("overlap",
          "1",
          "Hidden / communication, all ranks together. NaN: no communication.",
          &Time::overlap,
          Shown{.title = "overlap", .units = "%", .format = as_percent, .width = 7, .wide = true}),
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
          [](const M& m) { return loss_at(m.result.losses, 0); },
          Shown{.title = "loss0", .units = "nat", .format = as_loss, .width = 8, .wide = true}),
      column(
          "last_loss",
          "nat/token",
          "Loss of the last step.",
          [](const M& m) { return loss_at(m.result.losses, m.result.losses.size() - 1); },
          Shown{.title = "loss", .units = "nat", .format = as_loss, .width = 8, .wide = true}),
      column("gradient_error",
          "1",
          "Largest relative error of a gradient tensor against the serial reference. "
          "NaN: not checked.",
          &R::max_gradient_error,
          Shown{.title = "check", .format = as_error, .width = 7, .wide = true}),
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
          [](const M& m) { return name_of(m.result.status); },
          Shown{.title = "status", .width = -6}),
      column("reason", "text", "Why the status is not ok.", &R::reason),
      column("verdict",
          "text",
          "VALID, VALID with doubts in brackets, or INVALID: and why.",
          verdict_of),
  };
}

// Arrays.

/// All integers become one type.
template <class T>
using Stored = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;

template <class T>
Data list(const std::vector<T>& values) {
  return {std::vector<Stored<T>>(values.begin(), values.end()), {values.size()}};
}

/// [row][column]
template <class Rows>
Data table(const Rows& rows) {
  std::vector<Stored<std::decay_t<decltype(rows[0][0])>>> flat;
  for (const auto& row : rows)
    flat.insert(flat.end(), row.begin(), row.end());
  return {std::move(flat), {rows.size(), rows.empty() ? 0 : rows[0].size()}};
}

/// One part of each entry of a list, in list() or table().
template <class Entry, class Part>
std::function<Data(const R&)> each(std::vector<Entry> R::* entries, Part part) {
  return [=](const R& r) {
    const auto parts = list_of(r.*entries, part);
    if constexpr (std::is_arithmetic_v<typename decltype(parts)::value_type>)
      return list(parts);
    else
      return table(parts);
  };
}

std::vector<Array> arrays_of_run() {
  const auto memory = schedule::names_of<schedule::Memory>(),
             traffic = schedule::names_of<Traffic>();
  using Rank = RankMemory;
  using Link = LinkBytes;
  return {
      {{"seconds", "s", "timed step, rank", "Each timed step on each rank."},
          [](const R& r) { return table(r.seconds); }},
      {{"losses", "nat/token", "step", "Mean loss of every step, warm-up included."},
          [](const R& r) { return list(r.losses); }},
      {{"idle_ticks", "tick", "rank", "Ticks without computation."},
          [](const R& r) { return list(r.idle_ticks); }},
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
  for (const trace::Field& field : trace::fields()) {
    const auto data = [&field](const R& r) {
      const auto values = [&](auto value) { return list(list_of(r.timeline->events, value)); };
      return std::visit(values, field.value);
    };
    const std::string name = std::string("timeline/") + field.name;
    all.push_back({{name, field.units, "event", field.doc, {}, field.codes}, data, true});
  }
  return all;
}
}  // namespace

const std::vector<Column>& columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> list;
    for (const auto& some : {columns_of_place(),
             columns_of_settings(),
             columns_of_rates(),
             columns_of_memory(),
             columns_of_bytes(),
             columns_of_time(),
             columns_of_exposure(),
             columns_of_checks()})
      list.insert(list.end(), some.begin(), some.end());
    list.push_back(column("identity",
        "text",
        "All settings in one line: runs of equal identity are of one case.",
        [](const M& m) { return deck::identity(m.settings()); }));
    list.back().is_setting = true;
    return list;
  }();
  return all;
}

const std::vector<Array>& arrays() {
  static const std::vector<Array> all = [] {
    std::vector<Array> list = arrays_of_run(), events = arrays_of_timeline();
    list.insert(list.end(), events.begin(), events.end());
    return list;
  }();
  return all;
}

Row example_row() {
  return preview({example_case()}).front();
}
}  // namespace minitaw::record
