// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include <regex>
#include <unistd.h>
#include "record/provenance.hpp"

// Which variables a record keeps. A list of what is kept cannot miss a secret whose name nobody
// thought of.

namespace minitaw::record {
namespace {
/// Prefixes of libraries whose variables a reader wants to know of: of one that is not listed
/// below, the name is kept.
const std::regex& libraries() {
  static const std::regex form(
      "(NCCL|UCX|FI|MPICH|MPIR_CVAR|OMPI_MCA|PSM2|PSM3|OMP|GOMP|KMP|MKL|OPENBLAS|KOKKOS|CUBLAS|"
      "CUDNN)_[A-Za-z0-9_]{1,60}");
  return form;
}

/// Names of variables whose values are kept.
const std::regex& kept_names() {
  static const std::regex form(
      // communication
      "NCCL_(ALGO|PROTO|(MIN|MAX)_(NCHANNELS|CTAS|P2P_NCHANNELS)|NTHREADS|BUFFSIZE|(LL|LL128)_"
      "BUFFSIZE|P2P_DISABLE|"
      "P2P_LEVEL|P2P_DIRECT_DISABLE|P2P_NET_CHUNKSIZE|SHM_DISABLE|SHM_USE_CUDA_MEMCPY|NET|NET_GDR_"
      "LEVEL|NET_GDR_READ|"
      "NET_SHARED_BUFFERS|CROSS_NIC|COLLNET_ENABLE|NVLS_ENABLE|NVB_DISABLE|PXN_DISABLE|LAUNCH_MODE|"
      "CUMEM_ENABLE|"
      "DMABUF_ENABLE|GRAPH_REGISTER|LOCAL_REGISTER|RUNTIME_CONNECT|IGNORE_CPU_AFFINITY|WORK_FIFO_"
      "DEPTH|SET_STACK_SIZE|"
      "SOCKET_IFNAME|SOCKET_FAMILY|SOCKET_NTHREADS|NSOCKS_PERTHREAD|DEBUG|DEBUG_SUBSYS|CHECKS_"
      "DISABLE|CHECK_POINTERS|"
      "IB_(DISABLE|HCA|TIMEOUT|RETRY_CNT|GID_INDEX|SL|TC|QPS_PER_CONNECTION|SPLIT_DATA_ON_QPS|PCI_"
      "RELAXED_ORDERING|"
      "ADAPTIVE_ROUTING|CUDA_SUPPORT|AR_THRESHOLD|MERGE_NICS))|"
      "UCX_(TLS|NET_DEVICES|RNDV_THRESH|RNDV_SCHEME|RNDV_FRAG_SIZE|MAX_(RNDV|EAGER)_(RAILS|LANES)|"
      "ZCOPY_THRESH|"
      "BCOPY_THRESH|MEMTYPE_CACHE|LOG_LEVEL|PROTO_ENABLE|UNIFIED_MODE|WARN_UNUSED_ENV_VARS|IB_GPU_"
      "DIRECT_RDMA|IB_SL|"
      "IB_TRAFFIC_CLASS|IB_GID_INDEX|IB_PCI_RELAXED_ORDERING|IB_REG_METHODS|(RC|DC|UD)(_MLX5|_"
      "VERBS)?_(TIMEOUT|"
      "RETRY_COUNT|TX_QUEUE_LEN|RX_QUEUE_LEN|MAX_RD_ATOMIC|PATH_MTU|NUM_DCI)|CUDA_COPY_DMABUF|CUDA_"
      "IPC_CACHE)|"
      "FI_(PROVIDER|LOG_LEVEL|HMEM|HMEM_(CUDA|ROCR)_USE_GDRCOPY|HMEM_CUDA_USE_DMABUF|MR_CACHE_("
      "MONITOR|MAX_SIZE|"
      "MAX_COUNT)|UNIVERSE_SIZE|DOMAIN|CXI_(RX_MATCH_MODE|DEFAULT_CQ_SIZE|DEFAULT_TX_SIZE|RDZV_"
      "THRESHOLD|"
      "RDZV_GET_MIN|RDZV_EAGER_SIZE|RDZV_PROTO|OFLOW_BUF_(SIZE|COUNT)|REQ_BUF_SIZE|DISABLE_HOST_"
      "REGISTER|ATS|"
      "OPTIMIZED_MRS)|EFA_(USE_DEVICE_RDMA|FORK_SAFE|ENABLE_SHM_TRANSFER)|OFI_RXM_(BUFFER_SIZE|USE_"
      "SRX))|"
      "PSM[23]_(DEVICES|MULTIRAIL|MQ_RNDV_HFI_THRESH|CUDA|GPUDIRECT|RDMA|NIC)|"
      "MPICH_(VERSION|GPU_[A-Z0-9_]{1,40}|OFI_NIC_(POLICY|MAPPING|VERBOSE)|OFI_NUM_NICS|MAX_THREAD_"
      "SAFETY|"
      "RANK_REORDER_METHOD|SMP_SINGLE_COPY_(MODE|SIZE)|ASYNC_PROGRESS|ENV_DISPLAY|VERSION_DISPLAY)|"
      "MPIR_CVAR_(ENABLE_GPU|CH4_[A-Z0-9_]{1,40}_(SIZE|THRESHOLD|ENABLE)|ASYNC_PROGRESS|NOLOCAL|"
      "(ALLREDUCE|ALLGATHER|REDUCE_SCATTER|BCAST|REDUCE)_(INTRA|INTER)_ALGORITHM)|"
      "OMPI_MCA_(pml|btl|mtl|osc|coll|smsc|op|topo|pml_ucx_(tls|devices)|pml_ob1_[a-z_]{1,40}_"
      "limit|"
      "btl_tcp_if_(include|exclude)|btl_(vader|sm)_single_copy_mechanism|coll_(tuned|hcoll|han|ucc)"
      "_[a-z_]{1,40}|"
      "opal_cuda_support|mpi_(yield_when_idle|cuda_support|paffinity_alone)|hwloc_base_binding_"
      "policy|"
      "rmaps_base_(mapping_policy|oversubscribe))|OMPI_COMM_WORLD_(LOCAL_)?SIZE|MINITAW_MPI_DIRECT|"
      // threads and kernels
      "OMP_(NUM_THREADS|PLACES|PROC_BIND|SCHEDULE|DYNAMIC|WAIT_POLICY|STACKSIZE|MAX_ACTIVE_LEVELS|"
      "NESTED|THREAD_LIMIT|"
      "DISPLAY_ENV|DISPLAY_AFFINITY|CANCELLATION)|GOMP_(CPU_AFFINITY|SPINCOUNT|STACKSIZE)|"
      "KMP_(AFFINITY|BLOCKTIME|HW_SUBSET|LIBRARY|STACKSIZE|TOPOLOGY_METHOD)|"
      "MKL_(NUM_THREADS|DYNAMIC|ENABLE_INSTRUCTIONS|CBWR|THREADING_LAYER|INTERFACE_LAYER|DEBUG_CPU_"
      "TYPE)|"
      "OPENBLAS_(NUM_THREADS|CORETYPE|MAIN_FREE|VERBOSE|DEFAULT_NUM_THREADS)|GOTO_NUM_THREADS|"
      "MALLOC_ARENA_MAX|"
      "KOKKOS_(NUM_THREADS|NUM_DEVICES|DEVICE_ID|MAP_DEVICE_ID_BY|DISABLE_WARNINGS|PRINT|PRINT_"
      "CONFIGURATION|"
      "TUNE_INTERNALS)|CUBLAS_WORKSPACE_CONFIG|CUBLASLT_WORKSPACE_SIZE|CUDNN_(LOGLEVEL_DBG|LOGINFO_"
      "DBG)|"
      // devices
      "(CUDA|ROCR|HIP)_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_"
      "BLOCKING|"
      "CUDA_MODULE_LOADING|NVIDIA_TF32_OVERRIDE|GPU_MAX_HW_QUEUES|ZE_AFFINITY_MASK|ONEAPI_DEVICE_"
      "SELECTOR|"
      // Slurm's counts, bindings and job number, so that a site can find its own logs
      "SLURM_(JOB_ID|RESTART_COUNT|NNODES|JOB_NUM_NODES|STEP_NUM_NODES|NTASKS|NPROCS|STEP_NUM_"
      "TASKS|"
      "TASKS_PER_NODE|STEP_TASKS_PER_NODE|NTASKS_PER_(NODE|SOCKET|CORE|GPU|TRES)|CPUS_PER_TASK|"
      "CPUS_PER_GPU|"
      "CPUS_ON_NODE|JOB_CPUS_PER_NODE|THREADS_PER_CORE|CORE_SPEC|CPU_BIND|CPU_BIND_LIST|CPU_BIND_"
      "TYPE|"
      "CPU_FREQ_REQ|MEM_BIND|MEM_BIND_LIST|MEM_BIND_TYPE|MEM_PER_CPU|MEM_PER_GPU|MEM_PER_NODE|"
      "DISTRIBUTION|"
      "DIST_PLANESIZE|ACCEL_BIND_TYPE|GPUS|GPUS_ON_NODE|GPUS_PER_(NODE|SOCKET|TASK)|GPU_BIND|GPU_"
      "FREQ|"
      "JOB_GPUS|STEP_GPUS|SHARDS_ON_NODE|TRES_PER_TASK|HINT|EXCLUSIVE|OVERCOMMIT|MPI_TYPE|HET_"
      "SIZE)");
  return form;
}

/// A part of a value, between the characters of `between`: a number with its unit, a mask, a device
/// or adapter by the name that its driver gives it, or a word of the libraries and of Slurm.
const std::regex& part_form() {
  static const std::regex form(
      "[0-9]{1,15}(\\.[0-9]{1,9}){0,2}([KMGT]i?B?|[mun]?s|%|x[0-9]{1,6})?|x[0-9]{1,6}|0x[0-9A-F]{1,"
      "32}|inf|"
      "(MIG-)?(GPU|MIG)-[0-9A-F-]{1,60}(/[0-9]{1,2}){0,2}|"
      "((mlx[45]|hfi1|bnxt_re|irdma|cxi|efa|qib|roce|ib|eth|hsn|bond|docker|veth|br|usb|lo|nvme)_?["
      "0-9]{0,3}|"
      "(rocep|ibp|en[opsx])[0-9][0-9a-z]{0,15})|"
      "[01]|y(es)?|n(o|one|ever)?|t(rue)?|f(alse)?|on|off|auto|default|all|any|always|try|enabled?|"
      "disabled?|"
      "ring|tree|collnet(direct|chain)?|nvls(tree)?|pat|simple|ll|ll128|socket|group|parallel|loc|"
      "nvl|pix|pxb|phb|"
      "sys|node|version|warn|info|trace|abort|init|coll|p2p|shm|net|graph|tuning|env|alloc|"
      "error|fatal|debug|data|self|sm|posix|sysv|cma|knem|xpmem|tcp|rc|rc_[xv]|rc_mlx5|rc_verbs|dc|"
      "dc_[xv]|dc_mlx5|ud|"
      "ud_[xv]|ud_mlx5|ud_verbs|mm|cuda|cuda_copy|cuda_ipc|gdr_copy|rocm|rocm_copy|rocm_ipc|get_"
      "zcopy|put_zcopy|am|"
      "verbs|ofi_rxm|ofi_rxd|rxm|udp|psm2|psm3|opx|shm|efa|cxi|hybrid|hardware|software|kdreg2|"
      "memhooks|userfaultfd|"
      "ob1|ucx|cm|ofi|vader|tuned|libnbc|hcoll|han|ucc|basic|rdma|monitoring|serialized|funneled|"
      "multiple|single|block|"
      "round-robin|numa|gpu|user|core|cores|socket|sockets|threads?|hwthread|l3cache|package|board|"
      "slot|"
      "close|spread|master|primary|static|dynamic|guided|runtime|active|passive|verbose|quiet|"
      "noverbose|granularity|"
      "fine|coarse|tile|compact|scatter|balanced|explicit|proclist|respect|norespect|warnings|"
      "nowarnings|reset|"
      "turnaround|throughput|serial|avx|avx2|avx512(_e[0-9])?|sse4_2|compatible|intel|gnu|tbb|"
      "sequential|lp64|ilp64|"
      "haswell|zen|skylakex|sapphirerapids|cooperlake|neoverse(n1|n2|v1)|armv8|a64fx|random|mpi_"
      "rank|"
      "pci_bus_id|fastest_first|lazy|eager|level_zero|opencl|"
      "cyclic|plane|arbitrary|pack|nopack|rank|rank_ldom|map_cpu|mask_cpu|map_ldom|mask_ldom|map_"
      "mem|mask_mem|local|"
      "prefer|sort|nosort|boards|ldoms|map|mask|closest|per_task|map_gpu|mask_gpu|low|medium|high|"
      "highm1|performance|"
      "ondemand|powersave|userspace|compute_bound|memory_bound|multithread|nomultithread|pmix(_v[0-"
      "9])?|pmi2|"
      "cray_shasta|cpu|gres|gres/gpu|mem|billing",
      std::regex::icase);
  return form;
}

constexpr const char* between = ",;:=+^~@()|{}*& ";
constexpr std::size_t longest = 400;

bool has_kept_form(const std::string& value) {
  if (value.size() > longest)
    return false;
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t begin = value.find_first_not_of(between, at);
    if (begin == std::string::npos)
      return true;
    at = std::min(value.find_first_of(between, begin), value.size());
    const std::string part = value.substr(begin, at - begin);
    // A list of cores: "0-3", or an option that is left out: "-x".
    static const std::regex range("[0-9]{1,6}-[0-9]{1,6}");
    if (!std::regex_match(part, part_form()) && !std::regex_match(part, range))
      return false;
  }
  return true;
}
}  // namespace

std::optional<std::string> recorded(
    const std::string& name, const std::string& value, const HostNames& hosts) {
  const bool is_kept = std::regex_match(name, kept_names());
  if (!is_kept && !std::regex_match(name, libraries()))
    return std::nullopt;
  const bool is_plain =
      is_kept && has_kept_form(value) && (hosts.shown() || hosts.hidden(value) == value);
  return name + "=" + (is_plain ? value : "(not kept)");
}

std::vector<std::string> recorded_environment(const HostNames& hosts) {
  std::vector<std::string> found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string variable = *at;
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos)
      continue;
    if (auto kept = recorded(variable.substr(0, equals), variable.substr(equals + 1), hosts))
      found.push_back(std::move(*kept));
  }
  std::ranges::sort(found);
  return found;
}
}  // namespace minitaw::record
