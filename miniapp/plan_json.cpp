#include <nlohmann/json.hpp>

#include "deck/sequences.hpp"
#include "plan_case.hpp"
#include "record/table.hpp"

namespace minitaw::app {

namespace {

using nlohmann::ordered_json;
using schedule::ByteMatrix;
using schedule::Memory;
using schedule::Traffic;

ordered_json settings_json(const CasePlan& plan) {
  ordered_json json;
  const record::Row row = record::preview({plan.settings}).front();
  for (std::size_t i = 0; i < record::columns().size(); ++i)
    if (record::columns()[i].setting)
      std::visit([&](const auto& cell) { json[record::columns()[i].name] = cell; }, row.cells()[i]);
  json["ffn_per_layer"] = plan.settings.shape.ffn;
  ordered_json& sizes = json["micro_batch_per_rank"] = ordered_json::array();
  for (int r = 0; r < plan.settings.ranks; ++r) sizes.push_back(deck::micro_batch_of(plan.settings, r));
  return json;
}

ordered_json reach_json(const CasePlan& plan,
                        std::uint64_t (ByteMatrix::*reach)(const topology::Groups&, Traffic) const) {
  ordered_json json;
  std::uint64_t total = 0;
  for (int k = 0; k < schedule::traffic_kinds; ++k) {
    const auto kind = static_cast<Traffic>(k);
    const std::uint64_t bytes = (plan.bytes.*reach)(plan.settings.groups, kind);
    json[schedule::name_of(kind)] = bytes;
    total += bytes;
  }
  json["total"] = total;
  return json;
}

ordered_json groups_json(const CasePlan& plan) {
  ordered_json list = ordered_json::array();
  const topology::Groups& groups = plan.settings.groups;
  for (int g = 0; g < groups.count(); ++g)
    list.push_back({{"group", g},
                    {"ranks", groups.size(g)},
                    {"bytes_out", plan.bytes.leaving(groups, g)},
                    {"bytes_in", plan.bytes.entering(groups, g)}});
  return list;
}

ordered_json footprint_json(const CasePlan& plan, int rank) {
  const schedule::Footprint& footprint = plan.memory[static_cast<std::size_t>(rank)];
  ordered_json json = {{"rank", rank}};
  for (int k = 0; k < schedule::memory_kinds; ++k)
    json[schedule::name_of(static_cast<Memory>(k))] = footprint.by_kind[static_cast<std::size_t>(k)];
  json["total"] = footprint.total();
  return json;
}

ordered_json memory_json(const CasePlan& plan) {
  ordered_json ranks = ordered_json::array();
  for (int r = 0; r < plan.settings.ranks; ++r) ranks.push_back(footprint_json(plan, r));
  return {{"worst", footprint_json(plan, plan.worst_rank())}, {"ranks", ranks}};
}

ordered_json ticks_json(const CasePlan& plan) {
  std::vector<int> idle;
  for (int r = 0; r < plan.settings.ranks; ++r) idle.push_back(plan.ticks.idle(r));
  return {{"total", plan.ticks.total}, {"idle_per_rank", idle}, {"idle_share", plan.idle_ticks_share()}};
}

ordered_json idle_json(const CasePlan& plan) {
  std::vector<double> ranks;
  for (int r = 0; r < plan.settings.ranks; ++r) ranks.push_back(plan.idle.share(r));
  return {{"share", plan.idle.share()}, {"step_s", plan.idle.seconds}, {"share_per_rank", ranks}};
}

/// Of the rank that needs most memory.
ordered_json slots_json(const CasePlan& plan) {
  const int worst = plan.worst_rank();
  ordered_json json = {{"rank", worst}};
  for (int c = 0; c < schedule::slot_classes; ++c)
    json[std::string(1, letter_of(static_cast<schedule::SlotClass>(c)))] =
        plan.program.ranks[static_cast<std::size_t>(worst)].slots[static_cast<std::size_t>(c)];
  return json;
}

ordered_json busiest_json(const CasePlan& plan,
                          std::uint64_t (ByteMatrix::*direction)(const topology::Groups&, int) const) {
  const auto found = plan.busiest(direction);
  return {{"group", found.group}, {"bytes", found.bytes}};
}

ordered_json known_json(const CasePlan& plan) {
  const schedule::MessageCounts& m = plan.messages;
  return {{"settings", settings_json(plan)},
          {"shards", plan.program.shards},
          {"bytes_per_step",
           {{"inside", reach_json(plan, &ByteMatrix::inside)},
            {"between", reach_json(plan, &ByteMatrix::between)}}},
          {"busiest_out", busiest_json(plan, &ByteMatrix::leaving)},
          {"busiest_in", busiest_json(plan, &ByteMatrix::entering)},
          {"groups", groups_json(plan)},
          {"messages",
           {{"weights_between", m.weights_between},
            {"weights_inside", m.weights_inside},
            {"gradients_between", m.gradients_between},
            {"gradients_inside", m.gradients_inside},
            {"broadcasts", m.broadcasts},
            {"reduces", m.reduces}}},
          {"ticks", ticks_json(plan)},
          {"idle_free_transfers", idle_json(plan)},
          {"slots", slots_json(plan)},
          {"memory_bytes", memory_json(plan)}};
}

}  // namespace

ordered_json to_json(const CasePlan& plan) {
  ordered_json json = known_json(plan);
  if (const auto seconds = plan.nic_seconds()) json["nic_s"] = *seconds;
  return json;
}

nlohmann::ordered_json to_json(const schedule::Machine& machine) {
  ordered_json json = {{"flops", machine.flops},
                       {"inside_bytes_per_s", machine.inside},
                       {"between_bytes_per_s", machine.between},
                       {"memory_bytes_per_s", machine.memory}};
  if (machine.nic > 0) json["nic_bytes_per_s"] = machine.nic;
  return json;
}

}  // namespace minitaw::app
