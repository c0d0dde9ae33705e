#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trace/svg_panel.hpp"
#include "trace/write.hpp"

namespace minitaw::trace {
namespace {

constexpr double left = 124, right = 16, top = 8, panel_gap = 18, axis_height = 34;
/// A drawing is as wide as the numbers in its forward blocks ask for, unless that is too much for a page.
constexpr double narrowest = 1080, page = 1400, widest = 6000;
constexpr double pixels_per_number = 13.5;

double seconds_of(std::span<const Timeline> timelines) {
  double seconds = 0;
  for (const Timeline& timeline : timelines) seconds = std::max(seconds, length(timeline));
  return seconds > 1e-12 ? seconds : 1;  // an axis has marks at distances that can be told apart
}

/// Of the rank with most; two halves of a backward pass count as two.
std::size_t most_visits(const Timeline& timeline) {
  std::vector<std::size_t> visits(timeline.groups.ranks());
  for (const Event& e : timeline.events)
    if (const Phase phase = phase_of(e); phase <= Phase::backward_weight) ++visits[e.rank];
  return std::ranges::max(visits);
}

double median_forward(std::span<const Timeline> timelines) {
  std::vector<double> seconds;
  for (const Timeline& timeline : timelines)
    for (const Event& e : timeline.events)
      if (phase_of(e) == Phase::forward) seconds.push_back(e.end - e.begin);
  if (seconds.empty()) return 0;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

double width_of(std::span<const Timeline> timelines, double seconds) {
  const double forward = median_forward(timelines);
  double width = std::clamp(forward > 0 ? pixels_per_number * seconds / forward : 0, narrowest, page);
  for (const Timeline& timeline : timelines)
    width = std::max(width, pixels_per_number * static_cast<double>(most_visits(timeline)));
  return std::min(width, widest);
}

/// A round distance of marks, so that about ten fit.
double step_of(double seconds) {
  const double raw = seconds / 10, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

struct Unit {
  const char* name;
  double seconds;
};
Unit unit_of(double step) {
  if (step >= 1) return {"s", 1};
  return step >= 1e-3 ? Unit{"ms", 1e-3} : Unit{"\u00b5s", 1e-6};
}

void draw_axis(Canvas& canvas, const Axis& axis, double rows_top, double y) {
  const double step = step_of(axis.seconds);
  const Unit unit = unit_of(step);
  canvas.line(axis.left, y, axis.left + axis.width, y, "axis");
  for (int i = 0; i * step <= axis.seconds * (1 + 1e-9); ++i) {
    const double x = axis.at(i * step);
    canvas.line(x, rows_top, x, y, "grid");
    canvas.line(x, y, x, y + 4, "axis");
    canvas.text(x, y + 15, "note middle", fmt::format("{:.6g}", i * step / unit.seconds));
  }
  canvas.text(axis.left + axis.width / 2, y + 30, "note middle",
              fmt::format("{} since the step began", unit.name));
}

/// Boxes with names, broken into lines.
class Legend {
public:
  Legend(Canvas& canvas, double width, double y) : canvas_(canvas), width_(width), y_(y) {}

  void entry(std::string_view look, std::string_view name) {
    make_room(18 + text_width(name));
    canvas_.box({x_, y_, 12, 10}, look);
    canvas_.text(x_ + 16, y_ + 9, "note", name);
    x_ += 18 + text_width(name) + 14;
  }
  void words(std::string_view text) {
    make_room(text_width(text));
    canvas_.text(x_, y_ + 9, "note", text);
    x_ += text_width(text) + 14;
  }
  void break_line() {
    x_ = 8;
    y_ += 17;
  }
  [[nodiscard]] double bottom() const { return y_ + 14; }

private:
  static double text_width(std::string_view text) { return 6.1 * static_cast<double>(text.size()); }
  void make_room(double needed) {
    if (x_ > 8 && x_ + needed > width_) break_line();
  }

  Canvas& canvas_;
  double width_, x_ = 8, y_;
};

std::array<bool, phases> phases_in(std::span<const Timeline> timelines) {
  std::array<bool, phases> seen{};
  for (const Timeline& timeline : timelines)
    for (const Event& e : timeline.events)
      if (const Phase phase = phase_of(e); phase != Phase::join) seen[static_cast<std::size_t>(phase)] = true;
  return seen;
}

/// What the panels of a drawing leave to be explained.
struct Explained {
  Arrows arrows = Arrows::none;
  bool lanes = false, shards = false, micro_batches = false;

  void add(const Panel& panel) {
    arrows = std::min(arrows, panel.arrows());
    lanes = lanes || !panel.names_lanes();
    (panel.by_micro_batch() ? micro_batches : shards) = true;
  }
  [[nodiscard]] std::string_view numbers() const {
    if (!micro_batches) return "number in a block: shard";
    return shards ? "number in a block: shard, or the micro-batch where ranks have one shard each"
                  : "number in a block: micro-batch";
  }
};

double draw_legend(Canvas& canvas, std::span<const Timeline> timelines, const Explained& explained,
                   double width, double y) {
  const std::array<bool, phases> seen = phases_in(timelines);
  Legend legend(canvas, width, y);
  const auto entries = [&](Phase first, Phase last) {
    for (int p = static_cast<int>(first); p <= static_cast<int>(last); ++p)
      if (seen[static_cast<std::size_t>(p)])
        legend.entry(fmt::format("p{}", p), name_of(static_cast<Phase>(p)));
  };
  legend.words("compute:");
  entries(Phase::forward, Phase::update);
  legend.entry("idle", "idle, or waits");
  legend.words(explained.numbers());
  legend.break_line();
  legend.words("transfers:");
  entries(Phase::weights, Phase::ends_transfer);
  if (explained.arrows == Arrows::all) legend.words("arrows: messages");
  if (explained.arrows == Arrows::between_groups) legend.words("arrows: messages between groups");
  if (explained.lanes) legend.words("rows of a rank: compute, then its lanes of transfers");
  return legend.bottom();
}

std::string style() {
  std::string text = R"(text{font-family:Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#222}
.title{font-size:14px;font-weight:bold}
.note{font-size:11px}
.tiny{font-size:9px;fill:#555}
.middle{text-anchor:middle}
.end{text-anchor:end}
.light{fill:#fff}
.idle{fill:#e4e4e4}
.free{fill:#f6f6f6}
.group{fill:#dfe6ee}
.axis{stroke:#222;fill:none}
.grid{stroke:#000;stroke-opacity:.12;fill:none}
.arrow{stroke-opacity:.75;marker-end:url(#head)}
)";
  for (int size = 6; size <= 10; ++size) text += fmt::format(".f{0}{{font-size:{0}px}}\n", size);
  for (int p = 0; p < phases; ++p)
    text += fmt::format(
        ".p{0}{{fill:{1};stroke:#fff;stroke-width:.4}}\n.arrow.p{0}{{fill:none;stroke:{1};stroke-width:1}}\n",
        p, colour_of(static_cast<Phase>(p)));
  return text + ".thin{stroke:none}\n.arrow.small{stroke-width:.7}\n";
}

constexpr const char* arrow_head =
    R"(<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="5" markerHeight="5" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#333"/></marker>
)";

}  // namespace

std::string to_svg(std::span<const Timeline> timelines) {
  const double seconds = seconds_of(timelines);
  const Axis axis{left, width_of(timelines, seconds), seconds};
  Canvas canvas;
  double y = top;
  Explained explained;
  for (const Timeline& timeline : timelines) {
    const Panel panel(timeline, axis, y);
    panel.draw(canvas);
    draw_axis(canvas, axis, panel.rows_top(), panel.bottom());
    explained.add(panel);
    y = panel.bottom() + axis_height + panel_gap;
  }
  const double width = axis.left + axis.width + right;
  const double bottom = draw_legend(canvas, timelines, explained, width, y);
  return std::move(canvas).finish(width, bottom, style(), arrow_head);
}

}  // namespace minitaw::trace
