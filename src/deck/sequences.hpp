#pragma once

#include "deck/settings.hpp"

/// How the sequences of a step are spread over micro-batches and ranks. Where ranks have micro-batches of
/// sizes of their own, rank r of P computes micro-batches r N to r N + N - 1 of the step, N = M / P.
namespace minitaw::deck {

/// B of a rank.
[[nodiscard]] std::int64_t micro_batch_of(const Case& c, int rank);
/// The shape as a rank computes it.
[[nodiscard]] model::Shape shape_of_rank(const Case& c, int rank);

/// Sequences of a step, all ranks together.
[[nodiscard]] std::int64_t sequences_of_step(const Case& c);
/// Tokens of a step, all ranks together.
[[nodiscard]] double tokens_of_step(const Case& c);
/// Sequences of the step before those of this micro-batch.
[[nodiscard]] std::int64_t first_sequence(const Case& c, int micro_batch);

/// "2", or "1,3,2" where ranks differ.
[[nodiscard]] std::string micro_batch_text(const Case& c);

/// The same step on one rank. Micro-batches of different sizes become one for each sequence.
[[nodiscard]] Case on_one_rank(Case c);

}  // namespace minitaw::deck
