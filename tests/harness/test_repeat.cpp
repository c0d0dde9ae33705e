// SPDX-License-Identifier: BSD-3-Clause
// A step that is repeated has the same bits, unless one flips: then its rank and tensor are named.
#include "harness/job_test.hpp"

namespace minitaw::harness {
namespace {
/// Flips a bit of the state with which one rank begins one repetition.
class Flip final : public Instrument {
public:
  using Place = std::function<std::byte*(const engine::Runtime&)>;

  Flip(int rank, int repetition, Place place)
      : rank_(rank),
        repetition_(repetition),
        place_(std::move(place)) {}

  void begin_case(const RunningCase& running) override {
    if (++begun_ != repetition_ || running.runtime.rank() != rank_)
      return;
    const Kokkos::View<std::byte, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>
        there(place_(running.runtime));
    std::byte value{};
    Kokkos::deep_copy(value, there);
    Kokkos::deep_copy(there, value ^ std::byte{0x40});
  }

private:
  int rank_, repetition_, begun_ = 0;
  Place place_;
};

class Repeat : public tests::Job {
protected:
  static std::vector<std::string> deviations(
      const Case& c, int rank, int repetition, Flip::Place place) {
    return tests::job(
        engine::make_queues, {std::make_shared<Flip>(rank, repetition, std::move(place))})
        .repeat(c, 3);
  }
};

TEST_F(Repeat, HasTheSameBitsInEverySchedule) {
  for (const char* text : {"ddp clip_norm=0.5",
           "fsdp",
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
  for (const auto& [schedule, layer] :
      {std::pair{"ddp", 0}, {"1f1b", 2 * rank}, {"zb1", 2 * rank}}) {
    const Case c = case_of(fmt::format("{} layers={}", schedule, 2 * ranks_));
    const int repetition = 2 + layer % 2;
    const auto found = deviations(c, rank, repetition, [&](const engine::Runtime& runtime) {
      constexpr int of_second = 24 + (24 + 2 * 12) * 24 - 1;
      return runtime.arena().optimiser(0).data + of_second * sizeof(float) + 3;
    });
    if (rank_ == 0) {
      EXPECT_THAT(found,
          testing::ElementsAre(fmt::format(
              "rank {}, repetition {}: the weights of layers.{}.wqkv", rank, repetition, layer)));
    }
  }
}

/// With its weight, a rank computes another loss, and all ranks sum another gradient.
TEST_F(Repeat, NamesTheRankThatComputesWithAnotherBit) {
  const int rank = ranks_ - 1;
  const auto found = deviations(case_of("ddp"), rank, 2, [](const engine::Runtime& runtime) {
    return runtime.arena().slot({schedule::SlotClass::owned, 0}).data + 2;
  });
  if (rank_ != 0)
    return;
  for (int r = 0; r < ranks_; ++r) {
    const auto of = [&](std::string_view what) {
      return std::ranges::count_if(found, [&](const std::string& line) {
        return line.starts_with(fmt::format("rank {}, repetition 2: {}", r, what));
      });
    };
    EXPECT_EQ(of("the loss"), r == rank ? 1 : 0) << r;
    EXPECT_GT(of("the gradient of layers.0."), 0) << r;
  }
  EXPECT_THAT(found, testing::Each(testing::HasSubstr(", repetition 2: ")));
}

TEST_F(Repeat, RefusesSumsWithoutAFixedOrder) {
  for (const char* text : {"ddp attention=cudnn", "ddp transport=nccl"})
    EXPECT_THROW((void)job_.repeat(case_of(text), 2), InputError) << text;
}
}  // namespace
}  // namespace minitaw::harness
