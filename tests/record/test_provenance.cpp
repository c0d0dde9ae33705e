// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <sstream>
#include "record/provenance.hpp"

namespace minitaw::record {
namespace {
using testing::Each, testing::ElementsAre, testing::EndsWith, testing::HasSubstr, testing::Not;
const HostNames hosts({{0, "gpu017.cluster.example.org"}, {1, "io4"}, {2, "gpu018"}});

void set(const std::string& name, const std::string& value) {
  ::setenv(name.c_str(), value.c_str(), 1);
}

TEST(Environment, OfWhatSteersTheRunIsKept) {
  const std::string kept[] = {"FI_PROVIDER=ofi_rxm;verbs",
      "KOKKOS_NUM_THREADS=",
      "NCCL_IB_HCA==mlx5_0:1",
      "OMP_PLACES={0:4}:8:4",
      "SLURM_CPU_BIND=quiet,mask_cpu:0xFF"};
  for (const std::string& one : kept)
    set(one.substr(0, one.find('=')), one.substr(one.find('=') + 1));
  const std::vector<std::string> found = recorded_environment(hosts);
  EXPECT_TRUE(std::ranges::is_sorted(found));
  EXPECT_THAT(found, testing::IsSupersetOf(kept));
}

/// Of Slurm nothing that names a host, a user, an account or a folder, and no secrets. More names
/// in tests/miniapp/test_leaks.py.
TEST(Environment, OfOthersIsNot) {
  std::istringstream names(
      "SLURM_NODELIST SLURM_TOPOLOGY_ADDR SLURM_SUBMIT_HOST SLURM_LAUNCH_NODE_IPADDR "
      "SLURM_JOB_ACCOUNT SLURM_JWT NCCL_COMM_ID MY_OMP_X GITHUB_TOKEN");
  for (std::string name; names >> name;)
    set(name, "kept-by-mistake");
  for (const HostNames& known : {hosts, HostNames({}, true)})
    EXPECT_THAT(recorded_environment(known), Each(Not(HasSubstr("kept-by-mistake"))));
}

TEST(Environment, WithAPathOrAHostIsOnlySaidToBeSet) {
  set("NCCL_DEBUG_FILE", "/home/joe/nccl");
  set("NCCL_NET", "Io4");
  EXPECT_THAT(recorded_environment(hosts),
      testing::IsSupersetOf({"NCCL_DEBUG_FILE=(not kept)", "NCCL_NET=(not kept)"}));
  EXPECT_THAT(recorded_environment(HostNames({{0, "io4"}}, true)),
      testing::IsSupersetOf({"NCCL_NET=Io4", "NCCL_DEBUG_FILE=(not kept)"}));
}

TEST(HostNames, AreReplacedByTheirNodes) {
  for (const auto& [said, hidden] : {std::pair{"lost gpu017.cluster.example.org (GPU018, gpu0189)",
                                         "lost node 0 (node 2, node 29)"},
           {"gpu017: io4 of ratio4 and io42", "node 0: node 1 of ratio4 and io42"}})
    EXPECT_EQ(hosts.hidden(said), hidden);
  EXPECT_EQ(HostNames({{0, "node"}, {1, "n"}}).hidden("node n"), "node 0 node 1")
      << "once, whatever they are called";
  EXPECT_EQ(HostNames({{0, "gpu017"}}, true).hidden("gpu017 is lost"), "gpu017 is lost");
}

/// The rest is in tests/miniapp/test_leaks.py.
TEST(Provenance, IsWhatCanBeKnownWithoutAJob) {
  const Provenance p = collect({},
      {"minitaw", "my cn7.toml", "--set", "data=it's"},
      {{.node = 0, .unit = "host", .uuid = "GPU-5"}},
      HostNames());
  for (const auto& [name, said] :
      {std::pair{"command", "^minitaw 'my cn7.toml' --set 'data=it'.''s'$"},
          {"devices", "^host, GPU-5$"},
          {"started", "^20[0-9-]{8}T[0-9:]{8}[.][0-9]{3}Z$"},
          {"version", "."},
          {"git_hash", "."},
          {"compiler", "."}})
    EXPECT_THAT(std::get<std::vector<std::string>>(p.at(name).values),
        ElementsAre(testing::ContainsRegex(said)))
        << name;
}

TEST(Provenance, SaysWhatLinksWereShapedToAndNothingElse) {
  set("MINITAW_SHAPED_LINKS",
      "latency=0.2ms slow=1:30mbit slow_pair=0-12:1.5mbit /home/joe host=cn7 x=10.0.0.1 y=cn7:3");
  EXPECT_THAT(
      shaped_links(), ElementsAre("latency=0.2ms", "slow=1:30mbit", "slow_pair=0-12:1.5mbit"));
  EXPECT_EQ(links_text({"a=1", "b=2"}), "# links         = shaped, a=1 b=2\n");
  ::unsetenv("MINITAW_SHAPED_LINKS");
  EXPECT_EQ(links_text(shaped_links()), "");
}

TEST(RankMap, FirstRanksHaveALineEach) {
  std::vector<topology::RankPlace> ranks = {{.cores = {0}, .node = 0, .unit = "host, 1 thread"},
      {.cores = {0, 1, 2, 3, 8}, .node = 1, .unit = "device 0, NVIDIA H100", .uuid = "GPU-5"}};
  EXPECT_EQ(map_text(ranks, hosts),
      "# rank 0: node 0, cores 0, host, 1 thread\n"
      "# rank 1: node 1, cores 0-3,8, device 0, NVIDIA H100, GPU-5\n");
  ranks.resize(40, {.cores = {0}, .node = 2, .unit = "host, 1 thread"});
  const std::string text = map_text(ranks, hosts);
  EXPECT_EQ(std::ranges::count(text, '\n'), 17) << text;
  EXPECT_THAT(text, EndsWith("\n# and 24 ranks more, the last one on node 2\n"));
}
}  // namespace
}  // namespace minitaw::record
