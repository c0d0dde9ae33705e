// SPDX-License-Identifier: BSD-3-Clause
// A step that is repeated has the same bits, unless one flips: then its rank and tensor are named.
#include "base/error.hpp"
#include "harness/job_test.hpp"
#include "this_run.hpp"

namespace minitaw::harness {
namespace {
using ::testing::Each, ::testing::ElementsAre, ::testing::HasSubstr;

class Repeat : public tests::Job {
protected:
  std::mt19937 random_{test::seed()};
};

/// Changes the state with which one rank begins one repetition.
class Change : public Instrument {
public:
  using Work = std::function<void(const engine::Runtime&)>;

  Change(int rank, int repetition, Work work)
      : rank_(rank),
        repetition_(repetition),
        work_(std::move(work)) {}

  void begin_case(const RunningCase& running) override {
    if (++begun_ == repetition_ && running.runtime.rank() == rank_)
      work_(running.runtime);
  }

private:
  int rank_, repetition_, begun_ = 0;
  Work work_;
};

void flip(std::byte* place, std::byte bit) {
  const Kokkos::View<std::byte, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged> there(
      place);
  std::byte value{};
  Kokkos::deep_copy(value, there);
  Kokkos::deep_copy(there, value ^ bit);
}

std::vector<std::string> deviations(const Case& c, int rank, int repetition, Change::Work work) {
  CaseRunner job = tests::job(
      engine::make_queues, {std::make_shared<Change>(rank, repetition, std::move(work))});
  return job.repeat(c, 3);
}

struct Owned {
  std::string tensor{};
  std::int64_t element = 0;  ///< of it, in what the rank owns
};

/// The first tensor of which a rank owns something.
Owned first_owned(const Case& c, int rank) {
  const schedule::Program program = schedule::build_valid(request_of(c));
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  const int shard = program.ranks[rank].owned_shards.front();
  const Range there = held(program, rank, schedule::SlotClass::owned, shard, layout);
  for (const model::Tensor& t : layout.shards[shard].tensors)
    if (t.offset + t.size() > there.begin)
      return {t.name, std::max<std::int64_t>(t.offset - there.begin, 0)};
  return {};
}

TEST_F(Repeat, HasTheSameBitsInEverySchedule) {
  for (const std::string& name : tests::some_schedules(std::max(3, job_.ranks()), 0)) {
    Case c = random_case(name, 1 + static_cast<int>(random_() % 2), random_);
    c.shape.dtype = random_() % 2 == 0 ? model::Dtype::bf16 : model::Dtype::fp32;
    c.clip_norm = random_() % 2 == 0 ? 0.5 : 0;
    const std::vector<std::string> found = job_.repeat(c, 3);
    EXPECT_TRUE(found.empty()) << name << " groups " << c.groups.text() << ": " << found.front();
  }
}

/// A moment of the optimiser, which nothing but the update of one weight depends on.
TEST_F(Repeat, NamesTheRankAndTensorOfABitThatFlips) {
  for (const char* name : {"ddp", "fsdp", "1f1b", "zb1", "weipipe", "tawpipe"}) {
    const Case c = one_group(name);
    const int rank = static_cast<int>(random_() % c.ranks),
              repetition = 2 + static_cast<int>(random_() % 2);
    const Owned first = first_owned(c, rank);
    const auto found = deviations(c, rank, repetition, [&](const engine::Runtime& runtime) {
      flip(runtime.arena().optimiser(0).data + first.element * sizeof(float) + 3, std::byte{0x40});
    });
    if (job_.rank() == 0) {
      EXPECT_THAT(found,
          ElementsAre(fmt::format(
              "rank {}, repetition {}: the weights of {}", rank, repetition, first.tensor)))
          << c.schedule;
    }
  }
}

/// With its weight, a rank computes another loss, and all ranks sum another gradient.
TEST_F(Repeat, NamesTheRankThatComputesWithAnotherBit) {
  const Case c = one_group();
  const int rank = c.ranks - 1;
  const auto found = deviations(c, rank, 2, [&](const engine::Runtime& runtime) {
    const model::Buffer weights = runtime.arena().slot({schedule::SlotClass::owned, 0});
    flip(weights.data + 2, std::byte{0x40});
  });
  if (job_.rank() != 0)
    return;
  const auto of = [&](int r, std::string_view what) {
    const std::string begin = fmt::format("rank {}, repetition 2: {}", r, what);
    return std::ranges::count_if(
        found, [&](const std::string& line) { return line.starts_with(begin); });
  };
  for (int r = 0; r < c.ranks; ++r) {
    EXPECT_EQ(of(r, "the loss"), r == rank ? 1 : 0) << r;
    EXPECT_GT(of(r, "the gradient of layers.0."), 0) << r;
  }
  EXPECT_THAT(found, Each(HasSubstr(", repetition 2: ")));
}

TEST_F(Repeat, RefusesSumsWithoutAFixedOrder) {
  Case c = one_group();
  for (const auto& [attention, transport] : {std::pair{"cudnn", "auto"}, {"auto", "nccl"}}) {
    c.attention = attention;
    c.transport = transport;
    EXPECT_THROW((void)job_.repeat(c, 2), InputError) << transport;
  }
}
}  // namespace
}  // namespace minitaw::harness
