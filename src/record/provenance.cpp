// SPDX-License-Identifier: BSD-3-Clause
#include "record/provenance.hpp"
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fmt/ranges.h>
#include <functional>
#include <hdf5.h>
#include <iterator>
#include <regex>
#include <sstream>
#include <sys/utsname.h>
#include <unistd.h>
#include "base/error.hpp"
#include "base/shell.hpp"
#include "case/result.hpp"
#include "topology/system.hpp"

namespace minitaw::record {
namespace {
constexpr std::size_t shortest_in_words = 4;

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

/// Returns whether `name` (lower case) stands in `text` at this place.
bool is_at(std::string_view text, std::size_t at, std::string_view name) {
  const std::size_t end = at + name.size();
  if (!std::ranges::equal(text.substr(at, name.size()), name, {}, lower))
    return false;
  const bool alone =
      (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
  return alone || name.size() >= shortest_in_words;
}

/// "Linux 6.12.43+deb13-amd64 x86_64"
std::string kernel_text() {
  utsname name{};
  (void)uname(&name);
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

/// How the names of variables begin whose values a record keeps. A list of what is kept cannot miss
/// a secret whose name was not thought of.
constexpr const char* kept_variables = R"(
NCCL_ALGO NCCL_PROTO NCCL_MIN_ NCCL_MAX_ NCCL_NTHREADS NCCL_BUFFSIZE NCCL_P2P_ NCCL_SHM_ NCCL_NET
NCCL_CROSS_NIC NCCL_IB_ NCCL_SOCKET_ NCCL_NVLS_ NCCL_PXN_ NCCL_CUMEM_ NCCL_DMABUF_ NCCL_DEBUG
UCX_TLS UCX_NET_DEVICES UCX_RNDV_ UCX_MAX_ UCX_ZCOPY_ UCX_PROTO_ UCX_IB_ UCX_RC_ UCX_DC_ UCX_UD_
UCX_CUDA_ UCX_MEMTYPE_CACHE FI_PROVIDER FI_DOMAIN FI_CXI_ FI_EFA_ FI_HMEM FI_MR_CACHE_ FI_OFI_RXM_
PSM2_ PSM3_ MPICH_GPU_ MPICH_OFI_ MPICH_SMP_ MPICH_RANK_REORDER_METHOD MPICH_ASYNC_PROGRESS
MPICH_VERSION MPIR_CVAR_ OMPI_MCA_pml OMPI_MCA_btl OMPI_MCA_mtl OMPI_MCA_osc OMPI_MCA_coll
OMPI_MCA_smsc OMPI_COMM_WORLD_SIZE MINITAW_MPI_DIRECT
OMP_ GOMP_ KMP_ MKL_NUM_THREADS MKL_DYNAMIC OPENBLAS_ KOKKOS_NUM_ KOKKOS_DEVICE_ID KOKKOS_MAP_
CUBLAS_ CUBLASLT_ CUDA_VISIBLE_DEVICES CUDA_DEVICE_ CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
NVIDIA_TF32_OVERRIDE ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES
SLURM_JOB_ID SLURM_RESTART_COUNT SLURM_NNODES SLURM_JOB_NUM_NODES SLURM_NTASKS SLURM_TASKS_PER_NODE
SLURM_CPUS_ SLURM_CPU_ SLURM_JOB_CPUS_PER_NODE SLURM_THREADS_PER_CORE SLURM_GPUS SLURM_GPU_
SLURM_MEM_ SLURM_DISTRIBUTION SLURM_HINT
)";
}  // namespace

HostNames::HostNames(std::map<int, std::string> of_nodes, bool shown)
    : names_(std::move(of_nodes)),
      shown_(shown) {
  for (auto [node, full] : names_) {
    std::ranges::transform(full, full.begin(), lower);
    for (const std::string& form : {full, full.substr(0, full.find('.'))})
      if (!form.empty())
        forms_.emplace_back(form, node);
  }
  std::ranges::stable_sort(
      forms_, std::greater<>(), [](const auto& form) { return form.first.size(); });
}

std::string HostNames::text(int node) const {
  return shown_ ? names_.at(node) : fmt::format("node {}", node);
}

std::string HostNames::hidden(const std::string& text) const {
  if (shown_)
    return text;
  // One pass from the left: replaced text is not searched again, even if it looks like a host name.
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const auto form = std::ranges::find_if(
        forms_, [&](const auto& known) { return is_at(text, at, known.first); });
    const bool found = form != forms_.end();
    result += found ? this->text(form->second) : text.substr(at, 1);
    at += found ? form->first.size() : 1;
  }
  return result;
}

std::vector<std::string> recorded_environment(const HostNames& hosts) {
  std::istringstream words(kept_variables);
  const std::vector<std::string> begins(std::istream_iterator<std::string>(words), {});
  std::vector<std::string> kept;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string variable = *at, name = variable.substr(0, variable.find('=') + 1);
    const auto begins_name = [&](const std::string& begin) { return name.starts_with(begin); };
    if (std::ranges::none_of(begins, begins_name))
      continue;
    const std::string value = variable.substr(name.size());
    const bool is_plain = value.find('/') == std::string::npos && hosts.hidden(value) == value;
    kept.push_back(name + (is_plain ? value : "(not kept)"));
  }
  std::ranges::sort(kept);
  return kept;
}

std::vector<std::string> shaped_links() {
  // NAME=VALUE, or NAME=NODE:VALUE and NAME=NODE-NODE:VALUE
  static const std::regex form("[a-z_]+=([0-9]+(-[0-9]+)?:)?[0-9]+([.][0-9]+)?[a-z]*");
  const char* const said = std::getenv("MINITAW_SHAPED_LINKS");
  std::istringstream words(said == nullptr ? "" : said);
  std::vector<std::string> links;
  for (std::string word; words >> word;)
    if (std::regex_match(word, form))
      links.push_back(word);
  return links;
}

std::string links_text(const std::vector<std::string>& links) {
  return links.empty() ? ""
                       : fmt::format("# {:<13} = shaped, {}\n", "links", fmt::join(links, " "));
}

std::string map_text(const std::vector<topology::RankPlace>& ranks, const HostNames& hosts) {
  constexpr std::int64_t most = 16;
  std::string text;
  for (std::size_t rank = 0; rank < std::min<std::size_t>(most, ranks.size()); ++rank) {
    const topology::RankPlace& place = ranks[rank];
    text += fmt::format("# rank {}: node {}{}, cores {}, {}{}{}\n",
        rank,
        place.node,
        hosts.shown() ? fmt::format(" ({})", hosts.text(place.node)) : "",
        topology::cores_text(place.cores),
        place.unit,
        place.uuid.empty() ? "" : ", ",
        place.uuid);
  }
  if (std::ssize(ranks) > most)
    text += fmt::format("# and {} more, the last one on node {}\n",
        counted(std::ssize(ranks) - most, "rank"),
        ranks.back().node);
  return text;
}

const std::vector<Field>& session_fields() {
  const std::string each = "rank of the job";
  static const std::vector<Field> all = {
      {"version", "text", "", "Version of miniTaw."},
      {"git_hash",
          "text",
          "",
          "Commit of the sources; -dirty if they differ from it, unknown outside git."},
      {"build_type", "text", "", "CMake build type."},
      {"compiler", "text", "", "Name and version."},
      {"compiler_flags", "text", "", "Flags that change the code."},
      {"kokkos", "text", "", "Version and back ends."},
      {"mpi", "text", "", "Library and version."},
      {"nccl", "text", "", "Version; empty if it is not used."},
      {"driver", "text", "", "Version of the device driver; empty if there is none."},
      {"libraries", "text", "library", "Name, version and variant of HDF5, BLAS or the vendor's."},
      {"kernel", "text", "", "Operating system of the node of rank 0."},
      {"started", "text", "", "Start of the session, ISO 8601, UTC."},
      {"command", "text", "", "Command line, quoted for a shell."},
      {"deck", "text", "", "The deck as read."},
      {"cases", "text", "case", "Identity of each case that was asked for, in the deck's order."},
      {"stopped", "text", "", "Why the session ended before its cases; only in one that did."},
      {"environment", "text", "variable", "NAME=value of variables that tune libraries, sorted."},
      {"links", "text", "property", "NAME=value of links that scripts/cluster shapes."},
      {"hosts", "text", each, "node 0, node 1, ...; with run --hosts the host of the rank."},
      {"nodes", "1", each, "Number of the node."},
      {"cores", "text", each, "Cores that the rank may run on: 0-3,8."},
      {"cpu", "text", each, "Processor of the node, with sockets, cores and threads."},
      {"devices", "text", each, "Device of the rank."},
      {"adapters", "text", each, "Network adapters and ports that carry messages, by name."},
  };
  return all;
}

Elements text_data(std::string_view text) {
  return {std::vector{std::string(text)}};
}

Elements list_data(std::vector<std::string> list) {
  const std::size_t length = list.size();
  return {std::move(list), {length}};
}

std::string hdf5_text() {
  unsigned major = 0, minor = 0, release = 0;
  (void)H5get_libversion(&major, &minor, &release);
  return fmt::format("HDF5 {}.{}.{}", major, minor, release);
}

Provenance collect(const deck::Deck& deck,
    const std::vector<std::string>& arguments,
    const std::vector<topology::RankPlace>& ranks,
    const HostNames& hosts) {
  using topology::RankPlace;
  const auto texts = [&](const auto& text_of_rank) {
    return list_data(list_of(ranks, text_of_rank));
  };
  const auto device = [](const RankPlace& r) {
    return r.uuid.empty() ? r.unit : fmt::format("{}, {}", r.unit, r.uuid);
  };
  return {{"version", text_data(build::version)},
      {"git_hash", text_data(build::git_hash)},
      {"build_type", text_data(build::build_type)},
      {"compiler", text_data(build::compiler)},
      {"compiler_flags", text_data(build::compiler_flags)},
      {"kernel", text_data(hosts.hidden(kernel_text()))},
      {"started", text_data(utc_now())},
      {"command", text_data(shell_line(arguments))},
      {"deck", text_data(deck.text)},
      {"cases", list_data(list_of(deck.cases, deck::identity))},
      {"environment", list_data(recorded_environment(hosts))},
      {"links", list_data(shaped_links())},
      {"hosts", texts([&](const RankPlace& r) { return hosts.text(r.node); })},
      {"nodes",
          {list_of(ranks, [](const RankPlace& r) { return std::int64_t{r.node}; }),
              {ranks.size()}}},
      {"cores", texts([](const RankPlace& r) { return topology::cores_text(r.cores); })},
      {"devices", texts(device)},
      {"cpu", texts([](const RankPlace& r) { return r.site.cpu; })},
      {"adapters", texts([](const RankPlace& r) { return r.site.adapters; })}};
}

std::string version_text() {
  return fmt::format("minitaw {} ({}, {}, {})",
      build::version,
      build::git_hash,
      build::compiler,
      build::build_type);
}
}  // namespace minitaw::record
