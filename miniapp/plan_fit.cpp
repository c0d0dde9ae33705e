#include "plan_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "model/plan.hpp"

namespace minitaw::app {

namespace {

constexpr std::uint64_t GiB = std::uint64_t{1} << 30;
/// Context of the driver, code of the kernels, buffers of NCCL.
constexpr std::uint64_t context_bytes = GiB;
constexpr std::int64_t seq_step = 128;
constexpr std::int64_t longest_seq = std::int64_t{1} << 26;

std::uint64_t worst_total(const std::vector<schedule::Footprint>& memory) {
  std::uint64_t worst = 0;
  for (const schedule::Footprint& rank : memory) worst = std::max<std::uint64_t>(worst, rank.total());
  return worst;
}

std::uint64_t needed_at(const CasePlan& plan, std::int64_t seq) {
  model::Shape shape = plan.settings.shape;
  shape.seq = seq;
  const model::Layout layout = model::make_layout(shape, schedule::cut_of(plan.program));
  return worst_total(memory_of(plan.settings, plan.program, layout)) + context_bytes +
         model::library_estimate(shape);
}

bool fits_at(const CasePlan& plan, std::int64_t seq, std::uint64_t available) {
  try {
    return needed_at(plan, seq) <= available;
  } catch (const InputError&) {
    return false;  // larger than any buffer can be
  }
}

/// Memory grows with S, so halving finds the last that fits.
std::int64_t largest_seq(const CasePlan& plan, std::uint64_t available) {
  std::int64_t fitting = 0, beyond = longest_seq / seq_step + 1;
  while (beyond - fitting > 1) {
    const std::int64_t middle = fitting + (beyond - fitting) / 2;
    (fits_at(plan, middle * seq_step, available) ? fitting : beyond) = middle;
  }
  return fitting * seq_step;
}

}  // namespace

double in_gib(std::uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(GiB); }

Fit fit(const CasePlan& plan, std::uint64_t available) {
  return {available, worst_total(plan.memory), context_bytes + model::library_estimate(plan.settings.shape),
          largest_seq(plan, available)};
}

std::uint64_t parse_memory(const std::string& text, const std::string& option) {
  const auto refuse = [&] {
    return InputError(fmt::format("{}: \"{}\" is not a size; write for example 80G", option, text));
  };
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || !(value > 0)) throw refuse();
  const std::string unit(rest, end);
  for (const auto& [prefix, power] : {std::pair{'K', 10}, {'M', 20}, {'G', 30}, {'T', 40}})
    if (unit == std::string(1, prefix) || unit == fmt::format("{}iB", prefix))
      value *= static_cast<double>(std::uint64_t{1} << power);
    else if (!unit.empty() && unit.front() == prefix) throw refuse();
  if (!unit.empty() && std::string("KMGT").find(unit.front()) == std::string::npos) throw refuse();
  if (value > 1e18) throw refuse();
  return static_cast<std::uint64_t>(value);
}

std::string to_text(const Fit& fit) {
  const std::string largest =
      fit.largest_seq > 0 ? fmt::format("the largest S that fits is {}", fit.largest_seq) : "no S fits";
  return fmt::format(
      "  device           {}: worst rank needs {:.2f} GiB and about {:.2f} GiB for libraries, of "
      "{:.2f} GiB; {}\n",
      fit.fits() ? "fits" : "DOES NOT FIT", in_gib(fit.arena), in_gib(fit.libraries), in_gib(fit.available),
      largest);
}

nlohmann::ordered_json to_json(const Fit& fit) {
  return {{"available_bytes", fit.available},
          {"arena_bytes", fit.arena},
          {"libraries_estimate_bytes", fit.libraries},
          {"fits", fit.fits()},
          {"largest_seq", fit.largest_seq}};
}

}  // namespace minitaw::app
