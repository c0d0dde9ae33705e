#include "trace/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

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
      : matching_(schedule::detail::match(program)), next_(matching_.collectives()),
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

namespace {

constexpr int kinds = static_cast<int>(Kind::all_reduce) + 1;
constexpr std::array payload_names = {
    "none", "weights", "gradient", "activation", "activation_grad", "embeddings", "embeddings_gradient"};
constexpr std::array times = {TimeField{"ready", &Event::ready}, TimeField{"begin", &Event::begin},
                              TimeField{"end", &Event::end}};

/// Names of the values 0, 1, ... of an enumeration.
template <class T>
std::vector<std::string> names(int count) {
  std::vector<std::string> found;
  for (int i = 0; i < count; ++i) found.emplace_back(name_of(static_cast<T>(i)));
  return found;
}

/// What has one duration: kind, whether a transfer stays inside its group, payload, shard, rank.
using Alike = std::tuple<std::string, bool, std::string, int, int>;

constexpr int any_rank = -1;

/// Collectives that leave a group have the lanes of receives.
bool stays_inside(const topology::Groups& groups, int rank, const Action& a) {
  if (schedule::is_point_to_point(a.kind)) return groups.together(rank, a.peer);
  return a.lane != schedule::Lane::operands_in && a.lane != schedule::Lane::gradients_in;
}

std::map<Alike, double> parse_costs(const std::string& text, const std::string& path) {
  try {
    std::map<Alike, double> seconds;
    for (const nlohmann::json& one : nlohmann::json::parse(text)) {
      const Alike alike{one.at("kind"), one.at("inside"), one.at("payload"), one.at("shard"), one.at("rank")};
      seconds[alike] = one.at("seconds");
      if (!(seconds[alike] >= 0 && seconds[alike] < 1e9)) throw InputError("");
    }
    return seconds;
  } catch (const std::exception&) {
    throw InputError(fmt::format("{} is no list of costs, as scripts/timeline --planned makes it", path));
  }
}

}  // namespace

const std::vector<WholeField>& whole_fields() {
  static const std::vector<WholeField> fields = {
      {"rank", "1", [](const Event& e) { return e.rank; }},
      {"lane", "1", [](const Event& e) { return static_cast<int>(e.lane); },
       names<schedule::Lane>(schedule::lanes)},
      {"kind", "1", [](const Event& e) { return static_cast<int>(e.kind); }, names<Kind>(kinds)},
      {"payload",
       "1",
       [](const Event& e) { return static_cast<int>(e.payload); },
       {payload_names.begin(), payload_names.end()}},
      {"tick", "tick", [](const Event& e) { return e.tick; }},
      {"shard", "1", [](const Event& e) { return e.shard; }},
      {"micro_batch", "1", [](const Event& e) { return e.micro_batch; }},
      {"peer", "1", [](const Event& e) { return e.peer; }},
      {"link", "1", [](const Event& e) { return e.link; }},
  };
  return fields;
}

std::span<const TimeField> time_fields() { return times; }

std::string to_json(std::span<const Timeline> timelines) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Timeline& timeline : timelines) {
    nlohmann::ordered_json codes, events;
    for (const WholeField& field : whole_fields()) {
      if (!field.codes.empty()) codes[field.name] = field.codes;
      nlohmann::ordered_json& column = events[field.name] = nlohmann::ordered_json::array();
      for (const Event& event : timeline.events) column.push_back(field.value(event));
    }
    for (const TimeField& field : time_fields()) {
      nlohmann::ordered_json& column = events[field.name] = nlohmann::ordered_json::array();
      for (const Event& event : timeline.events) column.push_back(event.*field.value);
    }
    list.push_back({{"title", timeline.title},
                    {"groups", timeline.groups.sizes()},
                    {"codes", std::move(codes)},
                    {"events", std::move(events)}});
  }
  const nlohmann::ordered_json all = {{"timelines", std::move(list)}};
  return all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

schedule::Costs read_costs(const std::string& text, const std::string& path, const topology::Groups& groups) {
  return [seconds = parse_costs(text, path), groups](int rank, const Action& a) {
    const Kind kind = a.kind == Kind::recv ? Kind::send : a.kind;
    const std::string payload = payload_names.at(static_cast<std::size_t>(a.payload));
    Alike alike{std::string(name_of(kind)), stays_inside(groups, rank, a), payload, a.shard, any_rank};
    auto found = seconds.find(alike);
    if (found == seconds.end()) {
      std::get<4>(alike) = rank;
      found = seconds.find(alike);
    }
    if (found == seconds.end())
      throw InputError(fmt::format("the measured step had no {} of shard {}: another version of this program "
                                   "made the file, and plans the step otherwise",
                                   name_of(a.kind), a.shard));
    return found->second;
  };
}

}  // namespace minitaw::trace
