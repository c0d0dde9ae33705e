#include "record/environment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <regex>
#include <sstream>
#include <string_view>

namespace minitaw::record {

namespace {

/// Namespaces of tuning variables alone.
constexpr std::array<std::string_view, 16> prefixes = {
    "NCCL_", "UCX_",  "FI_",  "MPICH_", "MPIR_CVAR_", "OMPI_MCA_", "PSM2_",   "PSM3_",
    "OMP_",  "GOMP_", "KMP_", "MKL_",   "OPENBLAS_",  "KOKKOS_",   "CUBLAS_", "CUDNN_"};

/// Slurm's namespace also holds nodes, users, accounts, folders and what the job is called: only how many of
/// what, and bound to what. The job's number is kept, so that a site can find its own logs.
constexpr std::string_view slurm =
    " JOB_ID RESTART_COUNT NNODES JOB_NUM_NODES STEP_NUM_NODES NTASKS NPROCS STEP_NUM_TASKS"
    " TASKS_PER_NODE STEP_TASKS_PER_NODE NTASKS_PER_NODE NTASKS_PER_SOCKET NTASKS_PER_CORE"
    " NTASKS_PER_GPU NTASKS_PER_TRES CPUS_PER_TASK CPUS_PER_GPU CPUS_ON_NODE JOB_CPUS_PER_NODE"
    " THREADS_PER_CORE CORE_SPEC CPU_BIND CPU_BIND_LIST CPU_BIND_TYPE CPU_FREQ_REQ MEM_BIND"
    " MEM_BIND_LIST MEM_BIND_TYPE MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE DISTRIBUTION DIST_PLANESIZE"
    " ACCEL_BIND_TYPE GPUS GPUS_ON_NODE GPUS_PER_NODE GPUS_PER_SOCKET GPUS_PER_TASK GPU_BIND"
    " GPU_FREQ JOB_GPUS STEP_GPUS SHARDS_ON_NODE TRES_PER_TASK HINT EXCLUSIVE OVERCOMMIT MPI_TYPE"
    " HET_SIZE ";

constexpr std::string_view others =
    " CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING"
    " CUDA_MODULE_LOADING CUBLASLT_WORKSPACE_SIZE NVIDIA_TF32_OVERRIDE ROCR_VISIBLE_DEVICES"
    " HIP_VISIBLE_DEVICES GPU_MAX_HW_QUEUES ZE_AFFINITY_MASK ONEAPI_DEVICE_SELECTOR"
    " GOTO_NUM_THREADS OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE MINITAW_MPI_DIRECT"
    " MALLOC_ARENA_MAX ";

/// Parts of names, in capitals. The transports of Open MPI are the key of a job.
constexpr std::array<std::string_view, 8> secrets = {
    "JWT", "TOKEN", "PASSW", "SECRET", "CREDENTIAL", "_KEY", "_UUID", "PRECONDITION_TRANSPORTS"};
/// Parts of names whose values tell of hosts, users or folders in whatever form.
constexpr std::array<std::string_view, 8> telling = {"HOSTNAME", "HOSTID", "HOSTFILE", "NODELIST",
                                                     "NODENAME", "_URI",   "COMM_ID",  "USER"};
constexpr std::array<std::string_view, 5> folders = {"_FILE", "_PATH", "_DIR", "_WDIR", "LIBRARIES"};

/// Open MPI's names are in small letters.
template <class List>
bool holds_any(std::string name, const List& parts) {
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return std::ranges::any_of(parts,
                             [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

/// Whether a word is in a list with a space before and behind each.
bool is_one_of(std::string_view word, std::string_view list) {
  return list.find(fmt::format(" {} ", word)) != std::string_view::npos;
}

/// A slash that begins a word: of "/a", "./a", "~/a", "x=/a", "tcp://a", but not "GPU-12/1/0".
bool has_path(const std::string& value) {
  for (std::size_t at = value.find('/'); at != std::string::npos; at = value.find('/', at + 1))
    if (at == 0 || std::isalnum(static_cast<unsigned char>(value[at - 1])) == 0) return true;
  return false;
}

bool has_address(const std::string& value) {
  static const std::regex four_numbers(R"((^|[^0-9.])([0-9]{1,3}\.){3}[0-9]{1,3}($|[^0-9.]))");
  return value.find("::") != std::string::npos || std::regex_search(value, four_numbers);
}

std::string user_name() {
  const passwd* const entry = getpwuid(geteuid());
  return entry == nullptr || entry->pw_name == nullptr ? "" : entry->pw_name;
}

/// As a word of its own, whatever the user is called.
bool has_user(const std::string& value) {
  static const std::vector<std::string> users = [] {
    std::vector<std::string> found = {user_name()};
    for (const char* name : {"USER", "LOGNAME"})
      if (const char* const user = std::getenv(name)) found.emplace_back(user);
    return found;
  }();
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return std::ranges::any_of(users, [&](const std::string& user) {
    for (std::size_t at = user.empty() ? std::string::npos : value.find(user); at != std::string::npos;
         at = value.find(user, at + 1)) {
      const std::size_t end = at + user.size();
      if ((at == 0 || !is_word(value[at - 1])) && (end == value.size() || !is_word(value[end]))) return true;
    }
    return false;
  });
}

/// What of it must not be kept; null: nothing.
const char* held_back(const std::string& name, const std::string& value, const HostNames& hosts) {
  if (value.empty()) return nullptr;
  if (holds_any(name, folders) || has_path(value)) return "a path";
  if (has_user(value)) return "a user's name";
  if (hosts.shown()) return nullptr;
  if (holds_any(name, telling) || hosts.occur_in(value)) return "a host name";
  return has_address(value) ? "an address" : nullptr;
}

}  // namespace

bool may_record(const std::string& name) {
  if (holds_any(name, secrets)) return false;
  constexpr std::string_view of_slurm = "SLURM_";
  if (name.starts_with(of_slurm)) return is_one_of(std::string_view(name).substr(of_slurm.size()), slurm);
  return is_one_of(name, others) ||
         std::ranges::any_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::optional<std::string> recorded(const std::string& name, const std::string& value,
                                    const HostNames& hosts) {
  if (!may_record(name)) return std::nullopt;
  const char* const reason = held_back(name, value, hosts);
  return reason == nullptr ? name + "=" + value : fmt::format("{}=({}, not kept)", name, reason);
}

std::vector<std::string> recorded_environment(const HostNames& hosts) {
  std::vector<std::string> found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string variable = *at;
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    if (auto kept = recorded(variable.substr(0, equals), variable.substr(equals + 1), hosts))
      found.push_back(std::move(*kept));
  }
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> shaped_links() {
  static const std::regex form("[a-z_]+=[0-9]+([.][0-9]+)?[a-z]*");
  const char* const said = std::getenv("MINITAW_SHAPED_LINKS");
  std::istringstream words(said == nullptr ? "" : said);
  std::vector<std::string> links;
  for (std::string word; words >> word;)
    if (std::regex_match(word, form)) links.push_back(word);
  return links;
}

std::string links_text(const std::vector<std::string>& links) {
  return links.empty() ? "" : fmt::format("# {:<13} = shaped, {}\n", "links", fmt::join(links, " "));
}

}  // namespace minitaw::record
