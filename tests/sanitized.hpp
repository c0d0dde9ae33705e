// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace minitaw::test {
/// Under a sanitizer, memory grows threefold and time tenfold: tests then take fewer shapes or rounds.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
}  // namespace minitaw::test
