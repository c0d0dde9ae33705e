#include "trace/svg_panel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace minitaw::trace {
namespace {

using schedule::Kind;

constexpr double title_height = 20, note_height = 15, group_gap = 5;
constexpr double small_text = 9;
/// What takes no time can still be seen, but has no room for a tip or a border.
constexpr double narrowest = 0.6, bordered = 2;
/// More arrows than this hide what they connect.
constexpr int most_arrows = 300;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text)
    if (c == '\n') lines.emplace_back();
    else lines.back() += c;
  return lines;
}

/// Milliseconds with the digits that matter.
std::string time_text(double seconds) { return fmt::format("{:.6g} ms", seconds * 1e3); }

std::string tip_of(const Event& e) {
  std::string text = fmt::format("{}\nrank {}, tick {}\n{} to {}", text_of(e), e.rank, e.tick,
                                 time_text(e.begin), time_text(e.end));
  if (e.begin > e.ready) text += fmt::format(", waited {}", time_text(e.begin - e.ready));
  return text;
}

std::string look_of(const Event& e) { return fmt::format("p{}", static_cast<int>(phase_of(e))); }

}  // namespace

Panel::Panel(const Timeline& timeline, const Axis& axis, double top)
    : timeline_(timeline), axis_(axis), rows_(arrange(timeline)), heights_(heights()),
      arrows_(choose_arrows()), by_micro_batch_(one_shard_per_rank()), top_(top) {
  for (const Event& e : timeline.events) {
    shard_digits_ = std::max(shard_digits_, fmt::formatted_size("{}", e.shard));
    micro_batch_digits_ = std::max(micro_batch_digits_, fmt::formatted_size("{}", e.micro_batch));
  }
  const double notes = static_cast<double>(lines_of(timeline.title).size()) - 1;
  rows_top_ = top + title_height + note_height * notes + 6;
  bottom_ = rank_top(timeline.groups.ranks() - 1) + heights_.rank();
}

Panel::Heights Panel::heights() const {
  const int ranks = timeline_.groups.ranks();
  const double compute = ranks <= 8 ? 20 : ranks <= 32 ? 11 : ranks <= 128 ? 6 : 3;
  const double transfer = ranks <= 8 ? 11 : ranks <= 32 ? 5 : ranks <= 128 ? 2.5 : 1;
  Heights result{{}, ranks <= 8 ? 8.0 : ranks <= 32 ? 3.0 : 1.0};
  for (const auto& depth : rows_.depth)
    for (int l = 0; l < schedule::lanes; ++l)
      if (depth[l] > 0) result.lanes[l] = l == 0 ? compute : transfer;
  return result;
}

Arrows Panel::choose_arrows() const {
  int all = 0, between = 0;
  for (const Event& e : timeline_.events) {
    if (e.kind != Kind::send) continue;
    ++all;
    if (!timeline_.groups.together(e.rank, e.peer)) ++between;
  }
  if (all <= most_arrows && large()) return Arrows::all;
  return between <= most_arrows ? Arrows::between_groups : Arrows::none;
}

bool Panel::one_shard_per_rank() const {
  std::vector<int> shard(timeline_.groups.ranks(), -1);
  for (const Event& e : timeline_.events) {
    if (e.kind != Kind::forward) continue;
    if (shard[e.rank] >= 0 && shard[e.rank] != e.shard) return false;
    shard[e.rank] = e.shard;
  }
  return true;
}

double Panel::rank_top(int rank) const {
  return rows_top_ + heights_.rank() * rank + group_gap * timeline_.groups.group_of(rank);
}

Box Panel::lane_box(int rank, int lane) const {
  double y = rank_top(rank);
  for (int l = 0; l < lane; ++l) y += heights_.lanes[l];
  return {axis_.left, y, axis_.width, heights_.lanes[lane]};
}

Box Panel::box_of(std::size_t event) const {
  const Event& e = timeline_.events[event];
  const Place& place = rows_.places[event];
  const Box lane = lane_box(e.rank, static_cast<int>(e.lane));
  const double height = lane.height / place.rows;
  const double left = axis_.at(e.begin);
  return {left, lane.y + place.row * height, std::max(narrowest, axis_.at(e.end) - left), height};
}

/// The longest label that fits, whatever the numbers in it: "s3 m1", "3" or nothing.
std::string Panel::label_of(const Event& e, double width, double size) const {
  if (e.shard < 0) return "";
  const auto fits = [&](std::size_t letters) {
    return static_cast<double>(letters) * 0.6 * size + 2 <= width;
  };
  if (e.micro_batch >= 0 && fits(shard_digits_ + micro_batch_digits_ + 3))
    return fmt::format("s{} m{}", e.shard, e.micro_batch);
  const bool micro_batch = by_micro_batch_ && e.micro_batch >= 0;
  if (!fits(micro_batch ? micro_batch_digits_ : shard_digits_)) return "";
  return fmt::to_string(micro_batch ? e.micro_batch : e.shard);
}

void Panel::draw(Canvas& canvas) const {
  draw_title(canvas);
  draw_groups(canvas);
  for (int r = 0; r < timeline_.groups.ranks(); ++r) draw_rank(canvas, r);
  // Where rows are thin, arrows would hide the labels.
  const bool below = !large();
  if (below) draw_arrows(canvas);
  for (std::size_t i = 0; i < timeline_.events.size(); ++i)
    if (phase_of(timeline_.events[i]) != Phase::join) draw_event(canvas, i);
  if (!below) draw_arrows(canvas);
}

void Panel::draw_title(Canvas& canvas) const {
  const std::vector<std::string> lines = lines_of(timeline_.title);
  canvas.text(8, top_ + title_height - 5, "title",
              fmt::format("{} ({})", lines.front(), timeline_.measured ? "measured" : "planned"));
  for (std::size_t i = 1; i < lines.size(); ++i)
    canvas.text(8, top_ + title_height + note_height * static_cast<double>(i) - 4, "note", lines[i]);
}

void Panel::draw_groups(Canvas& canvas) const {
  const topology::Groups& groups = timeline_.groups;
  for (int g = 0; g < groups.count(); ++g) {
    const double top = rank_top(groups.first(g));
    const double height = heights_.rank() * groups.size(g) - heights_.gap;
    canvas.box({4, top, 16, height}, "group");
    const std::string name = height > 50 ? fmt::format("group {}", g) : fmt::format("{}", g);
    if (height >= 12) canvas.upright(16, top + height / 2, "note middle", name);
  }
}

void Panel::draw_rank(Canvas& canvas, int rank) const {
  const double y = rank_top(rank) + (large() ? 14 : heights_.lanes[0] / 2 + 4);
  if (heights_.rank() >= 10 || rank % 8 == 0)
    canvas.text(large() ? 26 : axis_.left - 6, y, large() ? "note" : "note end",
                fmt::format("{}{}", large() ? "rank " : "", rank));
  for (int l = 0; l < schedule::lanes; ++l) {
    if (heights_.lanes[l] == 0) continue;
    const Box box = lane_box(rank, l);
    canvas.box(box, l == 0 ? "idle" : "free");
    if (large())
      canvas.text(axis_.left - 6, box.y + box.height / 2 + 3, "tiny end",
                  name_of(static_cast<schedule::Lane>(l)));
  }
}

void Panel::draw_event(Canvas& canvas, std::size_t event) const {
  const Event& e = timeline_.events[event];
  const Box box = box_of(event);
  const std::string look = look_of(e) + (box.width < bordered ? " thin" : "");
  canvas.box(box, look, box.width < 2 * narrowest ? "" : tip_of(e));
  const double size = std::min(small_text + 1, box.height - 2);
  if (size < 6) return;
  const std::string label = label_of(e, box.width, size);
  const bool transfer = is_communication(e.kind);
  if (!label.empty())
    canvas.text(box.x + box.width / 2, box.y + box.height / 2 + size * 0.36,
                fmt::format("{}{}", transfer ? "light middle f" : "middle f", static_cast<int>(size)), label);
}

void Panel::draw_arrows(Canvas& canvas) const {
  if (arrows_ == Arrows::none) return;
  std::map<int, std::size_t> sends;
  for (std::size_t i = 0; i < timeline_.events.size(); ++i)
    if (timeline_.events[i].kind == Kind::send) sends.emplace(timeline_.events[i].link, i);
  for (std::size_t i = 0; i < timeline_.events.size(); ++i) {
    const Event& e = timeline_.events[i];
    const auto send = sends.find(e.link);
    if (e.kind != Kind::recv || send == sends.end()) continue;
    if (arrows_ == Arrows::between_groups && timeline_.groups.together(e.rank, e.peer)) continue;
    const Box from = box_of(send->second), to = box_of(i);
    canvas.line(from.x, from.y + from.height / 2, to.x + to.width, to.y + to.height / 2,
                (large() ? "arrow " : "arrow small ") + look_of(e));
  }
}

}  // namespace minitaw::trace
