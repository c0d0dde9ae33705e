#pragma once

#include <array>
#include <numeric>
#include <vector>

#include "trace/phase.hpp"
#include "trace/rows.hpp"
#include "trace/svg_canvas.hpp"
#include "trace/timeline.hpp"

namespace minitaw::trace {

/// Time as a place from left to right.
struct Axis {
  double left = 0;     ///< pixels
  double width = 0;    ///< pixels
  double seconds = 0;  ///< as long as that

  [[nodiscard]] double at(double time) const { return left + width * time / seconds; }
};

/// Which messages are drawn as arrows.
enum class Arrows : std::uint8_t { all, between_groups, none };

/// One timeline of a drawing: a title, and below it the rows of its ranks.
class Panel {
public:
  Panel(const Timeline& timeline, const Axis& axis, double top);

  [[nodiscard]] double bottom() const { return bottom_; }
  /// Where its rows begin; the title is above.
  [[nodiscard]] double rows_top() const { return rows_top_; }
  [[nodiscard]] Arrows arrows() const { return arrows_; }
  /// Lanes have their names beside them.
  [[nodiscard]] bool names_lanes() const { return large(); }
  /// Blocks carry the micro-batch, because their shard is always the same.
  [[nodiscard]] bool by_micro_batch() const { return by_micro_batch_; }
  void draw(Canvas& canvas) const;

private:
  /// Heights of a rank's lanes; 0: left out, because no rank uses the lane.
  struct Heights {
    std::array<double, schedule::lanes> lanes{};
    double gap = 0;
    [[nodiscard]] double rank() const { return std::accumulate(lanes.begin(), lanes.end(), gap); }
  };

  /// Few ranks, so that there is room for words.
  [[nodiscard]] bool large() const { return timeline_.groups.ranks() <= 8; }
  [[nodiscard]] Heights heights() const;
  [[nodiscard]] Arrows choose_arrows() const;
  [[nodiscard]] bool one_shard_per_rank() const;
  [[nodiscard]] double rank_top(int rank) const;
  [[nodiscard]] Box lane_box(int rank, int lane) const;
  [[nodiscard]] Box box_of(std::size_t event) const;
  [[nodiscard]] std::string label_of(const Event& event, double width, double size) const;

  void draw_title(Canvas& canvas) const;
  void draw_groups(Canvas& canvas) const;
  void draw_rank(Canvas& canvas, int rank) const;
  void draw_event(Canvas& canvas, std::size_t event) const;
  void draw_arrows(Canvas& canvas) const;

  const Timeline& timeline_;
  Axis axis_;
  Rows rows_;
  Heights heights_;
  Arrows arrows_;
  bool by_micro_batch_;
  std::size_t shard_digits_ = 1, micro_batch_digits_ = 1;
  double top_, rows_top_, bottom_;
};

}  // namespace minitaw::trace
