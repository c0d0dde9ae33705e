#include "timeline_file.hpp"

#include <fmt/format.h>

#include <fstream>

#include "base/error.hpp"
#include "trace/write.hpp"

namespace minitaw::app {

void require_timeline_name(const std::string& path) {
  if (path.ends_with(".svg") || path.ends_with(".json")) return;
  throw InputError(fmt::format(
      "--timeline: \"{}\" must end in .svg (a drawing) or .json (a Chrome trace, for Perfetto)", path));
}

void write_timelines(const std::string& path, std::span<const trace::Timeline> timelines) {
  require_timeline_name(path);
  std::ofstream file(path, std::ios::binary);
  file << (path.ends_with(".svg") ? trace::to_svg(timelines) : trace::to_chrome_trace(timelines));
  file.close();
  if (!file) throw InputError(fmt::format("--timeline: {} cannot be written", path));
}

}  // namespace minitaw::app
