#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "plan_case.hpp"

namespace minitaw::app {

/// Whether a case fits the memory of a device, before anything is allocated.
struct Fit {
  std::uint64_t available = 0;  ///< bytes of one device
  std::uint64_t arena = 0;      ///< of the worst rank, exact
  std::uint64_t libraries = 0;  ///< estimate of what driver, matrix products and attention take beside it
  std::int64_t largest_seq =
      0;  ///< largest multiple of 128 tokens that would fit with all else equal; 0: none

  [[nodiscard]] std::uint64_t needed() const { return arena + libraries; }
  [[nodiscard]] bool fits() const { return needed() <= available; }
};
[[nodiscard]] Fit fit(const CasePlan& plan, std::uint64_t available);

/// "80G", "141GiB", "512M" or bytes; steps of 1024. Throws InputError, which names the option it came from.
[[nodiscard]] std::uint64_t parse_memory(const std::string& text,
                                         const std::string& option = "--device-memory");

[[nodiscard]] double in_gib(std::uint64_t bytes);

[[nodiscard]] std::string to_text(const Fit& fit);
[[nodiscard]] nlohmann::ordered_json to_json(const Fit& fit);

}  // namespace minitaw::app
