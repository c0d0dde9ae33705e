#include "model/token_index.hpp"

#include <algorithm>
#include <utility>

namespace minitaw::model {

TokenIndex::TokenIndex(std::int64_t vocab, std::int64_t tokens)
    : next_(static_cast<std::size_t>(vocab)), order_(static_cast<std::size_t>(tokens)) {
  segments_.reserve(static_cast<std::size_t>(std::min(vocab, tokens)) + 1);
}

void TokenIndex::sort(std::span<const std::int32_t> tokens) {
  std::fill(next_.begin(), next_.end(), 0);
  for (const std::int32_t token : tokens) ++next_[static_cast<std::size_t>(token)];
  segments_.clear();
  std::int32_t begin = 0;
  for (std::int32_t& count : next_) {
    if (count > 0) segments_.push_back(begin);
    begin += std::exchange(count, begin);
  }
  segments_.push_back(begin);
  for (std::size_t position = 0; position < tokens.size(); ++position)
    order_[static_cast<std::size_t>(next_[static_cast<std::size_t>(tokens[position])]++)] =
        static_cast<std::int32_t>(position);
}

}  // namespace minitaw::model
