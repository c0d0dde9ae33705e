// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <span>
#include <variant>
#include "topology/groups.hpp"
#include "trace/account.hpp"

namespace minitaw::trace {
/// One action of one rank with its times, in seconds since the step began.
struct Event {
  int rank = 0;
  schedule::Lane lane = schedule::Lane::compute;
  schedule::Kind kind = schedule::Kind::join;
  schedule::Payload payload = schedule::Payload::none;
  int tick = 0, shard = -1, micro_batch = -1;
  int peer = -1;  ///< other side of a message, root of a rooted collective; -1: none
  int link =
      -1;  ///< shared by both sides of a message or by all members of a collective; -1: no transfer
  double ready = 0;  ///< its lane got to it
  double begin = 0, end = 0;
  schedule::Segment segment = schedule::Segment::all;  ///< of a visit
};

/// One step of all ranks, predicted or measured: all that a drawing needs, without the program.
struct Timeline {
  std::string title;
  topology::Groups groups{{1}};
  std::vector<Event> events;
};

/// The timeline of a program that validate() accepts; `groups` of the ranks that have spans.
Timeline make_timeline(const schedule::Program& program,
    const StepSpans& spans,
    topology::Groups groups,
    std::string title);

/// A field of an event, a whole number or seconds, with the names of its values if it has any.
struct EventField {
  const char* name;
  const char* units;
  const char* doc;
  std::variant<int Event::*, double Event::*, int (*)(const Event& event)> value;
  std::vector<std::string> codes = {};
};

const std::vector<EventField>& event_fields();
/// For scripts/timeline: {"timelines": [{"title", "groups", "codes": {field: names}, "events":
/// {field: values}}]}.
std::string to_json(std::span<const Timeline> timelines);
}  // namespace minitaw::trace
