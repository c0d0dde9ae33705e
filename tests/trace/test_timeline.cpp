// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include "schedule/registry.hpp"
#include "trace/timeline.hpp"

namespace minitaw::trace {
namespace {
using schedule::Kind;
using Spans = std::vector<std::vector<schedule::Span>>;

/// Every action has times of its own, so that a mix-up shows.
Spans some_spans(const schedule::Program& program) {
  Spans spans;
  double time = 1;
  for (const schedule::RankProgram& rank : program.ranks) {
    spans.emplace_back();
    for (std::size_t i = 0; i < rank.actions.size(); ++i, time += 1)
      spans.back().push_back({time, time + 0.25, time + 0.5});
  }
  return spans;
}

schedule::Program some_program(const char* spec) {
  return schedule::build({schedule::parse_spec(spec), topology::Groups::equal(6, 3), 12, 7});
}

TEST(Timeline, HoldsEveryActionWithItsTimes) {
  const schedule::Program program = some_program("tawpipe");
  const Spans spans = some_spans(program);
  const Timeline timeline = make_timeline(program, spans, program.groups, "");
  std::size_t next = 0;
  for (const int r : indices(spans))
    for (const int i : indices(spans[r])) {
      const schedule::Action& a = program.ranks[r].actions[i];
      const schedule::Span& s = spans[r][i];
      const Event& e = timeline.events.at(next++);
      EXPECT_EQ(
          std::tuple(e.rank, e.lane, e.kind, e.payload), std::tuple(r, a.lane, a.kind, a.payload));
      EXPECT_EQ(std::tuple(e.tick, e.shard, e.micro_batch, e.peer),
          std::tuple(a.tick, a.shard, a.micro_batch, a.peer));
      EXPECT_EQ(std::tuple(e.ready, e.begin, e.end), std::tuple(s.ready, s.begin, s.end));
    }
  EXPECT_EQ(next, timeline.events.size());
}

TEST(Timeline, LinksJoinTheSidesOfATransferAndNothingElse) {
  for (const char* spec : {"tawpipe", "ddp"}) {
    const schedule::Program program = some_program(spec);
    const Timeline timeline = make_timeline(program, some_spans(program), program.groups, "");
    std::map<int, std::vector<Event>> links;
    for (const Event& e : timeline.events) {
      EXPECT_EQ(e.link >= 0, is_communication(e.kind));
      if (e.link >= 0)
        links[e.link].push_back(e);
    }
    for (const auto& [link, sides] : links) {
      const Event &one = sides.front(), &other = sides.back();
      std::set<int> ranks;
      for (const Event& side : sides) {
        ranks.insert(side.rank);
        EXPECT_EQ(std::tuple(side.payload, side.shard, side.tick),
            std::tuple(one.payload, one.shard, one.tick));
      }
      EXPECT_EQ(ranks.size(), sides.size()) << spec;
      if (is_point_to_point(one.kind)) {
        EXPECT_EQ(std::tuple(sides.size(), one.peer, other.peer, one.kind == other.kind),
            std::tuple(2U, other.rank, one.rank, false));
      }
    }
  }
}

TEST(Timeline, AsJsonHasAColumnForEveryField) {
  const schedule::Program program = some_program("tawpipe");
  const Timeline timeline =
      make_timeline(program, some_spans(program), program.groups, "a \"title\"");
  const auto one = nlohmann::json::parse(to_json({&timeline, 1}))["timelines"].at(0);
  EXPECT_EQ(one["title"], "a \"title\"");
  EXPECT_EQ(one["groups"], nlohmann::json({2, 2, 2}));
  for (const EventField& field : event_fields())
    std::visit(
        [&](auto value) {
          EXPECT_EQ(one["events"][field.name], nlohmann::json(list_of(timeline.events, value)))
              << field.name;
        },
        field.value);
  EXPECT_EQ(one["codes"]["kind"][static_cast<int>(Kind::broadcast)], "broadcast");
}
}  // namespace
}  // namespace minitaw::trace
