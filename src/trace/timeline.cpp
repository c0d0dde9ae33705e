#include "trace/timeline.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "schedule/execute.hpp"

namespace minitaw::trace {
namespace {

using schedule::Action;
using schedule::Kind;
using schedule::Matching;
using schedule::Place;

void check(const schedule::Program& program, const std::vector<std::vector<schedule::Span>>& spans) {
  bool fits = spans.size() == program.ranks.size();
  for (std::size_t r = 0; fits && r < spans.size(); ++r)
    fits = spans[r].size() == program.ranks[r].actions.size();
  if (!fits) throw LogicError("a timeline needs one span for every action of every rank");
}

/// Collectives are numbered first, then messages in the order of their sends.
class Links {
public:
  explicit Links(const schedule::Program& program)
      : matching_(schedule::detail::match(program)), next_(static_cast<int>(matching_.instances.size())),
        messages_(matching_.other.size(), -1) {
    for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) number_sends(program.ranks[r], r);
  }

  [[nodiscard]] int of(const Action& action, Place place) const {
    const auto number = static_cast<std::size_t>(matching_.number(place));
    return is_collective(action.kind) ? matching_.other[number] : messages_[number];
  }

private:
  void number_sends(const schedule::RankProgram& rank, int r) {
    for (int i = 0; i < static_cast<int>(rank.actions.size()); ++i) {
      if (rank.actions[i].kind != Kind::send) continue;
      const auto number = static_cast<std::size_t>(matching_.number({r, i}));
      const Place other{rank.actions[i].peer, matching_.other[number]};
      messages_[number] = messages_[static_cast<std::size_t>(matching_.number(other))] = next_++;
    }
  }

  Matching matching_;
  int next_;
  std::vector<int> messages_;  // by number of the action
};

Event event_of(const Action& a, int rank, int link, const schedule::Span& span) {
  return {rank,          a.lane, a.kind, a.payload,  a.tick,     a.shard,
          a.micro_batch, a.peer, link,   span.ready, span.begin, span.end};
}

}  // namespace

Timeline make_timeline(const schedule::Program& program,
                       const std::vector<std::vector<schedule::Span>>& spans, std::string title,
                       bool measured) {
  check(program, spans);
  const Links links(program);
  Timeline timeline{std::move(title), measured, program.groups, {}};
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    const std::vector<Action>& actions = program.ranks[r].actions;
    for (int i = 0; i < static_cast<int>(actions.size()); ++i)
      timeline.events.push_back(event_of(actions[i], r, links.of(actions[i], {r, i}), spans[r][i]));
  }
  return timeline;
}

double length(const Timeline& timeline) {
  double last = 0;
  for (const Event& event : timeline.events) last = std::max(last, event.end);
  return last;
}

}  // namespace minitaw::trace
