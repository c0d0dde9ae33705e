#include "table.hpp"

#include <fmt/format.h>

namespace minitaw::bench {

namespace {

/// "1.2 G"; nothing for zero.
std::string scaled(double value) {
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "K"}})
    if (value >= unit) return fmt::format("{:.3g} {}", value / unit, name);
  return value > 0 ? fmt::format("{:.3g}", value) : "";
}

/// The side of the roofline that it is on: FLOP/s or B/s.
std::string rate(const Limits& limits, const Kernel& kernel, double seconds) {
  const Cost& cost = kernel.cost;
  const bool by_flops = cost.flops / limits.product.at(kernel.dtype).rate > cost.bytes / limits.triad.rate;
  return by_flops ? scaled(cost.flops / seconds) + "FLOP/s" : scaled(cost.bytes / seconds) + "B/s";
}

/// Digits as far as they mean something.
std::string microseconds(double seconds) {
  const double time = seconds * 1e6;
  return fmt::format("{:.{}f}", time, time < 10 ? 2 : (time < 1000 ? 1 : 0));
}

std::string row(const Limits& limits, const Kernel& kernel, double seconds) {
  return fmt::format("| {} | {} | {} | {:.3g} | {} | {} | {:.0f} % | {:.0f} % |\n", kernel.name, kernel.shape,
                     scaled(kernel.cost.flops), kernel.cost.bytes / (1 << 20), microseconds(seconds),
                     rate(limits, kernel, seconds),
                     100 * limits.least_seconds(kernel.dtype, kernel.cost) / seconds,
                     100 * limits.least_seconds_cached(kernel.dtype, kernel.cost) / seconds);
}

}  // namespace

std::string markdown(const Limits& limits, const Kernels& kernels, const Times& times) {
  std::string text = fmt::format("Triad {:.1f} GB/s ({})", limits.triad.rate / 1e9, limits.triad.how);
  for (const auto& [type, limit] : limits.product)
    text += fmt::format("; matmul {} {:.1f} GFLOP/s ({})", model::name_of(type), limit.rate / 1e9, limit.how);
  text += ".\n\n| kernel | shape | FLOPs | MiB | time, us | rate | of limit | of it, cached "
          "|\n|---|---|---|---|---|---|---|---|\n";
  for (const Kernel& kernel : kernels)
    if (const auto time = times.find(kernel.label); time != times.end())
      text += row(limits, kernel, time->second);
  return text;
}

}  // namespace minitaw::bench
