// SPDX-License-Identifier: BSD-3-Clause
#include "trace/timeline.hpp"
#include <functional>
#include <nlohmann/json.hpp>
#include "schedule/execute.hpp"

namespace minitaw::trace {
using schedule::Action, schedule::Place;

namespace {
/// Collectives are numbered first, then messages by their sends. -1: no transfer.
int link_of(const schedule::Matching& matching, Place place) {
  const std::int32_t transfer = matching.transfer_of(place);
  if (transfer < 0)
    return -1;
  if (transfer >= matching.messages)
    return transfer - matching.messages;
  const Place send = matching.sides_of(transfer)[0];
  return matching.transfers() - matching.messages + matching.number(send);
}

/// The field of an enumeration.
template <auto member>
EventField coded(const char* name, const char* doc) {
  using Enum = std::decay_t<decltype(Event{}.*member)>;
  return {name,
      "1",
      doc,
      [](const Event& e) { return static_cast<int>(e.*member); },
      schedule::names_of<Enum>()};
}
}  // namespace

Timeline make_timeline(const schedule::Program& program,
    const StepSpans& spans,
    topology::Groups groups,
    std::string title) {
  const schedule::Matching matching =
      schedule::detail::match(program, std::ssize(spans) / std::ssize(program.ranks));
  Timeline timeline{std::move(title), std::move(groups), {}};
  for (const int r : indices(spans))
    for (const int i : indices(spans[r])) {
      const Action a = in_job(program, action_at(program, {r, i}), program.replica_of(r));
      const schedule::Span& span = spans[r][i];
      timeline.events.push_back({.rank = r,
          .lane = a.lane,
          .kind = a.kind,
          .payload = a.payload,
          .tick = a.tick,
          .shard = a.shard,
          .micro_batch = a.micro_batch,
          .peer = a.peer,
          .link = link_of(matching, {r, i}),
          .ready = span.ready,
          .begin = span.begin,
          .end = span.end,
          .segment = a.segment});
    }
  return timeline;
}

const std::vector<EventField>& event_fields() {
  static const std::vector<EventField> all = {
      {"rank", "1", "Rank of the case.", &Event::rank},
      coded<&Event::lane>("lane", "Code of the lane that the action is in."),
      coded<&Event::kind>("kind", "Code of the action, as plan --program prints it."),
      coded<&Event::segment>("segment", "Code of the part of a visit that the action is."),
      coded<&Event::payload>("payload", "Code of the data that are moved or updated."),
      {"tick", "tick", "Tick of the schedule.", &Event::tick},
      {"shard", "1", "Shard; -1: none.", &Event::shard},
      {"micro_batch", "1", "Micro-batch; -1: none.", &Event::micro_batch},
      {"peer",
          "1",
          "Other side of a message, root of a rooted collective; -1: none.",
          &Event::peer},
      {"link", "1", "The same number for all sides of a transfer; -1: none.", &Event::link},
      {"ready", "s", "Its lane reached the action.", &Event::ready},
      {"begin", "s", "The action began.", &Event::begin},
      {"end", "s", "The action ended.", &Event::end},
  };
  return all;
}

std::string to_json(std::span<const Timeline> timelines) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Timeline& timeline : timelines) {
    nlohmann::ordered_json codes, events;
    for (const EventField& field : event_fields()) {
      if (!field.codes.empty())
        codes[field.name] = field.codes;
      nlohmann::ordered_json& column = events[field.name] = nlohmann::ordered_json::array();
      const auto add = [&](auto value) {
        for (const Event& event : timeline.events)
          column.push_back(std::invoke(value, event));
      };
      std::visit(add, field.value);
    }
    list.push_back({{"title", timeline.title},
        {"groups", timeline.groups.sizes()},
        {"codes", std::move(codes)},
        {"events", std::move(events)}});
  }
  const nlohmann::ordered_json all = {{"timelines", std::move(list)}};
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}
}  // namespace minitaw::trace
