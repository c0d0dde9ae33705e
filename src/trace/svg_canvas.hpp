#pragma once

#include <string>
#include <string_view>

namespace minitaw::trace {

/// "12.3": a tenth of a pixel.
[[nodiscard]] std::string number(double value);

/// Text as it may stand in an element or an attribute. Characters that XML does not allow become '?'.
[[nodiscard]] std::string escape(std::string_view text);

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

/// Elements of an SVG drawing, one after the other; lengths in pixels. `look` are classes of the style sheet.
class Canvas {
public:
  /// `tip` is shown when the pointer rests on the box.
  void box(const Box& box, std::string_view look, std::string_view tip = {});
  void line(double x1, double y1, double x2, double y2, std::string_view look);
  void text(double x, double y, std::string_view look, std::string_view text);
  /// Text that reads upwards.
  void upright(double x, double y, std::string_view look, std::string_view text);

  /// The whole file.
  [[nodiscard]] std::string finish(double width, double height, std::string_view style,
                                   std::string_view definitions) &&;

private:
  std::string body_;
};

}  // namespace minitaw::trace
