#include "record/provenance.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace minitaw::record {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::Optional;

const HostNames hosts({"gpu017.cluster.example.org", "io4", "gpu018"});

TEST(Environment, OnlyNamesThatSteerTheRun) {
  for (const char* name : {"SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_CPU_BIND", "SLURM_HET_SIZE", "NCCL_ALGO",
                           "UCX_TLS", "FI_PROVIDER", "MPICH_GPU_SUPPORT_ENABLED", "MPIR_CVAR_ENABLE_GPU",
                           "OMPI_MCA_pml", "OMPI_COMM_WORLD_SIZE", "KOKKOS_NUM_THREADS", "OMP_NUM_THREADS",
                           "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS",
                           "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "MINITAW_MPI_DIRECT"})
    EXPECT_TRUE(may_record(name)) << name;
  for (const char* name : {"HOME", "PATH", "USER", "HOSTNAME", "AWS_SECRET_ACCESS_KEY", "SLURM", "SLURM_",
                           "MY_SLURM_X", "CUDA_PATH", "OMPI_COMMAND", "CUDA", "VISIBLE_DEVICES", "", " "})
    EXPECT_FALSE(may_record(name)) << name;
}

/// Every variable of Slurm's manual pages that names a host, a user, an account, a folder or the job.
TEST(Environment, NothingOfSlurmThatSaysWhoOrWhere) {
  for (const char* name : {"SLURM_NODELIST",
                           "SLURM_JOB_NODELIST",
                           "SLURM_STEP_NODELIST",
                           "SLURMD_NODENAME",
                           "SLURM_TOPOLOGY_ADDR",
                           "SLURM_TOPOLOGY_ADDR_PATTERN",
                           "SLURM_SUBMIT_HOST",
                           "SLURM_SUBMIT_DIR",
                           "SLURM_LAUNCH_NODE_IPADDR",
                           "SLURM_STEP_LAUNCHER_HOST",
                           "SLURM_SRUN_COMM_HOST",
                           "SLURM_NODE_ALIASES",
                           "SLURM_JOB_USER",
                           "SLURM_JOB_UID",
                           "SLURM_JOB_GID",
                           "SLURM_JOB_GROUP",
                           "SLURM_JOB_ACCOUNT",
                           "SLURM_JOB_NAME",
                           "SLURM_JOB_COMMENT",
                           "SLURM_WORKING_DIR",
                           "SLURM_CLUSTER_NAME",
                           "SLURM_JOB_PARTITION",
                           "SLURM_JOB_RESERVATION",
                           "SLURM_CONF",
                           "SLURM_EXPORT_ENV",
                           "SLURM_JWT",
                           "SLURM_WORKING_CLUSTER",
                           "SLURM_CONTAINER",
                           "SLURM_PMIX_MAPPING_SERV",
                           "SLURM_EXCLUDE"})
    EXPECT_EQ(recorded(name, "1", HostNames({}, true)), std::nullopt) << name;
}

TEST(Environment, NeverASecret) {
  for (const char* name : {"SLURM_JWT", "OMPI_MCA_api_token", "UCX_PASSWORD", "NCCL_SECRET", "FI_PRIVATE_KEY",
                           "OMPI_MCA_orte_precondition_transports", "FI_OPX_UUID"})
    EXPECT_FALSE(may_record(name)) << name;
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

TEST(Environment, ValuesThatTellMoreAreLeftOutAndSoIsSaid) {
  for (const auto& [name, value, what] : {std::tuple{"NCCL_TOPO_FILE", "topology.xml", "path"},
                                          {"OMP_TOOL_LIBRARIES", "a.so", "path"},
                                          {"KOKKOS_TOOLS_LIBS", "/home/joe/kp.so", "path"},
                                          {"UCX_MODULE_DIR", "modules", "path"},
                                          {"NCCL_DEBUG", "see ~/nccl", "path"},
                                          {"OMPI_MCA_initial_wdir", "home", "path"},
                                          {"OMPI_MCA_orte_hnp_uri", "12.0;tcp://10.0.0.1:5", "path"},
                                          {"NCCL_NET", "via GPU018-ib0", "host name"},
                                          {"FI_DOMAIN", "gpu017", "host name"},
                                          {"UCX_X", "io4:1", "host name"},
                                          {"MPICH_INTERFACE_HOSTNAME", "eth", "host name"},
                                          {"NCCL_HOSTID", "x", "host name"},
                                          {"NCCL_COMM_ID", "x:1", "host name"},
                                          {"OMPI_MCA_btl_tcp_if_include", "10.128.0.0/16", "address"},
                                          {"FI_SRC", "fe80::1", "address"},
                                          {"UCX_OWNER", "joe_x of joe-test", "user's name"}}) {
    const std::string kept = recorded(name, value, hosts).value();
    EXPECT_THAT(kept, HasSubstr(std::string(name) + "=(")) << value;
    EXPECT_THAT(kept, HasSubstr(what)) << value;
    EXPECT_THAT(kept, Not(HasSubstr(value)));
  }
}

TEST(Environment, HostsAreKeptWhenTheyAreAskedFor) {
  const HostNames shown({"gpu017"}, true);
  EXPECT_THAT(recorded("FI_DOMAIN", "gpu017", shown), Optional(std::string("FI_DOMAIN=gpu017")));
  EXPECT_THAT(recorded("FI_SRC", "10.0.0.1", shown), Optional(std::string("FI_SRC=10.0.0.1")));
  EXPECT_THAT(recorded("NCCL_TOPO_FILE", "/home/joe/x", shown), Optional(HasSubstr("a path")));
}

TEST(Environment, TheProcessHasWhatItHas) {
  ::setenv("OMP_NUM_THREADS", "3", 1);
  ::setenv("MINITAW_TEST_SECRET", "x", 1);
  ::setenv("NCCL_NET", "Io4", 1);
  const std::vector<std::string> found = recorded_environment(hosts);
  EXPECT_TRUE(std::ranges::is_sorted(found));
  EXPECT_THAT(found, Contains("OMP_NUM_THREADS=3"));
  EXPECT_THAT(found, Contains("NCCL_NET=(a host name, not kept)"));
  EXPECT_THAT(found, Each(Not(HasSubstr("MINITAW_TEST_SECRET"))));
}

TEST(HostNames, AreReplacedByTheirNodes) {
  EXPECT_EQ(hosts.hidden("lost gpu017.cluster.example.org (GPU018, gpu0189)"),
            "lost node 0 (node 2, node 29)");
  EXPECT_EQ(hosts.hidden("gpu017: io4 of ratio4 and io42"), "node 0: node 1 of ratio4 and io42");
  EXPECT_EQ(hosts.hidden("io4"), "node 1");
  EXPECT_EQ(hosts.hidden(""), "");
  EXPECT_EQ(hosts.text(2), "node 2");
  EXPECT_EQ(HostNames({"node", "n"}).hidden("node n"), "node 0 node 1") << "once, whatever they are called";
  EXPECT_FALSE(hosts.occur_in("ratio4"));
  EXPECT_TRUE(hosts.occur_in("(IO4)"));
}

TEST(HostNames, StayWhereTheyAreAskedFor) {
  const HostNames shown({"gpu017"}, true);
  EXPECT_EQ(shown.hidden("gpu017 is lost"), "gpu017 is lost");
  EXPECT_EQ(shown.text(0), "gpu017");
  EXPECT_EQ(HostNames().hidden("gpu017"), "gpu017");
}

}  // namespace
}  // namespace minitaw::record

int main(int argc, char** argv) {
  ::setenv("LOGNAME", "joe", 1);  // asked for once
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
