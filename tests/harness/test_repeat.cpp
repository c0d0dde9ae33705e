// SPDX-License-Identifier: BSD-3-Clause
// A step that is repeated has the same bits, unless one flips: then its rank and tensor are named.
#include "harness/job_test.hpp"

namespace minitaw::harness {
namespace {
using testing::Contains, testing::Each, testing::ElementsAre, testing::HasSubstr,
    testing::StartsWith;

/// Flips a bit of the state with which the last rank begins one repetition.
class Flip final : public Instrument {
public:
  using Place = std::function<std::byte*(const engine::Runtime&)>;

  Flip(int repetition, Place place) : repetition_(repetition), place_(std::move(place)) {}

  void begin_case(const RunningCase& running) override {
    if (++begun_ != repetition_ || running.runtime.rank() + 1 != running.asked.ranks)
      return;
    const Kokkos::View<std::byte, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>
        there(place_(running.runtime));
    std::byte value{};
    Kokkos::deep_copy(value, there);
    Kokkos::deep_copy(there, value ^ std::byte{0x40});
  }

private:
  int repetition_, begun_ = 0;
  Place place_;
};

class Repeat : public tests::Job {
protected:
  static std::vector<std::string> deviations(const Case& c, int repetition, Flip::Place place) {
    return tests::job(engine::make_queues, {std::make_shared<Flip>(repetition, std::move(place))})
        .repeat(c, 3);
  }
};

TEST_F(Repeat, HasTheSameBitsInEverySchedule) {
  for (const char* text : {"ddp clip_norm=0.5",
           "zb2 dtype=bf16",
           "weipipe",
           "tawpipe:rails=2 dtype=bf16 clip_norm=0.5",
           "1f1b:slices=3"})
    EXPECT_THAT(job_.repeat(case_of(text), 3), testing::IsEmpty()) << text;
}

/// A moment of the optimiser, which nothing but the update of one weight depends on: the last one
/// of the second tensor that the rank owns. In ddp all own everything; in 1f1b two blocks each.
TEST_F(Repeat, NamesTheRankAndTensorOfABitThatFlips) {
  const int rank = ranks_ - 1;
  for (const auto& [schedule, layer] : {std::pair{"ddp", 0}, {"zb1", 2 * rank}}) {
    const int repetition = layer == 0 ? 2 : 3;
    const auto found = deviations(case_of(fmt::format("{} layers={}", schedule, 2 * ranks_)),
        repetition,
        [](const engine::Runtime& runtime) {
          constexpr int of_second = 24 + (24 + 2 * 12) * 24 - 1;
          return runtime.arena().optimiser(0).data + of_second * sizeof(float) + 3;
        });
    if (rank_ == 0) {
      EXPECT_THAT(found,
          ElementsAre(fmt::format(
              "rank {}, repetition {}: the weights of layers.{}.wqkv", rank, repetition, layer)));
    }
  }
}

/// With its weight, a rank computes another loss, and all ranks sum another gradient.
TEST_F(Repeat, NamesTheRankThatComputesWithAnotherBit) {
  const auto found = deviations(case_of("ddp"), 2, [](const engine::Runtime& runtime) {
    return runtime.arena().slot({schedule::SlotClass::owned, 0}).data + 2;
  });
  if (rank_ != 0)
    return;
  for (int r = 0; r < ranks_; ++r) {
    const auto line = [&](const std::string& what) {
      return StartsWith(fmt::format("rank {}, repetition 2: {}", r, what));
    };
    EXPECT_THAT(found, Contains(line("the loss")).Times(r + 1 == ranks_ ? 1 : 0));
    EXPECT_THAT(found, Contains(line("the gradient of layers.0.")));
  }
  EXPECT_THAT(found, Each(HasSubstr(", repetition 2: ")));
}

TEST_F(Repeat, RefusesSumsWithoutAFixedOrder) {
  for (const char* text : {"ddp attention=cudnn", "ddp transport=nccl"})
    EXPECT_THROW((void)job_.repeat(case_of(text), 2), AgreedError) << text;
}
}  // namespace
}  // namespace minitaw::harness
