// SPDX-License-Identifier: BSD-3-Clause
// Models whose sequences ranks share, or that come in slices, against a reference that sees them
// whole.
#include "model/cases.hpp"

namespace minitaw::model {
namespace {
using enum Recompute;
using test::bf16, test::fp32, test::grouped, test::one_key_head, test::StepCase;

// Sequences of a multiple of 2, 4, 6, 8 or 10 tokens; of whole granules of slices.
const test::ModelCase long_groups = {"long_groups", {3, 48, 6, 2, 33, 101, 60, 2}, 2, 3},
                      three_sequences = {"three_sequences", {2, 40, 4, 1, 31, 53, 168, 3}, 1, 1},
                      whole_granules = {"whole_granules", {2, 40, 4, 1, 31, 53, 200, 3}, 1, 1},
                      wide_heads = test::with_heads(long_groups, "wide_heads", 14),
                      narrow_heads = test::with_heads(three_sequences, "narrow_heads", 6);

class Divided : public testing::TestWithParam<StepCase> {};

TEST_P(Divided, StepIsThatOfTheWhole) {
  const StepCase& c = GetParam();
  test::ModelCase divided = c.model;
  Shape& shape = divided.shape;
  shape.context.count = c.ranks;
  shape.slices = c.slices;
  shape.even_slices = c.halves;
  shape.fp32_key_gradients = c.fp32_keys;
  shape.key_parts = c.fp32_keys && c.ranks > 1 ? shape.kv_heads : 1;
  test::TrainingLoop loop(
      test::layout_of(divided, c.dtype, c.recompute), test::default_batches, test::default_seed);
  const double loss = c.halves ? loop.gradient_apart(0) : loop.gradient(0);
  test::expect_first_step(test::layout_of(c.model, c.dtype, c.recompute),
      loss,
      loop.totals(),
      c.dtype == fp32 ? test::Tolerance{1e-6, 1e-5}
                      : test::Tolerance{2e-4, c.ranks > 1 ? 1.5e-2 : 2e-2});
}

INSTANTIATE_TEST_SUITE_P(Context,
    Divided,
    testing::Values(StepCase{long_groups, none, fp32, 2, 1, false, true},
        StepCase{long_groups, block, bf16, 3, 1, true, false},
        StepCase{long_groups, keep_attention, bf16, 5, 1, false, true},
        StepCase{long_groups, block, fp32, 5, 1, true, true},
        StepCase{three_sequences, block, bf16, 2, 1, false, true},
        StepCase{three_sequences, keep_attention, fp32, 3, 1, true, false},
        StepCase{three_sequences, none, bf16, 3, 1, true, true},
        StepCase{three_sequences, none, fp32, 4, 1, false, false},
        StepCase{long_groups, block, fp32, 3, 4, true, false},
        StepCase{three_sequences, keep_attention, bf16, 2, 3, false, true},
        StepCase{wide_heads, block, fp32, 3, 1, true, true},
        StepCase{narrow_heads, none, bf16, 2, 3, false, true}),
    test::name_of);

INSTANTIATE_TEST_SUITE_P(Slices,
    Divided,
    testing::Values(StepCase{grouped, none, fp32, 1, 2, false, false},
        StepCase{grouped, block, bf16, 1, 3, true, true},
        StepCase{grouped, keep_attention, bf16, 1, 8, false, true},
        StepCase{one_key_head, block, fp32, 1, 2, false, true},
        StepCase{one_key_head, keep_attention, fp32, 1, 3, false, false},
        StepCase{one_key_head, none, bf16, 1, 8, true, false},
        StepCase{whole_granules, none, fp32, 1, 3, false, true},
        StepCase{whole_granules, block, bf16, 1, 8, false, false},
        StepCase{wide_heads, keep_attention, bf16, 1, 3, true, true},
        StepCase{narrow_heads, none, fp32, 1, 2, false, false}),
    test::name_of);
}  // namespace
}  // namespace minitaw::model
