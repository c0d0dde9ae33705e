#pragma once

#include <span>
#include <string>

#include "trace/timeline.hpp"

namespace minitaw::trace {

/// A Chrome trace in the JSON object format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
/// Every rank of every timeline is a process, every lane a thread; messages are flows from send to receive.
/// Times are in microseconds, as the format asks.
[[nodiscard]] std::string to_chrome_trace(std::span<const Timeline> timelines);

/// A drawing that stands alone: timelines one above the other over a common axis of time, one row for each
/// rank and lane, arrows for messages. Where arrows would cover the picture, only those between groups are
/// drawn.
[[nodiscard]] std::string to_svg(std::span<const Timeline> timelines);

}  // namespace minitaw::trace
