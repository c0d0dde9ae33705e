#include <gmock/gmock.h>

#include <cstdlib>

#include "record/provenance.hpp"

namespace minitaw::record {
namespace {

using testing::Contains;
using testing::Each;
using testing::MatchesRegex;
using testing::Not;

TEST(Environment, only_names_that_steer_the_run) {
  for (const char* name : {"SLURM_NTASKS", "NCCL_ALGO", "UCX_TLS", "FI_PROVIDER", "MPICH_GPU_SUPPORT_ENABLED",
                           "OMPI_COMM_WORLD_SIZE", "KOKKOS_NUM_THREADS", "OMP_NUM_THREADS",
                           "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})
    EXPECT_TRUE(may_record(name)) << name;
  for (const char* name :
       {"HOME", "PATH", "USER", "AWS_SECRET_ACCESS_KEY", "SLURM", "MY_SLURM_X", "CUDA_PATH", ""})
    EXPECT_FALSE(may_record(name)) << name;
}

TEST(Environment, never_a_secret) {
  for (const char* name : {"SLURM_JWT", "OMPI_API_TOKEN", "UCX_PASSWORD", "NCCL_SECRET", "FI_PRIVATE_KEY"})
    EXPECT_FALSE(may_record(name)) << name;
}

TEST(Provenance, holds_what_can_be_known_without_a_job) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  ::setenv("MINITAW_TEST_SECRET", "x", 1);
  deck::Deck deck;
  deck.path = "d.toml";
  deck.text = "layers = 1\n";
  deck.overrides = {"seq=4K"};
  const Provenance p = collect(deck, {"minitaw", "run", "my deck.toml", "--set", "data=it's"});
  EXPECT_EQ(p.command, "minitaw run 'my deck.toml' --set 'data=it'\\''s'");
  EXPECT_THAT(p.environment, Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(p.environment, Each(Not(testing::HasSubstr("MINITAW_TEST_SECRET"))));
  EXPECT_THAT(p.started,
              MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]Z"));
  EXPECT_EQ(p.deck, "layers = 1\n");
  EXPECT_FALSE(p.version.empty());
  EXPECT_FALSE(p.git_hash.empty());
  EXPECT_FALSE(p.compiler.empty());
}

}  // namespace
}  // namespace minitaw::record
