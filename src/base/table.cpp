// SPDX-License-Identifier: BSD-3-Clause
#include "base/table.hpp"
#include <cmath>
#include <fmt/format.h>

namespace minitaw {
std::string to_text(const Cell& cell) {
  return std::visit([](const auto& value) { return fmt::format("{}", value); }, cell);
}

std::string to_text(const Cell& cell, const Format& format) {
  double number = 0;
  if (const auto* whole = std::get_if<std::int64_t>(&cell); whole != nullptr && format.factor != 1)
    number = static_cast<double>(*whole);
  else if (const auto* real = std::get_if<double>(&cell))
    number = *real;
  else
    return to_text(cell);
  number *= format.factor;
  if (std::isnan(number))
    return "-";
  switch (format.style) {
  case Format::fixed: return fmt::format("{:.{}f}", number, format.decimals);
  case Format::scientific: return fmt::format("{:.{}e}", number, format.decimals);
  default: return figure(number, format.decimals);
  }
}

std::string figure(double value, int most_decimals) {
  if (!std::isfinite(value))
    return "-";
  if (value == 0)
    return "0";
  const int decimals = 3 - static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(decimals, 0, most_decimals));
}

std::string aligned(const std::string& text, int width) {
  return width < 0 ? fmt::format("{:<{}}", text, -width) : fmt::format("{:>{}}", text, width);
}
}  // namespace minitaw
