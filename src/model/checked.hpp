#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/error.hpp"

namespace minitaw::model {

/// The product of `factors`, none of them negative. Throws InputError with `what` when it exceeds `limit`.
inline std::int64_t checked_product(std::string_view what, std::initializer_list<std::int64_t> factors,
                                    std::int64_t limit = INT64_MAX) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product) || product > limit)
      throw InputError(fmt::format("{} is larger than {}; make one of them smaller", what, limit));
  return product;
}

/// The sum of `terms`, none of them negative. Throws InputError with `what` when it overflows.
inline std::int64_t checked_sum(std::string_view what, std::initializer_list<std::int64_t> terms) {
  std::int64_t sum = 0;
  for (const std::int64_t term : terms)
    if (__builtin_add_overflow(sum, term, &sum))
      throw InputError(fmt::format("{} is larger than {}; make one of them smaller", what, INT64_MAX));
  return sum;
}

}  // namespace minitaw::model
