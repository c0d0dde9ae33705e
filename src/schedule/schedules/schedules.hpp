#pragma once

#include "schedule/registry.hpp"

namespace minitaw::schedule {

/// Build functions of the registry, one file each.
[[nodiscard]] Program build_serial(const Request& request);
[[nodiscard]] Program build_ddp(const Request& request);
[[nodiscard]] Program build_tawpipe(const Request& request);

}  // namespace minitaw::schedule
