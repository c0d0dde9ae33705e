// SPDX-License-Identifier: BSD-3-Clause
// Every schedule computes what one rank does: losses, gradients and weights of all steps.
#include <set>
#include "engine/simulated_stream.hpp"
#include "harness/job_test.hpp"
#include "schedule/example.hpp"
#include "this_run.hpp"

namespace minitaw::harness {
namespace {
double length(const std::vector<NamedTensor>& gradient) {
  double squares = 0;
  for (const NamedTensor& tensor : gradient)
    for (const double v : tensor.values)
      squares += v * v;
  return std::sqrt(squares);
}

class Cases : public tests::Job {
protected:
  void expect_right(const std::string& text, CaseRunner& job) {
    SCOPED_TRACE(text);
    Case c = case_of(text);
    if (test::sanitized && c.shape.dtype == model::Dtype::bf16)
      return;  // its steps take minutes there
    if (c.clip_norm > 0)
      clip(c);
    const Check check = job.verify(c, c.steps, reference_of(c));
    EXPECT_EQ(failure(check, c), "");
    if (rank_ == 0 && c.shape.keys_apart()) {
      EXPECT_GT(check.first.gradient.worst, 0) << "sums of keys have another order";
    }
  }

private:
  /// Limits the gradient so that of the first and the last one only one is longer: AdamW hides a
  /// factor that all share.
  static void clip(Case& c) {
    c.clip_norm = 0;
    c.steps = 3;
    const Training never = serial_reference(c, c.steps);
    c.clip_norm = (length(never.gradients) + length(never.later)) / 2;
  }
};

/// With every option that changes what is executed.
const std::string every_schedule = R"(
ddp
fsdp
fsdp:hierarchical=on:prefetch=2
fsdp:hierarchical=on:reduce=group:reshard=group
1f1b
1f1b:blocking=on
1f1b:chunks=2
zb1
zb2
zbv
weipipe
tawpipe
tawpipe:gwps=off
tawpipe:cco=off
tawpipe:dbs=off
tawpipe:rails=2
tawpipe:shards=block
tawpipe:reduce=none:reshard=none
tawpipe:fetch=step:rails=2:reduce=group:reshard=group
)";

/// In unlike groups where it takes them. More ranks, which share few cores, have a part each.
TEST_F(Cases, OfEveryScheduleComputeWhatOneRankDoes) {
  int turn = 0;
  std::istringstream schedules(every_schedule);
  for (std::string schedule; schedules >> schedule;) {
    if (++turn % (ranks_ > 3 ? ranks_ / 2 : 1) != 0)
      continue;
    std::string groups = turn % 2 == 1 && ranks_ > 4 ? "1+1+1+1+*" : ranks_ > 1 ? "1+*" : "1";
    if (schedule.find("hierarchical") != schedule.npos)
      groups = std::to_string(ranks_ % 2 == 0 ? 2 : ranks_);
    expect_right(fmt::format("{} groups={} layers={} micro_batches={} head_dim={} tied={}",
                     schedule,
                     groups,
                     2 * ranks_ + turn % 2,
                     ranks_ * (1 + turn % 3),
                     turn % 4 < 2 ? 6 : 10,
                     (turn + ranks_) % 2 == 0),
        job_);
  }
}

/// Ranks, schedule, settings.
const std::string rows =
    // bf16, and gradients that travel in fp32
    R"(
1 zb1 dtype=bf16
2 ddp dtype=bf16
2 tawpipe:cco=off groups=2 dtype=bf16 grad_dtype=fp32
3 weipipe groups=1+2 dtype=bf16
4 fsdp:hierarchical=on:reduce=group:reshard=group groups=2 dtype=bf16
4 zb2 dtype=bf16
)"
    // clipped gradients, replicas, both
    R"(
1 serial clip_norm=1
2 zb1 replicas=2 groups=2 clip_norm=1
3 fsdp groups=1+2 clip_norm=1
3 zbv layers=7 clip_norm=1
4 tawpipe replicas=2 groups=2 layers=3 clip_norm=1
4 1f1b replicas=2 groups=2 layers=3 micro_batches=6
6 fsdp replicas=2 groups=1+2+1+2 clip_norm=1
6 zb1 replicas=3 groups=3 layers=3 micro_batches=6
)"
    // ranks that share sequences
    R"(
2 fsdp context=2 seq=20 clip_norm=1
2 1f1b:blocking=on context=2 seq=20 recompute=keep-attention micro_batch=3
2 zb1 context=2 seq=20 dtype=bf16 context_grad_dtype=fp32
2 tawpipe context=2 context_parts=2 seq=20 dtype=bf16
3 fsdp:fetch=step:reduce=none:reshard=none context=3 seq=30 recompute=keep-attention
3 zbv layers=7 context=3 seq=30 recompute=none clip_norm=1
4 tawpipe groups=2 context=2 seq=20 micro_batches=6 recompute=none micro_batch=1
4 fsdp:hierarchical=on:prefetch=2 groups=2 context=2 context_parts=2 seq=20
4 zb1 replicas=2 groups=2 context=2 seq=20 layers=2 clip_norm=1
6 fsdp:fetch=step:hierarchical=on:reduce=none:reshard=group groups=2 context=3 seq=30
6 zb2 context=2 seq=20 recompute=keep-attention
8 tawpipe groups=2 context=4 context_parts=2 seq=24
8 fsdp:hierarchical=on groups=4 replicas=2 context=2 seq=20 clip_norm=1
)"
    // heads that are wider, or narrower, than hidden / heads
    R"(
1 serial head_dim=2 dtype=bf16
2 fsdp context=2 context_parts=2 seq=20 head_dim=10 recompute=keep-attention
2 zb1:slices=3 seq=26 head_dim=10 recompute=none
2 1f1b:slices=3 context=2 seq=52 head_dim=2
3 tawpipe groups=1+2 head_dim=10 dtype=bf16 recompute=none
4 tawpipe groups=2 context=2 seq=20 head_dim=2
4 zbv layers=8 context=2 seq=20 head_dim=10
)"
    // tied embeddings, in one place and in two
    R"(
1 zb1 tied=true dtype=bf16 clip_norm=1
2 1f1b:chunks=2 tied=true layers=5 micro_batches=3 dtype=bf16
2 zb1:slices=3 seq=26 tied=true clip_norm=1
2 1f1b replicas=2 groups=2 tied=true
2 csv:file=dualpipev_2x5.csv groups=2 layers=7 micro_batches=5 tied=true
3 zb2 groups=1+2 layers=7 micro_batches=5 tied=true clip_norm=1
3 csv:file=interleaved_1f1b_3x6_comms.csv layers=7 micro_batches=6 tied=true
3 fsdp groups=1+2 dtype=bf16 tied=true clip_norm=1
4 zbv layers=9 context=2 seq=20 tied=true clip_norm=1
4 1f1b:slices=3 context=2 seq=52 tied=true clip_norm=1
4 zb1 replicas=2 groups=2 layers=3 micro_batches=6 dtype=bf16 tied=true clip_norm=1
4 tawpipe replicas=2 groups=2 layers=3 dtype=bf16 grad_dtype=fp32 tied=true
8 1f1b replicas=2 groups=2 context=2 seq=20 layers=3 tied=true clip_norm=1
)"
    // slices, alone and of shared sequences
    R"(
1 1f1b:slices=3 seq=26
1 zb1:slices=8:cut=even seq=26 dtype=bf16 context_grad_dtype=fp32
2 zb1:slices=3 seq=26 recompute=none micro_batch=3
2 zb1:slices=2 seq=26 replicas=2 groups=2 clip_norm=1
2 1f1b:slices=3 context=2 context_parts=2 seq=52 recompute=none
3 zb1:slices=4 seq=26 recompute=keep-attention layers=7
3 zb1:slices=3 context=3 seq=78 micro_batch=1
4 zb1:slices=4:cut=even context=2 seq=52 recompute=keep-attention
)"
    // orders of PyTorch
    R"(
2 csv:file=dualpipev_2x5.csv groups=2 layers=7 micro_batches=5
3 csv:file=interleaved_1f1b_3x6_comms.csv layers=7 micro_batches=6
)"
    // One key: queries and keys have no gradient but noise; one token: none has any. Kernels make
    // partial sums of at most 256 of 300 rows. Ranks without a part wait; five groups. What is kept
    // for the backward pass.
    R"(
2 ddp seq=1
2 tawpipe vocab=1
2 zb1 seq=150
3 tawpipe ranks=2
6 tawpipe:gwps=off ranks=5 groups=5
2 1f1b recompute=none micro_batch=3
3 tawpipe groups=1+2 recompute=keep-attention micro_batch=1
)";

TEST_F(Cases, WithEverySettingComputeWhatOneRankDoes) {
  for (const std::string& text : rows_of(rows))
    expect_right(text, job_);
}

/// Of a pipeline's ends, with gradients that replicas or parts of sequences sum too.
TEST_F(Cases, CopiesOfTiedEmbeddingsHaveTheSameBits) {
  for (const std::string& text : rows_of(R"(
2 1f1b tied=true dtype=bf16
3 zb1 tied=true layers=4
4 1f1b replicas=2 groups=2 layers=3 tied=true
4 zb2 context=2 seq=20 layers=3 tied=true clip_norm=1
)")) {
    SCOPED_TRACE(text);
    const auto runtime = tests::runtime_by_mpi(case_of(text));
    for (int step = 0; step < 3; ++step) {
      runtime->prepare();
      (void)runtime->step();
    }
    std::uint64_t sum = 0;
    if (runtime->own_program().has_embeddings()) {
      const model::Buffer weights = runtime->arena().slot({schedule::SlotClass::embeddings, 0});
      const auto host =
          Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), engine::view_of(weights));
      sum =
          std::hash<std::string_view>()({reinterpret_cast<const char*>(host.data()), host.size()});
    }
    std::set<std::uint64_t> sums;
    for (int rank = 0; rank < ranks_; ++rank) {
      std::uint64_t of_rank = sum;
      MPI_Bcast(&of_rank, 1, MPI_UINT64_T, rank, MPI_COMM_WORLD);
      sums.insert(of_rank);
    }
    sums.erase(0);  // between the ends
    EXPECT_EQ(sums.size(), 1U);
  }
}

/// One thread submits everything ahead of the work, as on a device whose transport works on
/// streams.
TEST_F(Cases, OnStreamsComputeWhatOneRankDoes) {
  CaseRunner on_streams = tests::job(engine::tests::simulated_streams);
  for (const std::string& text : rows_of(R"(
2 fsdp:hierarchical=on:prefetch=2 groups=1
2 zb1:slices=3 seq=26
3 weipipe
3 tawpipe:fetch=step:rails=2:reduce=group:reshard=group groups=1+2
4 fsdp:hierarchical=on groups=2 context=2 seq=20
)"))
    expect_right(text, on_streams);
}

TEST_F(Cases, OfTheExampleOfThePageComputeWhatOneRankDoes) {
  const Case c = case_of(fmt::format("ddp micro_batches={}", 2 * ranks_));
  const schedule::Request request{{"lend", {}}, c.groups, c.micro_batches, c.shape.layers, 1};
  const auto plan = std::make_shared<PlannedCase>(
      c, std::make_shared<const schedule::Program>(schedule::schedules::lend().build(request)));
  EXPECT_EQ(failure(job_.verify(c, c.steps, reference_of(c), plan), c), "");
}

/// By hand: 3 blocks, 2 micro-batches, 20 tokens a rank with keys and values of 24 elements, which
/// go to the other rank twice in bf16; gradients come back once.
TEST_F(Cases, SendTheGradientsOfKeysInTheTypeThatIsAskedFor) {
  if (ranks_ != 2)
    GTEST_SKIP() << "of two ranks";
  for (const auto& [dtype, bytes] : {std::pair{"auto", 2}, {"fp32", 4}}) {
    const Case c = case_of(
        std::string("ddp context=2 seq=20 micro_batches=2 dtype=bf16 context_grad_dtype=") + dtype);
    std::array<int, 2> sent{};
    for (const LinkBytes& link : job_.run(c, {}).result.bytes)
      if (link.kind == schedule::Traffic::context)
        sent[link.from] += static_cast<int>(link.counted);
    if (rank_ == 0) {
      EXPECT_THAT(sent, testing::Each(3 * 2 * 20 * 24 * (2 + 2 + bytes))) << dtype;
    }
  }
}
}  // namespace
}  // namespace minitaw::harness
