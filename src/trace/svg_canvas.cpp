#include "trace/svg_canvas.hpp"

#include <fmt/format.h>

#include <iterator>

namespace minitaw::trace {

std::string number(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '&') result += "&amp;";
    else if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '"') result += "&quot;";
    else if (c == '\'') result += "&apos;";
    else if (code < 0x20 && c != '\n' && c != '\t') result += '?';
    else result += c;
  }
  return result;
}

void Canvas::box(const Box& box, std::string_view look, std::string_view tip) {
  fmt::format_to(std::back_inserter(body_), R"(<rect class="{}" x="{}" y="{}" width="{}" height="{}")", look,
                 number(box.x), number(box.y), number(box.width), number(box.height));
  body_ += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escape(tip));
}

void Canvas::line(double x1, double y1, double x2, double y2, std::string_view look) {
  fmt::format_to(std::back_inserter(body_), R"(<path class="{}" d="M{} {}L{} {}"/>)", look, number(x1),
                 number(y1), number(x2), number(y2));
  body_ += '\n';
}

void Canvas::text(double x, double y, std::string_view look, std::string_view text) {
  fmt::format_to(std::back_inserter(body_), R"(<text class="{}" x="{}" y="{}">{}</text>)", look, number(x),
                 number(y), escape(text));
  body_ += '\n';
}

void Canvas::upright(double x, double y, std::string_view look, std::string_view text) {
  fmt::format_to(std::back_inserter(body_),
                 R"x(<text class="{}" transform="translate({} {}) rotate(-90)">{})x", look, number(x),
                 number(y), escape(text));
  body_ += "</text>\n";
}

std::string Canvas::finish(double width, double height, std::string_view style,
                           std::string_view definitions) && {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}">
<style>
{2}</style>
<defs>
{3}</defs>
<rect width="100%" height="100%" fill="#ffffff"/>
{4}</svg>
)",
      number(width), number(height), style, definitions, body_);
}

}  // namespace minitaw::trace
