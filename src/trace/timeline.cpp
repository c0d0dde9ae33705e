// SPDX-License-Identifier: BSD-3-Clause
#include "trace/timeline.hpp"
#include <functional>
#include <nlohmann/json.hpp>
#include "schedule/execute.hpp"

namespace minitaw::trace {
using schedule::Action, schedule::Kind, schedule::names_of, schedule::Place;

Timeline make_timeline(const schedule::Program& program,
    const std::vector<std::vector<schedule::Span>>& spans,
    std::string title) {
  const schedule::Matching matching = schedule::detail::match(program);
  Timeline timeline{std::move(title), program.groups, {}};
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    for (int i = 0; const Action& a : program.ranks[r].actions) {
      const Place here{r, i};
      const std::int32_t other = matching.other[static_cast<std::size_t>(matching.number(here))];
      // Collectives are numbered first, then messages by their sends.
      int link = is_collective(a.kind) ? other : -1;
      if (is_point_to_point(a.kind))
        link = matching.collectives() + static_cast<int>(matching.number(
                                            a.kind == Kind::send ? here : Place{a.peer, other}));
      const schedule::Span& span = spans.at(r).at(i++);
      timeline.events.push_back({r,
          a.lane,
          a.kind,
          a.payload,
          a.tick,
          a.shard,
          a.micro_batch,
          a.peer,
          link,
          span.ready,
          span.begin,
          span.end});
    }
  return timeline;
}

const std::vector<Field>& fields() {
  static const std::vector<Field> all = {
      {"rank", "1", [](const Event& e) { return e.rank; }},
      {"lane",
          "1",
          [](const Event& e) { return static_cast<int>(e.lane); },
          names_of<schedule::Lane>()},
      {"kind", "1", [](const Event& e) { return static_cast<int>(e.kind); }, names_of<Kind>()},
      {"payload",
          "1",
          [](const Event& e) { return static_cast<int>(e.payload); },
          names_of<schedule::Payload>()},
      {"tick", "tick", [](const Event& e) { return e.tick; }},
      {"shard", "1", [](const Event& e) { return e.shard; }},
      {"micro_batch", "1", [](const Event& e) { return e.micro_batch; }},
      {"peer", "1", [](const Event& e) { return e.peer; }},
      {"link", "1", [](const Event& e) { return e.link; }},
      {"ready", "s", &Event::ready},
      {"begin", "s", &Event::begin},
      {"end", "s", &Event::end},
  };
  return all;
}

std::string to_json(std::span<const Timeline> timelines) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Timeline& timeline : timelines) {
    nlohmann::ordered_json codes, events;
    for (const Field& field : fields()) {
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
