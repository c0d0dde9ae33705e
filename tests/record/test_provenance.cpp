// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include "record/provenance.hpp"

namespace minitaw::record {
namespace {
using testing::Contains, testing::Each, testing::EndsWith, testing::HasSubstr, testing::Not,
    testing::Optional;
const HostNames hosts({"gpu017.cluster.example.org", "io4", "gpu018"});

/// Of Slurm nothing that names a host, a user, an account, a folder or the job.
TEST(Environment, OnlyNamesThatSteerTheRun) {
  const auto kept = [](const char* name) {
    return recorded(name, "1", HostNames({}, true)).has_value();
  };
  for (const char* name : {"SLURM_NTASKS",
           "SLURM_JOB_ID",
           "SLURM_CPU_BIND",
           "SLURM_HET_SIZE",
           "NCCL_ALGO",
           "UCX_TLS",
           "FI_PROVIDER",
           "MPICH_GPU_SUPPORT_ENABLED",
           "MPIR_CVAR_ENABLE_GPU",
           "OMPI_MCA_pml",
           "OMPI_COMM_WORLD_SIZE",
           "KOKKOS_NUM_THREADS",
           "OMP_NUM_THREADS",
           "OPENBLAS_NUM_THREADS",
           "CUDA_VISIBLE_DEVICES",
           "ROCR_VISIBLE_DEVICES",
           "MINITAW_MPI_DIRECT"})
    EXPECT_TRUE(kept(name)) << name;
  for (const char* name : {"HOME",
           "PATH",
           "USER",
           "HOSTNAME",
           "SLURM",
           "SLURM_",
           "MY_SLURM_X",
           "CUDA_PATH",
           "OMPI_COMMAND",
           "CUDA",
           "VISIBLE_DEVICES",
           "",
           " "})
    EXPECT_FALSE(kept(name)) << name;
  for (const char* name : {"NODELIST",
           "JOB_NODELIST",
           "STEP_NODELIST",
           "TOPOLOGY_ADDR",
           "SUBMIT_HOST",
           "SUBMIT_DIR",
           "LAUNCH_NODE_IPADDR",
           "STEP_LAUNCHER_HOST",
           "SRUN_COMM_HOST",
           "NODE_ALIASES",
           "JOB_USER",
           "JOB_UID",
           "JOB_GID",
           "JOB_GROUP",
           "JOB_ACCOUNT",
           "JOB_NAME",
           "JOB_COMMENT",
           "WORKING_DIR",
           "CLUSTER_NAME",
           "JOB_PARTITION",
           "JOB_RESERVATION",
           "CONF",
           "EXPORT_ENV",
           "JWT",
           "CONTAINER",
           "EXCLUDE"})
    EXPECT_FALSE(kept((std::string("SLURM_") + name).c_str())) << name;
  for (const char* name :
      {"AWS_SECRET_ACCESS_KEY", "SLURMD_NODENAME", "GITHUB_TOKEN", "MPI_PASSWORD"})
    EXPECT_FALSE(kept(name)) << name << " may hold a secret";
}

/// Whatever they are called, and although their values are plain words and numbers.
TEST(Environment, OfVariablesThatAreNotListedOnlyTheNameIsKept) {
  const HostNames shown({}, true);
  for (const std::string name : {"NCCL_AUTH",
           "NCCL_PASSPHRASE",
           "OMP_PASS",
           "FI_PW",
           "UCX_CRED",
           "KMP_SESSION",
           "OMPI_MCA_api_token",
           "FI_OPX_UUID",
           "NCCL_COMM_ID",
           "UCX_SECRET",
           "MKL_LICENSE",
           "OMPI_MCA_orte_precondition_transports"})
    for (const char* value : {"1", "0x12ab", "auto"})
      EXPECT_THAT(recorded(name, value, shown), Optional(name + "=(not kept)"));
}

TEST(Environment, ValuesPassWhenTheyTuneAndNothingElse) {
  for (const auto& [name, value] : {std::pair{"NCCL_IB_HCA", "=mlx5_0:1,mlx5_3:1"},
           {"UCX_TLS", "rc_x,cuda_copy"},
           {"FI_PROVIDER", "ofi_rxm;verbs"},
           {"OMP_PLACES", "{0:4}:8:4"},
           {"SLURM_JOB_CPUS_PER_NODE", "72(x4)"},
           {"SLURM_CPU_BIND", "quiet,mask_cpu:0xFF"},
           {"CUDA_VISIBLE_DEVICES", "MIG-GPU-5a/1/0"},
           {"NCCL_SOCKET_IFNAME", "^docker0,lo"},
           {"KOKKOS_PRINT", ""},
           {"MPICH_VERSION", "8.1.30"}})
    EXPECT_THAT(recorded(name, value, hosts), Optional(std::string(name) + "=" + value));
}

TEST(Environment, OfValuesOfOtherFormsOnlyTheNameIsKept) {
  const HostNames shown({}, true);
  for (const auto& [name, value] : {std::pair{"NCCL_NET", "via-gpu018-ib0"},
           {"FI_DOMAIN", "gpu017"},
           {"OMPI_MCA_btl_tcp_if_include", "10.128.0.0/16"},
           {"OMPI_MCA_btl_tcp_if_include", "10.128.0.1"},
           {"NCCL_SOCKET_IFNAME", "fe80::1"},
           {"UCX_TLS", "rc,s3cr3t"},
           {"NCCL_DEBUG", "see ~/nccl"},
           {"NCCL_ALGO", "/home/joe/x"},
           {"OMP_PLACES", "scratch/joe/places"},
           {"OMP_NUM_THREADS", "8 # joe"},
           {"NCCL_PROTO", "hunter2"},
           {"NCCL_IB_HCA", "../hca"},
           {"UCX_TLS", "~joe"},
           {"NCCL_DEBUG", "0x0123456789abcdef0123456789abcdef0123456789abcdef"},
           {"FI_PROVIDER", "joe@example.org"},
           {"OMP_SCHEDULE", "AKIAIOSFODNN7EXAMPLE"},
           {"SLURM_JOB_ID", "12345678901234567890"}})
    EXPECT_THAT(recorded(name, value, shown), Optional(std::string(name) + "=(not kept)")) << value;
  EXPECT_THAT(recorded("OMP_PLACES", std::string(401, '1'), shown),
      Optional(std::string("OMP_PLACES=(not kept)")));
}

TEST(Environment, AHostThatIsCalledLikeADeviceIsKeptWhereHostsAre) {
  EXPECT_THAT(recorded("NCCL_IB_HCA", "ib0", HostNames({"ib0"})),
      Optional(std::string("NCCL_IB_HCA=(not kept)")));
  EXPECT_THAT(recorded("NCCL_IB_HCA", "ib0", HostNames({"ib0"}, true)),
      Optional(std::string("NCCL_IB_HCA=ib0")));
}

TEST(Environment, TheProcessHasWhatItHas) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  ::setenv("MINITAW_TEST_SECRET", "x", 1);
  ::setenv("NCCL_NET", "Io4", 1);
  const std::vector<std::string> found = recorded_environment(hosts);
  EXPECT_TRUE(std::ranges::is_sorted(found));
  for (const char* kept : {"OMP_NUM_THREADS=3", "NCCL_NET=(not kept)"})
    EXPECT_THAT(found, Contains(kept));
  EXPECT_THAT(found, Each(Not(HasSubstr("MINITAW_TEST_SECRET"))));
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
  const auto at = std::ranges::find(p, name, &Dataset::path);
  return at == p.end()
             ? "missing"
             : fmt::format("{}", fmt::join(std::get<std::vector<std::string>>(at->values), "|"));
}

TEST(Provenance, HoldsWhatCanBeKnownWithoutAJob) {
  deck::Deck deck;
  deck.path = "/home/joe/d.toml";
  deck.text = "data = \"/scratch/cn7/x\"\n";
  deck.overrides = {"seq=4K"};
  ::setenv("FI_DOMAIN", "cn7", 1);
  const Provenance p =
      collect(deck, {"minitaw", "my cn7.toml", "--set", "data=it's"}, HostNames({"cn7"}));
  EXPECT_EQ(text_of(p, "command"), "minitaw 'my cn7.toml' --set 'data=it'\\''s'")
      << "as the user wrote it";
  EXPECT_EQ(
      std::tuple(text_of(p, "deck"), text_of(p, "deck_path")), std::tuple(deck.text, deck.path));
  EXPECT_EQ(text_of(p, "overrides"), "seq=4K");
  EXPECT_THAT(text_of(p, "environment"),
      testing::AllOf(HasSubstr("FI_DOMAIN=(not kept)"), Not(HasSubstr("cn7"))));
  EXPECT_THAT(text_of(p, "started"), testing::MatchesRegex("20[0-9-]{8}T[0-9:]{8}Z"));
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
  topology::Site& site = ranks[1].site;
  site.core_domains = "0", site.device_domains = "1", site.domain_shared = "no";
  const std::string warning =
      "\n# warning: cores and device are in different NUMA domains: rank 1, 0 and 1";
  EXPECT_THAT(map_text(ranks, hidden), EndsWith(warning + "\n"));
  ranks[0].site = site;
  EXPECT_THAT(map_text({ranks[1], ranks[1], ranks[0]}, hidden),
      EndsWith("rank 0, 0 and 1; ranks 0-2 in all\n"));
  ranks[0].site = ranks[1].site = {};
  ranks.resize(40, {.cores = {0}, .node = 4, .unit = "host, 1 thread"});
  const std::string text = map_text(ranks, hidden);
  EXPECT_EQ(std::ranges::count(text, '\n'), 17) << text;
  EXPECT_THAT(text,
      testing::AllOf(
          EndsWith("\n# and 24 ranks more, the last one on node 4\n"), Not(HasSubstr("cn"))));
}
}  // namespace
}  // namespace minitaw::record
