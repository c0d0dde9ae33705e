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

/// When the actions of a step ran, [rank][action], in seconds on one clock for all ranks.
using StepSpans = std::vector<std::vector<schedule::Span>>;

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

struct StepAccount {
  double length = 0;  ///< from 0 to the last end of any rank
  std::vector<RankTime> ranks;
};

/// The account of one step, measured or predicted, of a program that validate() accepts.
///
/// A transfer is under way from the moment the last of its sides has begun until it ends; sides that begin
/// after it has ended at this rank held up nobody here. Before that a lane waits for the other side, and the
/// account follows it there, to what that side did at the time: computing (then this rank is idle), another
/// transfer under way (then this rank's wait is exposed communication of its kind), or a wait of its own,
/// which is followed on. docs/results.md has the formulas.
[[nodiscard]] StepAccount account(const schedule::Program& program, const StepSpans& spans);

/// The timeline of a program that validate() accepts.
[[nodiscard]] Timeline make_timeline(const schedule::Program& program, const StepSpans& spans,
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
