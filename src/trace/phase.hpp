#pragma once

#include <cstdint>
#include <string_view>

#include "trace/timeline.hpp"

namespace minitaw::trace {

/// What an event counts as in a drawing.
enum class Phase : std::uint8_t {
  forward,
  backward,
  backward_input,
  backward_weight,
  ends,    // embedding, loss, their gradients
  update,  // and local work on gradients and weights: zero, add, load
  weights,
  gradients,
  activations,
  ends_transfer,
  join,  // no work: never drawn
};
inline constexpr int phases = 10;  ///< those that are drawn

[[nodiscard]] Phase phase_of(const Event& event);

/// For legends: "F: forward".
[[nodiscard]] std::string_view name_of(Phase phase);
/// "#rrggbb". Hues of the palettes of Okabe and Ito, which colour-blind readers tell apart; compute in full
/// colours, transfers in shades that differ in lightness too.
[[nodiscard]] std::string_view colour_of(Phase phase);

/// "F s3 m1", "send W3 to r5", "all_gather E".
[[nodiscard]] std::string text_of(const Event& event);

}  // namespace minitaw::trace
