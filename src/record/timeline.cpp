#include "record/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/error.hpp"
#include "record/read.hpp"
#include "record/reading.hpp"
#include "record/write.hpp"

namespace minitaw::record {

namespace {

using schedule::Kind;
using schedule::Lane;
using schedule::Payload;
using trace::Event;

constexpr double longest = 1e9;      // s; no step takes decades
constexpr int most_links = 1 << 30;  // so that several timelines can be numbered in one go
constexpr int kinds = static_cast<int>(Kind::all_reduce) + 1;
constexpr int payloads = static_cast<int>(Payload::ends_gradient) + 1;

std::string name_of(Payload payload) {
  switch (payload) {
  case Payload::none:
    return "none";
  case Payload::weights:
    return "weights";
  case Payload::gradient:
    return "gradient";
  case Payload::activation:
    return "activation";
  case Payload::activation_grad:
    return "activation_grad";
  case Payload::ends:
    return "ends";
  case Payload::ends_gradient:
    return "ends_gradient";
  }
  throw LogicError("payload without a name");
}

/// Names of the values 0, 1, ... of an enumeration.
template <class T>
std::vector<std::string> names(int count) {
  std::vector<std::string> found;
  for (int i = 0; i < count; ++i) found.emplace_back(name_of(static_cast<T>(i)));
  return found;
}

/// A field of an event that is a whole number, with the names of its values if it has any.
struct Whole {
  const char* name;
  const char* units;
  int (*get)(const Event& event);
  void (*set)(Event& event, int value);
  std::vector<std::string> codes = {};
};

std::vector<Whole> whole_fields() {
  return {
      {"rank", "1", [](const Event& e) { return e.rank; }, [](Event& e, int v) { e.rank = v; }},
      {"lane", "1", [](const Event& e) { return static_cast<int>(e.lane); },
       [](Event& e, int v) { e.lane = static_cast<Lane>(v); }, names<Lane>(schedule::lanes)},
      {"kind", "1", [](const Event& e) { return static_cast<int>(e.kind); },
       [](Event& e, int v) { e.kind = static_cast<Kind>(v); }, names<Kind>(kinds)},
      {"payload", "1", [](const Event& e) { return static_cast<int>(e.payload); },
       [](Event& e, int v) { e.payload = static_cast<Payload>(v); }, names<Payload>(payloads)},
      {"tick", "tick", [](const Event& e) { return e.tick; }, [](Event& e, int v) { e.tick = v; }},
      {"shard", "1", [](const Event& e) { return e.shard; }, [](Event& e, int v) { e.shard = v; }},
      {"micro_batch", "1", [](const Event& e) { return e.micro_batch; },
       [](Event& e, int v) { e.micro_batch = v; }},
      {"peer", "1", [](const Event& e) { return e.peer; }, [](Event& e, int v) { e.peer = v; }},
      {"link", "1", [](const Event& e) { return e.link; }, [](Event& e, int v) { e.link = v; }},
  };
}

struct Time {
  const char* name;
  double Event::* field;
};
constexpr Time times[] = {{"ready", &Event::ready}, {"begin", &Event::begin}, {"end", &Event::end}};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("timeline: " + what);
}

/// The value that each code of the file means here; -1: none.
std::vector<int> translation(hid_t group, const Whole& field) {
  std::vector<int> here;
  for (const std::string& name : h5::read_codes(group, field.name)) {
    const auto at = std::ranges::find(field.codes, name);
    here.push_back(at == field.codes.end() ? -1 : static_cast<int>(at - field.codes.begin()));
  }
  return here;
}

void read_field(hid_t group, const Whole& field, std::vector<Event>& events) {
  const std::vector<std::int64_t> values = h5::read_integers(group, field.name);
  require(values.size() == events.size(), fmt::format("{} differs in length", field.name));
  const std::vector<int> codes = field.codes.empty() ? std::vector<int>() : translation(group, field);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t value = values[i];
    require(value >= -1 && value < (std::int64_t{1} << 31), fmt::format("a wrong {}", field.name));
    if (!field.codes.empty()) {
      require(value >= 0 && value < std::ssize(codes) && codes[value] >= 0,
              fmt::format("an unknown {}", field.name));
      value = codes[value];
    }
    field.set(events[i], static_cast<int>(value));
  }
}

void read_field(hid_t group, const Time& field, std::vector<Event>& events) {
  const std::vector<double> values = h5::read_reals(group, field.name);
  require(values.size() == events.size(), fmt::format("{} differs in length", field.name));
  for (std::size_t i = 0; i < values.size(); ++i) {
    require(std::abs(values[i]) <= longest, fmt::format("{} is not a time", field.name));
    events[i].*field.field = values[i];
  }
}

std::vector<Event> read_events(hid_t group, int ranks) {
  std::vector<Event> events(h5::read_reals(group, "end").size());
  require(std::ssize(events) >= ranks, "fewer events than ranks");  // who draws it makes room for every rank
  for (const Whole& field : whole_fields()) read_field(group, field, events);
  for (const Time& field : times) read_field(group, field, events);
  for (const Event& e : events) {
    require(e.rank >= 0 && e.rank < ranks && e.peer < ranks, "a rank that the case does not have");
    require(e.peer >= 0 || (e.kind != Kind::send && e.kind != Kind::recv),
            "a message without its other side");
    require(e.link < most_links, "a wrong link");
    require(e.begin <= e.end, "an event that ends before it begins");
  }
  return events;
}

}  // namespace

void write_timeline(hid_t parent, const trace::Timeline& timeline) {
  const h5::Id group = h5::make_group(parent, "timeline");
  const std::vector<hsize_t> shape = {timeline.events.size()};
  for (const Whole& field : whole_fields()) {
    std::vector<std::int64_t> values;
    for (const Event& e : timeline.events) values.push_back(field.get(e));
    h5::write(group.get(), field.name, values, shape, {field.units, "event", {}, field.codes});
  }
  for (const Time& field : times) {
    std::vector<double> values;
    for (const Event& e : timeline.events) values.push_back(e.*field.field);
    h5::write(group.get(), field.name, values, shape, {"s", "event"});
  }
}

std::vector<int> cases_with_timeline(const std::string& path) {
  const Image image = Image::load(path);
  return reading(path, [&] {
    const h5::Id cases = h5::open_group(image.root(), "cases");
    std::vector<int> found;
    for (int number = 0; h5::exists(cases.get(), numbered(number)); ++number)
      if (h5::exists(h5::open_group(cases.get(), numbered(number)).get(), "timeline"))
        found.push_back(number);
    return found;
  });
}

trace::Timeline read_timeline(const std::string& path, int number) {
  const Image image = Image::load(path);
  const std::vector<Row> rows = read_summary(image, path);
  if (number < 0 || number >= std::ssize(rows))
    throw InputError(fmt::format("{} has no case {}; it has {} case{}", path, number, rows.size(),
                                 rows.size() == 1 ? "" : "s"));
  const Row& row = rows[number];
  return reading(path, [&]() -> trace::Timeline {
    const h5::Id cases = h5::open_group(image.root(), "cases");
    const h5::Id group = h5::open_group(cases.get(), numbered(number));
    if (!h5::exists(group.get(), "timeline"))
      throw InputError(
          fmt::format("case {} of {} has no timeline; minitaw run --timeline keeps it", number, path));
    const h5::Id timeline = h5::open_group(group.get(), "timeline");
    const topology::Groups groups = topology::parse_groups(row.text("groups"));
    return {fmt::format("{}, {} ranks in groups {}, {} tokens", row.text("schedule"), groups.ranks(),
                        groups.text(), row.integer("seq")),
            true, groups, read_events(timeline.get(), groups.ranks())};
  });
}

}  // namespace minitaw::record
