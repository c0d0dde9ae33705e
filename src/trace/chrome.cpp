#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "trace/phase.hpp"
#include "trace/rows.hpp"
#include "trace/write.hpp"

namespace minitaw::trace {
namespace {

using nlohmann::ordered_json;
using schedule::Kind;
using schedule::Lane;

constexpr double microseconds = 1e6;
/// Slices of one thread must not overlap, so the messages of a batch take threads of their own.
constexpr int most_rows = 1000;

class Writer {
public:
  void add(const Timeline& timeline) {
    const Rows rows = arrange(timeline);
    const std::size_t line = timeline.title.find('\n');
    const std::string name =
        fmt::format("{} {}", timeline.title.substr(0, line), timeline.measured ? "(measured)" : "(planned)");
    if (line != std::string::npos) notes_[name] = timeline.title.substr(line + 1);
    name_processes(timeline, name, rows);
    for (std::size_t i = 0; i < timeline.events.size(); ++i)
      if (phase_of(timeline.events[i]) != Phase::join) add(timeline.events[i], rows.places[i]);
    add_flows(timeline, rows);
    first_process_ += timeline.groups.ranks();
    for (const Event& e : timeline.events) next_link_ = std::max(next_link_, first_link_ + e.link + 1);
    first_link_ = next_link_;
  }

  std::string text() {
    const ordered_json all = {
        {"displayTimeUnit", "ms"}, {"otherData", std::move(notes_)}, {"traceEvents", std::move(events_)}};
    return all.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  }

private:
  [[nodiscard]] static int thread(Lane lane, int row) { return static_cast<int>(lane) * most_rows + row + 1; }

  void metadata(const char* what, int process, int thread, const char* key, const ordered_json& value) {
    events_.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{key, value}}}});
  }

  void name_processes(const Timeline& timeline, const std::string& name, const Rows& rows) {
    for (int r = 0; r < timeline.groups.ranks(); ++r) {
      const int process = first_process_ + r;
      metadata("process_name", process, 0, "name",
               fmt::format("{}: rank {}, group {}", name, r, timeline.groups.group_of(r)));
      metadata("process_sort_index", process, 0, "sort_index", process);
      for (int l = 0; l < schedule::lanes; ++l) name_threads(process, static_cast<Lane>(l), rows.depth[r][l]);
    }
  }

  void name_threads(int process, Lane lane, int depth) {
    for (int row = 0; row < depth; ++row) {
      metadata("thread_name", process, thread(lane, row), "name",
               row == 0 ? std::string(name_of(lane)) : fmt::format("{} ({})", name_of(lane), row + 1));
      metadata("thread_sort_index", process, thread(lane, row), "sort_index", thread(lane, row));
    }
  }

  void add(const Event& e, const Place& place) {
    ordered_json args = {{"tick", e.tick}, {"waited_us", (e.begin - e.ready) * microseconds}};
    const auto note = [&](const char* key, int value) {
      if (value >= 0) args[key] = value;
    };
    note("shard", e.shard);
    note("micro_batch", e.micro_batch);
    note(e.kind == Kind::send || e.kind == Kind::recv ? "peer" : "root", e.peer);
    note("link", e.link);
    events_.push_back({{"name", text_of(e)},
                       {"cat", name_of(phase_of(e))},
                       {"ph", "X"},
                       {"pid", first_process_ + e.rank},
                       {"tid", thread(e.lane, place.row)},
                       {"ts", e.begin * microseconds},
                       {"dur", std::max(0.0, e.end - e.begin) * microseconds},
                       {"args", std::move(args)}});
  }

  void add_flows(const Timeline& timeline, const Rows& rows) {
    std::map<int, std::size_t> sends;
    for (std::size_t i = 0; i < timeline.events.size(); ++i)
      if (timeline.events[i].kind == Kind::send) sends.emplace(timeline.events[i].link, i);
    for (std::size_t i = 0; i < timeline.events.size(); ++i) {
      const Event& to = timeline.events[i];
      const auto from = sends.find(to.link);
      if (to.kind != Kind::recv || from == sends.end()) continue;
      const Event& send = timeline.events[from->second];
      const double left = (send.begin + send.end) / 2;
      const std::string name = text_of(send);
      flow("s", name, send, rows.places[from->second], left);
      // An arrow that ends before it starts is not drawn, and one that ends outside its slice goes astray.
      flow("f", name, to, rows.places[i], std::clamp(left, to.begin, std::max(to.begin, to.end)));
    }
  }

  /// Both ends of a flow must agree in name, category and a number that is the flow's own.
  void flow(const char* phase, const std::string& name, const Event& e, const Place& place, double at) {
    ordered_json event = {{"name", name},
                          {"cat", "message"},
                          {"ph", phase},
                          {"id", first_link_ + e.link},
                          {"pid", first_process_ + e.rank},
                          {"tid", thread(e.lane, place.row)},
                          {"ts", at * microseconds}};
    if (*phase == 'f') event["bp"] = "e";
    events_.push_back(std::move(event));
  }

  ordered_json events_ = ordered_json::array();
  ordered_json notes_ = ordered_json::object();
  int first_process_ = 1;  // 0 means the idle process
  int first_link_ = 0, next_link_ = 0;
};

}  // namespace

std::string to_chrome_trace(std::span<const Timeline> timelines) {
  Writer writer;
  for (const Timeline& timeline : timelines) writer.add(timeline);
  return writer.text();
}

}  // namespace minitaw::trace
