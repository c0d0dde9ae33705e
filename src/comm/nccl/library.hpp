#pragma once

#include <string>

#include "comm/nccl/api.hpp"

namespace minitaw::comm::nccl {

/// NCCL itself; only in builds with MINITAW_HAVE_NCCL. Communicators do not block: a call that waits for
/// other ranks lets its thread go, so that it can be aborted at any time. NCCL_COMM_BLOCKING and NCCL's other
/// environment variables hold as NCCL reads them.
[[nodiscard]] Api& library();

/// "2.28.9", of the library that is loaded.
[[nodiscard]] std::string library_version();

}  // namespace minitaw::comm::nccl
