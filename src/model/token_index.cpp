#include "model/token_index.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace minitaw::model {

std::int64_t most_segments(std::int64_t vocab, std::int64_t tokens) { return std::min(vocab, tokens) + 1; }

std::size_t sort_positions(std::span<std::int32_t> order, std::span<std::int32_t> segments,
                           std::span<const std::int32_t> tokens, std::int64_t vocab) {
  std::vector<std::int32_t> next(static_cast<std::size_t>(vocab));
  for (const std::int32_t token : tokens) ++next[static_cast<std::size_t>(token)];
  std::size_t used = 0;
  std::int32_t begin = 0;
  for (std::int32_t& count : next) {
    if (count > 0) segments[used++] = begin;
    begin += std::exchange(count, begin);
  }
  segments[used++] = begin;
  for (std::size_t position = 0; position < tokens.size(); ++position)
    order[static_cast<std::size_t>(next[static_cast<std::size_t>(tokens[position])]++)] =
        static_cast<std::int32_t>(position);
  return used;
}

}  // namespace minitaw::model
