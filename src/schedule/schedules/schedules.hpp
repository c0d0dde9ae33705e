#pragma once

#include "schedule/registry.hpp"

namespace minitaw::schedule {

/// Build functions of the registry.
[[nodiscard]] Program build_serial(const Request& request);
[[nodiscard]] Program build_ddp(const Request& request);
[[nodiscard]] Program build_fsdp(const Request& request);
[[nodiscard]] Program build_1f1b(const Request& request);
[[nodiscard]] Program build_zb1(const Request& request);
[[nodiscard]] Program build_zb2(const Request& request);
[[nodiscard]] Program build_weipipe(const Request& request);
[[nodiscard]] Program build_tawpipe(const Request& request);

/// What some of them ask of a request besides what Entry says. Throw InputError "key: ...".
void check_fsdp(const Request& request);
void check_tawpipe(const Request& request);

}  // namespace minitaw::schedule
