// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include "base/error.hpp"
#include "case_plan.hpp"
#include "deck/keys.hpp"
#include "record/verdict.hpp"

namespace minitaw::app {
namespace {
using Plans = std::vector<CasePlan>;
using Column = TableColumn<CasePlan>;
using Columns = std::vector<Column>;

/// Bytes by kind; "total" comes last.
template <class Kind>
Json by_kind(const auto& bytes, Json json = {}) {
  for (std::size_t k = 0; k < bytes.size(); ++k)
    json[schedule::name_of(static_cast<Kind>(k))] = bytes[k];
  json["total"] = total(bytes);
  return json;
}

/// "2+1+3", and "16x8" for many equal ones.
std::string groups_text(const topology::Groups& groups) {
  const auto [least, most] = std::ranges::minmax(groups.sizes());
  return groups.count() > 4 && least == most ? fmt::format("{}x{}", groups.count(), least)
                                             : groups.text();
}

/// The settings in which the cases differ, but those that the table has anyway.
Columns varying_columns(const Plans& plans) {
  const auto rows = record::preview(list_of(plans, &CasePlan::settings));
  const std::vector<std::string> varying = record::varying_settings(rows);
  Columns columns;
  for (const deck::Setting& setting : deck::columns()) {
    const std::string& name = setting.name;
    if (name == "schedule" || name == "ranks" || name == "groups" ||
        std::ranges::count(varying, name) == 0)
      continue;
    columns.push_back({.title = name, .value = [&setting](const CasePlan& p) {
                         return minitaw::to_text(setting.value(p.settings));
                       }});
  }
  return columns;
}

/// Appends columns of bytes, in the unit that the largest of them asks for.
void append_bytes(Columns& columns, const Plans& plans, const std::string& per, Columns added) {
  double most = 0;
  for (const Column& column : added)
    for (const CasePlan& plan : plans)
      most = std::max(most, std::get<double>(column.value(plan)));
  const ByteUnit unit = byte_unit(most, 10000);
  for (Column& column : added) {
    column.units = unit.name + per;
    column.format = {.factor = 1 / unit.bytes, .decimals = 3};
    columns.push_back(std::move(column));
  }
}

Column bytes_column(const std::string& title, bool wide, auto bytes) {
  return {.title = title,
      .value = [bytes](const CasePlan& p) { return static_cast<double>(bytes(p)); },
      .wide = wide};
}

std::string cells(const std::string& name, const std::vector<std::string>& cells) {
  std::string text = fmt::format("  {:<16}", name);
  for (const std::string& cell : cells)
    text += fmt::format(" {:>13}", cell);
  return text + "\n";
}

template <class Kind>
std::string title_line(const std::string& name) {
  std::vector<std::string> titles = schedule::names_of<Kind>();
  titles.emplace_back("total");
  return cells(name, titles);
}

std::string line(const std::string& name, const auto& bytes) {
  std::vector<std::string> sizes = list_of(bytes, size_text);
  sizes.push_back(size_text(total(bytes)));
  return cells(name, sizes);
}

/// One line for each run of ranks that need the same.
std::string memory_text(const CasePlan& plan) {
  const std::vector<MemoryBytes>& ranks = plan.memory;
  std::string text = title_line<schedule::Memory>("memory per rank");
  for (std::size_t first = 0, end = 0; first < ranks.size(); first = end) {
    while (end < ranks.size() && ranks[end] == ranks[first])
      ++end;
    text += line(end - first == 1 ? fmt::format("rank {}", first)
                                  : fmt::format("ranks {} to {}", first, end - 1),
        ranks[first]);
  }
  const Need& worst = plan.host[plan.worst];
  return text + fmt::format(
                    "  on a host        rank {} needs {} and about {} for its process, {} in all\n",
                    plan.worst,
                    size_text(worst.step),
                    size_text(worst.beside),
                    size_text(worst.total()));
}

std::string fit_text(const DeviceFit& fit) {
  return fmt::format(
      "  device           {}: worst rank needs {} and about {} for libraries, of {}; {}\n",
      fit.fits() ? "fits" : "DOES NOT FIT",
      size_text(fit.worst.step),
      size_text(fit.worst.beside),
      size_text(fit.available),
      fit.largest_seq > 0 ? fmt::format("the largest S that fits is {}", fit.largest_seq)
                          : "no S fits");
}

/// A line for each remedy: "context=4 (60.3 GiB in all)".
std::string remedies_text(const std::vector<Remedy>& remedies) {
  constexpr std::string_view title = "  fits with        ";
  if (remedies.empty())
    return fmt::format("{}nothing that was tried: recompute, micro_batch, slices, context, ranks, "
                       "alone and together\n",
        title);
  std::string text;
  for (const Remedy& remedy : remedies) {
    text += title;
    for (const auto& [key, value] : remedy.settings)
      text += fmt::format("{}={} ", key, value);
    text += fmt::format("({} in all)\n", size_text(remedy.total));
  }
  return text;
}

Json to_json(const Remedy& remedy) {
  Json settings;
  for (const auto& [key, value] : remedy.settings)
    settings[key] = value;
  return {{"settings", settings}, {"total_bytes", remedy.total}};
}
}  // namespace

Json to_json(const CasePlan& plan) {
  Json groups = Json::array(), ranks = Json::array();
  for (const GroupTraffic& g : plan.groups)
    groups.push_back(
        {{"group", g.group}, {"ranks", g.ranks}, {"bytes_out", g.out}, {"bytes_in", g.in}});
  for (const MemoryBytes& rank : plan.memory)
    ranks.push_back(by_kind<schedule::Memory>(rank, {{"rank", ranks.size()}}));
  const auto busiest = [&](std::uint64_t GroupTraffic::* bytes) -> Json {
    const GroupTraffic& most = plan.busiest(bytes);
    return {{"group", most.group}, {"bytes", most.*bytes}};
  };
  Json slots = {{"rank", plan.worst}};
  for (int c = 0; c < schedule::slot_classes; ++c)
    slots[std::string(1, letter_of(static_cast<schedule::SlotClass>(c)))] = plan.slots[c];
  Json json = {{"settings", settings_json(plan.settings)},
      {"shards", plan.shards},
      {"bytes_per_step",
          {{"inside", by_kind<schedule::Traffic>(plan.inside)},
              {"between", by_kind<schedule::Traffic>(plan.between)}}},
      {"busiest_out", busiest(&GroupTraffic::out)},
      {"busiest_in", busiest(&GroupTraffic::in)},
      {"groups", groups},
      {"ticks", {{"total", plan.ticks.total}, {"computing_per_rank", plan.ticks.busy}}},
      {"idle", {{"share", plan.idle.share()}, {"step_s", plan.idle.seconds}}},
      {"slots", slots},
      {"memory_bytes", {{"worst", ranks[plan.worst]}, {"ranks", ranks}}}};
  for (int rank = 0; rank < plan.settings.ranks; ++rank)
    json["idle"]["share_per_rank"].push_back(plan.idle.share(rank));
  for (const Need& rank : plan.host)
    json["host_bytes"].push_back(
        {{"step", rank.step}, {"process_estimate", rank.beside}, {"total", rank.total()}});
  if (const auto& fit = plan.device)
    json["device"] = {{"available_bytes", fit->available},
        {"arena_bytes", fit->worst.step},
        {"libraries_estimate_bytes", fit->worst.beside},
        {"fits", fit->fits()},
        {"largest_seq", fit->largest_seq},
        {"remedies",
            fit->remedies
                ? Json(list_of(*fit->remedies, [](const Remedy& r) { return to_json(r); }))
                : Json()}};
  return json;
}

std::string table_text(const Plans& plans, bool narrow) {
  using P = CasePlan;
  Columns columns = {
      {.title = "case", .value = [](const P& p) { return static_cast<std::int64_t>(p.number); }},
      {.title = "schedule", .value = [](const P& p) { return p.settings.schedule; }, .width = -1},
      {.title = "ranks", .value = [](const P& p) { return p.settings.ranks; }, .wide = true},
      {.title = "groups",
          .value = [](const P& p) { return groups_text(p.settings.groups); },
          .width = -1,
          .wide = true}};
  std::ranges::move(varying_columns(plans), std::back_inserter(columns));
  append_bytes(columns,
      plans,
      "/rank",
      {bytes_column(
           "inside", true, [](const P& p) { return 1.0 * total(p.inside) / p.settings.ranks; }),
          bytes_column("between", true, [](const P& p) {
            return 1.0 * total(p.between) / p.settings.ranks;
          })});
  append_bytes(columns,
      plans,
      "",
      {bytes_column("NIC-out", false, [](const P& p) { return p.busiest(&GroupTraffic::out).out; }),
          bytes_column(
              "NIC-in", false, [](const P& p) { return p.busiest(&GroupTraffic::in).in; })});
  Columns memory;
  for (std::size_t kind = 0; kind < schedule::memory_kinds; ++kind)
    memory.push_back(bytes_column(std::string(name_of(static_cast<schedule::Memory>(kind))),
        true,
        [kind](const P& p) { return p.memory[p.worst][kind]; }));
  memory.push_back(
      bytes_column("memory", false, [](const P& p) { return total(p.memory[p.worst]); }));
  append_bytes(columns, plans, "", memory);
  columns.push_back({.title = "ticks", .value = [](const P& p) { return p.ticks.total; }});
  columns.push_back({.title = "idle",
      .units = "%",
      .value = [](const P& p) { return std::max(0.0, p.idle.share()); },
      .format = as_percent});
  const TextTable<P> table(columns, plans, narrow);
  std::string text = table.header();
  for (const P& plan : plans)
    text += table.row(plan);
  return text;
}

std::string to_text(const CasePlan& plan) {
  const Case& c = plan.settings;
  const model::Flops flops = model::flops_per_token(c.shape);
  const double tokens = tokens_of_step(c);
  return fmt::format("case {}: {}, {} in groups {}{}{}, L = {}, H = {}, S = {}, B = {}, M = {}\n"
                     "  model            {:.4g} parameters in {}, {}\n"
                     "  step             {:.6g} tokens, {:.4g} TFLOP\n",
             plan.number,
             c.schedule,
             counted(c.ranks, "rank"),
             groups_text(c.groups),
             c.replicas > 1 ? fmt::format(", {} replicas", c.replicas) : "",
             c.shape.shares_sequences() ? fmt::format(", context {}", c.shape.context.count) : "",
             c.shape.layers,
             c.shape.hidden,
             c.shape.seq,
             c.shape.micro_batch,
             c.micro_batches,
             static_cast<double>(model::parameters(c.shape)),
             counted(plan.shards, "shard"),
             name_of(c.shape.dtype),
             tokens,
             tokens * (flops.matmul + flops.attention_causal) * 1e-12) +
         title_line<schedule::Traffic>("bytes per step") + line("inside groups", plan.inside) +
         line("between groups", plan.between) + memory_text(plan) +
         (plan.device ? fit_text(*plan.device) : "") +
         (plan.device && plan.device->remedies ? remedies_text(*plan.device->remedies) : "");
}
}  // namespace minitaw::app
