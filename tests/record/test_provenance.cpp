// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include "record/provenance.hpp"

namespace minitaw::record {
namespace {
using testing::Contains, testing::Each, testing::EndsWith, testing::HasSubstr, testing::Not;
const HostNames hosts({"gpu017.cluster.example.org", "io4", "gpu018"});

class Environment : public testing::Test {
protected:
  ~Environment() override {
    for (const std::string& name : names_)
      ::unsetenv(name.c_str());
  }

  void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }

private:
  std::vector<std::string> names_;
};

TEST_F(Environment, OfWhatSteersTheRunIsKept) {
  const std::vector<std::pair<std::string, std::string>> variables = {{"NCCL_IB_HCA", "=mlx5_0:1"},
      {"UCX_TLS", "rc_x,cuda_copy"},
      {"FI_PROVIDER", "ofi_rxm;verbs"},
      {"OMP_PLACES", "{0:4}:8:4"},
      {"OMPI_MCA_pml", "ucx"},
      {"SLURM_NTASKS", "12"},
      {"SLURM_CPU_BIND", "quiet,mask_cpu:0xFF"},
      {"MPICH_GPU_SUPPORT_ENABLED", "1"},
      {"KOKKOS_NUM_THREADS", ""}};
  for (const auto& [name, value] : variables)
    set(name, value);
  const std::vector<std::string> found = recorded_environment(hosts);
  EXPECT_TRUE(std::ranges::is_sorted(found));
  for (const auto& [name, value] : variables)
    EXPECT_THAT(found, Contains(name + "=" + value));
}

/// Of Slurm nothing that names a host, a user, an account or a folder, and no secrets.
TEST_F(Environment, OfOthersIsNot) {
  for (const char* name : {"SLURM_JOB_NODELIST",
           "SLURM_NODELIST",
           "SLURM_TOPOLOGY_ADDR",
           "SLURM_SUBMIT_HOST",
           "SLURM_SUBMIT_DIR",
           "SLURM_LAUNCH_NODE_IPADDR",
           "SLURM_JOB_USER",
           "SLURM_JOB_ACCOUNT",
           "SLURM_JOB_NAME",
           "SLURM_JWT",
           "OMPI_MCA_orte_precondition_transports",
           "NCCL_AUTH",
           "NCCL_COMM_ID",
           "MY_OMP_X",
           "HOSTNAME",
           "GITHUB_TOKEN",
           "MINITAW_TEST_SECRET"})
    set(name, "kept-by-mistake");
  for (const HostNames& names : {hosts, HostNames({}, true)})
    EXPECT_THAT(recorded_environment(names), Each(Not(HasSubstr("kept-by-mistake"))));
}

TEST_F(Environment, WithAPathOrAHostIsOnlySaidToBeSet) {
  set("NCCL_DEBUG_FILE", "/home/joe/nccl");
  set("OMPI_MCA_btl_tcp_if_include", "10.128.0.0/16");
  set("NCCL_NET", "Io4");
  set("FI_DOMAIN", "gpu017_mlx");
  for (const char* kept : {"NCCL_DEBUG_FILE=(not kept)",
           "OMPI_MCA_btl_tcp_if_include=(not kept)",
           "NCCL_NET=(not kept)",
           "FI_DOMAIN=(not kept)"})
    EXPECT_THAT(recorded_environment(hosts), Contains(kept));
  const std::vector<std::string> shown = recorded_environment(HostNames({"io4"}, true));
  EXPECT_THAT(shown, testing::IsSupersetOf({"NCCL_NET=Io4", "NCCL_DEBUG_FILE=(not kept)"}));
}

TEST(HostNames, AreReplacedByTheirNodes) {
  EXPECT_EQ(hosts.hidden("lost gpu017.cluster.example.org (GPU018, gpu0189)"),
      "lost node 0 (node 2, node 29)");
  EXPECT_EQ(hosts.hidden("gpu017: io4 of ratio4 and io42"), "node 0: node 1 of ratio4 and io42");
  for (const auto& [said, hidden] : {std::pair{"io4", "node 1"}, {"(IO4)", "(node 1)"}, {"", ""}})
    EXPECT_EQ(hosts.hidden(said), hidden);
  EXPECT_EQ(hosts.text(2), "node 2");
  EXPECT_EQ(HostNames({"node", "n"}).hidden("node n"), "node 0 node 1")
      << "once, whatever they are called";
}

TEST(HostNames, StayWhereTheyAreAskedFor) {
  const HostNames shown({"gpu017"}, true);
  EXPECT_EQ(shown.hidden("gpu017 is lost"), "gpu017 is lost");
  EXPECT_EQ(shown.text(0), "gpu017");
  EXPECT_EQ(HostNames().hidden("gpu017"), "gpu017");
}

std::string text_of(const Provenance& p, const std::string& name) {
  return fmt::format("{}", fmt::join(std::get<std::vector<std::string>>(p.at(name).values), "|"));
}

TEST(Provenance, HoldsWhatCanBeKnownWithoutAJob) {
  deck::Deck deck;
  deck.text = "data = \"/scratch/cn7/x\"\n";
  ::setenv("FI_DOMAIN", "cn7", 1);
  const Provenance p =
      collect(deck, {"minitaw", "my cn7.toml", "--set", "data=it's"}, HostNames({"cn7"}));
  EXPECT_EQ(text_of(p, "command"), "minitaw 'my cn7.toml' --set 'data=it'\\''s'")
      << "as the user wrote it";
  EXPECT_EQ(text_of(p, "deck"), deck.text);
  EXPECT_THAT(text_of(p, "kernel"), testing::StartsWith("Linux "));
  EXPECT_THAT(text_of(p, "environment"),
      testing::AllOf(HasSubstr("FI_DOMAIN=(not kept)"), Not(HasSubstr("cn7"))));
  EXPECT_THAT(text_of(p, "started"), testing::MatchesRegex("20[0-9-]{8}T[0-9:]{8}[.][0-9]{3}Z"));
  for (const char* name : {"version", "git_hash", "compiler"})
    EXPECT_NE(text_of(p, name), "") << name;
}

TEST(Provenance, SaysWhatLinksWereShapedToAndNothingElse) {
  ::setenv("MINITAW_SHAPED_LINKS", "rate=100mbit latency=0.2ms /home/joe host=cn7 x=10.0.0.1", 1);
  EXPECT_THAT(shaped_links(), testing::ElementsAre("rate=100mbit", "latency=0.2ms"));
  EXPECT_EQ(links_text(shaped_links()), "# links         = shaped, rate=100mbit latency=0.2ms\n");
  ::unsetenv("MINITAW_SHAPED_LINKS");
  EXPECT_EQ(links_text(shaped_links()), "");
}

TEST(RankMap, FirstRanksHaveALineEach) {
  const std::vector<std::string> names = {"cn1", "cn2", "cn3", "cn4", "cn5"};
  const HostNames hidden(names), shown(names, true);
  std::vector<topology::RankPlace> ranks = {{.cores = {0}, .node = 0, .unit = "host, 1 thread"},
      {.cores = {0, 1, 2, 3, 8},
          .node = 1,
          .unit = "device 0, NVIDIA H100, 79.6 GiB",
          .uuid = "GPU-5"}};
  EXPECT_EQ(map_text(ranks, hidden),
      "# rank 0: node 0, cores 0, host, 1 thread\n"
      "# rank 1: node 1, cores 0-3,8, device 0, NVIDIA H100, 79.6 GiB, GPU-5\n");
  EXPECT_THAT(map_text(ranks, shown), HasSubstr("# rank 1: node 1 (cn2), cores"));
  ranks.resize(40, {.cores = {0}, .node = 4, .unit = "host, 1 thread"});
  const std::string text = map_text(ranks, hidden);
  EXPECT_EQ(std::ranges::count(text, '\n'), 17) << text;
  EXPECT_THAT(text,
      testing::AllOf(
          EndsWith("\n# and 24 ranks more, the last one on node 4\n"), Not(HasSubstr("cn"))));
}
}  // namespace
}  // namespace minitaw::record
