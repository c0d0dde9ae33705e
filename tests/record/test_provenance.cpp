// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <sstream>
#include "record/provenance.hpp"

namespace minitaw::record {
namespace {
using testing::Each, testing::EndsWith, testing::HasSubstr, testing::Not;
const HostNames hosts({{0, "gpu017.cluster.example.org"}, {1, "io4"}, {2, "gpu018"}});

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
  const std::string kept[] = {"FI_PROVIDER=ofi_rxm;verbs",
      "KOKKOS_NUM_THREADS=",
      "MPICH_GPU_SUPPORT_ENABLED=1",
      "NCCL_IB_HCA==mlx5_0:1",
      "OMPI_MCA_pml=ucx",
      "OMP_PLACES={0:4}:8:4",
      "SLURM_CPU_BIND=quiet,mask_cpu:0xFF",
      "UCX_TLS=rc_x,cuda_copy"};
  for (const std::string& one : kept)
    set(one.substr(0, one.find('=')), one.substr(one.find('=') + 1));
  const std::vector<std::string> found = recorded_environment(hosts);
  EXPECT_TRUE(std::ranges::is_sorted(found));
  EXPECT_THAT(found, testing::IsSupersetOf(kept));
}

/// Of Slurm nothing that names a host, a user, an account or a folder, and no secrets.
TEST_F(Environment, OfOthersIsNot) {
  std::istringstream names(
      "SLURM_JOB_NODELIST SLURM_NODELIST SLURM_TOPOLOGY_ADDR SLURM_SUBMIT_HOST SLURM_SUBMIT_DIR "
      "SLURM_LAUNCH_NODE_IPADDR SLURM_JOB_USER SLURM_JOB_ACCOUNT SLURM_JOB_NAME SLURM_JWT "
      "OMPI_MCA_orte_precondition_transports NCCL_AUTH NCCL_COMM_ID MY_OMP_X HOSTNAME "
      "GITHUB_TOKEN");
  for (std::string name; names >> name;)
    set(name, "kept-by-mistake");
  for (const HostNames& known : {hosts, HostNames({}, true)})
    EXPECT_THAT(recorded_environment(known), Each(Not(HasSubstr("kept-by-mistake"))));
}

TEST_F(Environment, WithAPathOrAHostIsOnlySaidToBeSet) {
  set("NCCL_DEBUG_FILE", "/home/joe/nccl");
  set("OMPI_MCA_btl_tcp_if_include", "10.128.0.0/16");
  set("NCCL_NET", "Io4");
  set("FI_DOMAIN", "gpu017_mlx");
  EXPECT_THAT(recorded_environment(hosts),
      testing::IsSupersetOf({"FI_DOMAIN=(not kept)",
          "NCCL_DEBUG_FILE=(not kept)",
          "NCCL_NET=(not kept)",
          "OMPI_MCA_btl_tcp_if_include=(not kept)"}));
  EXPECT_THAT(recorded_environment(HostNames({{0, "io4"}}, true)),
      testing::IsSupersetOf({"NCCL_NET=Io4", "NCCL_DEBUG_FILE=(not kept)"}));
}

TEST(HostNames, AreReplacedByTheirNodes) {
  for (const auto& [said, hidden] : {std::pair{"lost gpu017.cluster.example.org (GPU018, gpu0189)",
                                         "lost node 0 (node 2, node 29)"},
           {"gpu017: io4 of ratio4 and io42", "node 0: node 1 of ratio4 and io42"},
           {"(IO4)", "(node 1)"},
           {"", ""}})
    EXPECT_EQ(hosts.hidden(said), hidden);
  EXPECT_EQ(HostNames({{0, "node"}, {1, "n"}}).hidden("node n"), "node 0 node 1")
      << "once, whatever they are called";
  EXPECT_EQ(HostNames({{0, "gpu017"}}, true).hidden("gpu017 is lost"), "gpu017 is lost");
}

std::string text_of(const Provenance& p, const std::string& name) {
  return fmt::format("{}", fmt::join(std::get<std::vector<std::string>>(p.at(name).values), "|"));
}

TEST_F(Environment, IsAmongWhatCanBeKnownWithoutAJob) {
  set("FI_DOMAIN", "cn7");
  deck::Deck deck;
  deck.text = "data = \"/scratch/cn7/x\"\n";
  const Provenance p = collect(deck,
      {"minitaw", "my cn7.toml", "--set", "data=it's"},
      {{.node = 0, .unit = "host", .uuid = "GPU-5"}},
      HostNames({{0, "cn7"}}));
  for (const auto& [name, said] :
      {std::pair{"command", "^minitaw 'my cn7.toml' --set 'data=it'.''s'$"},  // as it was written
          {"deck", "^data = \"/scratch/cn7/x\"\n$"},
          {"kernel", "^Linux "},
          {"environment", "FI_DOMAIN=.not kept."},
          {"hosts", "^node 0$"},
          {"devices", "^host, GPU-5$"},
          {"started", "^20[0-9-]{8}T[0-9:]{8}[.][0-9]{3}Z$"},
          {"version", "."},
          {"git_hash", "."},
          {"compiler", "."}})
    EXPECT_THAT(text_of(p, name), testing::ContainsRegex(said)) << name;
}

TEST(Provenance, SaysWhatLinksWereShapedToAndNothingElse) {
  ::setenv("MINITAW_SHAPED_LINKS", "rate=100mbit latency=0.2ms /home/joe host=cn7 x=10.0.0.1", 1);
  EXPECT_THAT(shaped_links(), testing::ElementsAre("rate=100mbit", "latency=0.2ms"));
  EXPECT_EQ(links_text(shaped_links()), "# links         = shaped, rate=100mbit latency=0.2ms\n");
  ::unsetenv("MINITAW_SHAPED_LINKS");
  EXPECT_EQ(links_text(shaped_links()), "");
}

TEST(RankMap, FirstRanksHaveALineEach) {
  const std::map<int, std::string> names = {{0, "cn1"}, {1, "cn2"}, {2, "cn3"}};
  std::vector<topology::RankPlace> ranks = {{.cores = {0}, .node = 0, .unit = "host, 1 thread"},
      {.cores = {0, 1, 2, 3, 8}, .node = 1, .unit = "device 0, NVIDIA H100", .uuid = "GPU-5"}};
  const std::string first = "# rank 0: node 0, cores 0, host, 1 thread\n"
                            "# rank 1: node 1, cores 0-3,8, device 0, NVIDIA H100, GPU-5\n";
  EXPECT_EQ(map_text(ranks, HostNames(names)), first);
  EXPECT_THAT(
      map_text(ranks, HostNames(names, true)), HasSubstr("\n# rank 1: node 1 (cn2), cores"));
  ranks.resize(40, {.cores = {0}, .node = 2, .unit = "host, 1 thread"});
  const std::string text = map_text(ranks, HostNames(names));
  EXPECT_EQ(std::ranges::count(text, '\n'), 17) << text;
  EXPECT_THAT(text, EndsWith("\n# and 24 ranks more, the last one on node 2\n"));
}
}  // namespace
}  // namespace minitaw::record
