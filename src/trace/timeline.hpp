#pragma once

#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "schedule/account.hpp"
#include "schedule/program.hpp"
#include "schedule/simulate.hpp"
#include "topology/groups.hpp"

namespace minitaw::trace {

/// One action of one rank with its times, in seconds since the step began.
struct Event {
  int rank = 0;
  schedule::Lane lane = schedule::Lane::compute;
  schedule::Kind kind = schedule::Kind::join;
  schedule::Payload payload = schedule::Payload::none;
  int tick = 0;
  int shard = -1;
  int micro_batch = -1;
  int peer = -1;     ///< other side of a message, root of a rooted collective; -1: none
  int link = -1;     ///< shared by both sides of a message or by all members of a collective; -1: no transfer
  double ready = 0;  ///< its lane got to it
  double begin = 0;
  double end = 0;

  friend bool operator==(const Event&, const Event&) = default;
};

/// One step of all ranks, predicted or measured. It says everything that a drawing needs, without the
/// program.
struct Timeline {
  std::string title;
  topology::Groups groups{{1}};
  std::vector<Event> events;
};

/// Where one rank's time went in a step, seconds; docs/results.md says what counts as what. compute + exposed
/// + idle is the length of the step.
struct RankTime {
  double compute = 0;  ///< the compute lane ran an action
  /// It waited, and what held it up was a transfer of this kind that was under way.
  std::array<double, schedule::traffic_kinds> exposed{};
  double idle = 0;           ///< the rest: nothing to do, or waiting for another rank to compute
  double communication = 0;  ///< at least one transfer of the rank was under way
  double hidden = 0;         ///< of that, while the rank computed

  [[nodiscard]] double exposed_total() const { return std::accumulate(exposed.begin(), exposed.end(), 0.0); }
  /// hidden / communication; NaN without communication.
  [[nodiscard]] double overlap() const { return communication > 0 ? hidden / communication : std::nan(""); }
};

/// Sums over ranks.
[[nodiscard]] RankTime total_of(const std::vector<RankTime>& ranks);

/// The timeline of a program that validate() accepts; spans[r][i] belongs to action i of rank r.
[[nodiscard]] Timeline make_timeline(const schedule::Program& program,
                                     const std::vector<std::vector<schedule::Span>>& spans,
                                     std::string title);

/// A field of an event, a whole number or seconds, with the names of its values if it has any.
struct Field {
  const char* name;
  const char* units;
  std::variant<int (*)(const Event& event), double Event::*> value;
  std::vector<std::string> codes = {};
};
/// The fields of an event: of a result file and of to_json().
[[nodiscard]] const std::vector<Field>& fields();

/// For scripts/timeline, which draws it: {"timelines": [{"title", "groups", "codes": {field: names},
/// "events": {field: values}}]}.
[[nodiscard]] std::string to_json(std::span<const Timeline> timelines);

}  // namespace minitaw::trace
