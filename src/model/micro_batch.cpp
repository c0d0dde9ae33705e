#include "model/micro_batch.hpp"

#include "model/token_index.hpp"

namespace minitaw::model {

MicroBatch::MicroBatch(const Shape& shape)
    : vocab_(shape.vocab), tokens_(static_cast<std::size_t>(shape.tokens())),
      memory_(Kokkos::view_alloc("minitaw::tokens", Kokkos::WithoutInitializing),
              3 * tokens_ + static_cast<std::size_t>(most_segments(shape.vocab, shape.tokens()))) {}

void MicroBatch::fill(TokenSource& source, std::int64_t step, std::int64_t first) {
  source.fill(part(tokens_, tokens_), part(0, tokens_), step, first);
  const std::span<std::int32_t> behind = part(3 * tokens_, memory_.extent(0) - 3 * tokens_);
  segments_ = sort_positions(part(2 * tokens_, tokens_), behind, inputs(), vocab_);
}

}  // namespace minitaw::model
