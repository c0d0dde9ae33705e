#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trace/svg_panel.hpp"
#include "trace/write.hpp"

namespace minitaw::trace {
namespace {

constexpr double left = 104, right = 16, top = 8, panel_gap = 18, axis_height = 34;
constexpr double narrowest = 1080, widest = 6000;
/// Wide enough for the number of a shard.
constexpr double pixels_per_visit = 14;

bool is_visit(schedule::Kind kind) {
  using schedule::Kind;
  return kind == Kind::forward || kind == Kind::backward || kind == Kind::backward_input ||
         kind == Kind::backward_weight;
}

/// Wide enough for the rank that computes most.
double width_of(std::span<const Timeline> timelines) {
  std::size_t most = 0;
  for (const Timeline& timeline : timelines) {
    std::vector<std::size_t> visits(timeline.groups.ranks());
    for (const Event& e : timeline.events)
      if (is_visit(e.kind)) ++visits[e.rank];
    most = std::max(most, std::ranges::max(visits));
  }
  return std::clamp(pixels_per_visit * static_cast<double>(most), narrowest, widest);
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

double draw_legend(Canvas& canvas, std::span<const Timeline> timelines, Arrows arrows, double width,
                   double y) {
  const std::array<bool, phases> seen = phases_in(timelines);
  Legend legend(canvas, width, y);
  const auto entries = [&](Phase first, Phase last) {
    for (int p = static_cast<int>(first); p <= static_cast<int>(last); ++p)
      if (seen[static_cast<std::size_t>(p)])
        legend.entry(fmt::format("p{}", p), name_of(static_cast<Phase>(p)));
  };
  legend.words("compute:");
  entries(Phase::forward, Phase::update);
  legend.entry("idle", "idle");
  legend.break_line();
  legend.words("transfers:");
  entries(Phase::weights, Phase::ends_transfer);
  legend.entry("wait", "waits for others");
  if (arrows == Arrows::all) legend.words("arrows: messages");
  if (arrows == Arrows::between_groups) legend.words("arrows: messages between groups");
  return legend.bottom();
}

std::string style() {
  std::string text = R"(text{font-family:Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#222}
.title{font-size:14px;font-weight:bold}
.note{font-size:11px}
.rank{font-size:11px}
.tiny{font-size:9px;fill:#555}
.middle{text-anchor:middle}
.end{text-anchor:end}
.light{fill:#fff}
.idle{fill:#e4e4e4}
.free{fill:#f6f6f6}
.group{fill:#dfe6ee}
.wait{fill:#9a9a9a}
.axis{stroke:#222;fill:none}
.grid{stroke:#000;stroke-opacity:.12;fill:none}
.arrow{fill:none;stroke-width:1;stroke-opacity:.75;marker-end:url(#head)}
)";
  for (int size = 6; size <= 10; ++size) text += fmt::format(".f{0}{{font-size:{0}px}}\n", size);
  for (int p = 0; p < phases; ++p)
    text += fmt::format(
        ".p{0}{{fill:{1};stroke:#fff;stroke-width:.4}}\n.arrow.p{0}{{fill:none;stroke:{1};stroke-width:1}}\n",
        p, colour_of(static_cast<Phase>(p)));
  return text;
}

constexpr const char* arrow_head =
    R"(<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="5" markerHeight="5" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#333"/></marker>
)";

}  // namespace

std::string to_svg(std::span<const Timeline> timelines) {
  double seconds = 0;
  for (const Timeline& timeline : timelines) seconds = std::max(seconds, length(timeline));
  const Axis axis{left, width_of(timelines), seconds > 0 ? seconds : 1};
  Canvas canvas;
  double y = top;
  Arrows arrows = Arrows::none;
  for (const Timeline& timeline : timelines) {
    const Panel panel(timeline, axis, y);
    panel.draw(canvas);
    draw_axis(canvas, axis, panel.rows_top(), panel.bottom());
    arrows = std::min(arrows, panel.arrows());
    y = panel.bottom() + axis_height + panel_gap;
  }
  const double width = axis.left + axis.width + right;
  const double bottom = draw_legend(canvas, timelines, arrows, width, y);
  return std::move(canvas).finish(width, bottom, style(), arrow_head);
}

}  // namespace minitaw::trace
