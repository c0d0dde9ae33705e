// SPDX-License-Identifier: BSD-3-Clause
#include "record/provenance.hpp"
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fmt/ranges.h>
#include <functional>
#include <iterator>
#include <pwd.h>
#include <regex>
#include <sstream>
#include <unistd.h>
#include "base/error.hpp"
#include "topology/system.hpp"

namespace minitaw::record {
namespace {
constexpr std::size_t shortest_in_words = 4;

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// Returns whether `name` (lower case) stands in `text` at this place.
bool is_at(std::string_view text, std::size_t at, std::string_view name) {
  const std::size_t end = at + name.size();
  if (!std::ranges::equal(text.substr(at, name.size()), name, {}, lower)) return false;
  const bool alone = (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
  return alone || name.size() >= shortest_in_words;
}

/// So that the line can be pasted into a shell.
std::string shell_quoted(const std::string& word) {
  constexpr const char* plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+:,./@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  return "'" + std::regex_replace(word, std::regex("'"), "'\\''") + "'";
}

/// Variables that are kept: namespaces of tuning variables; Slurm's counts, bindings and job number, so that
/// a site can find its own logs, but not its nodes, users, accounts, folders and job names; and a few others.
const std::regex kept_names(
    "(NCCL|UCX|FI|MPICH|MPIR_CVAR|OMPI_MCA|PSM2|PSM3|OMP|GOMP|KMP|MKL|OPENBLAS|KOKKOS|CUBLAS|CUDNN)_.*|"
    "SLURM_(JOB_ID|RESTART_COUNT|NNODES|JOB_NUM_NODES|STEP_NUM_NODES|NTASKS|NPROCS|STEP_NUM_TASKS|"
    "TASKS_PER_NODE|STEP_TASKS_PER_NODE|NTASKS_PER_(NODE|SOCKET|CORE|GPU|TRES)|CPUS_PER_TASK|CPUS_PER_GPU|"
    "CPUS_ON_NODE|JOB_CPUS_PER_NODE|THREADS_PER_CORE|CORE_SPEC|CPU_BIND|CPU_BIND_LIST|CPU_BIND_TYPE|"
    "CPU_FREQ_REQ|MEM_BIND|MEM_BIND_LIST|MEM_BIND_TYPE|MEM_PER_CPU|MEM_PER_GPU|MEM_PER_NODE|DISTRIBUTION|"
    "DIST_PLANESIZE|ACCEL_BIND_TYPE|GPUS|GPUS_ON_NODE|GPUS_PER_(NODE|SOCKET|TASK)|GPU_BIND|GPU_FREQ|"
    "JOB_GPUS|STEP_GPUS|SHARDS_ON_NODE|TRES_PER_TASK|HINT|EXCLUSIVE|OVERCOMMIT|MPI_TYPE|HET_SIZE)|"
    "(CUDA|ROCR|HIP)_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|"
    "CUDA_MODULE_LOADING|CUBLASLT_WORKSPACE_SIZE|NVIDIA_TF32_OVERRIDE|GPU_MAX_HW_QUEUES|ZE_AFFINITY_MASK|"
    "ONEAPI_DEVICE_SELECTOR|GOTO_NUM_THREADS|OMPI_COMM_WORLD_SIZE|OMPI_COMM_WORLD_LOCAL_SIZE|"
    "MINITAW_MPI_DIRECT|MALLOC_ARENA_MAX");

// Parts of names; Open MPI's are in small letters.
const std::regex secrets("JWT|TOKEN|PASSW|SECRET|CREDENTIAL|_KEY|_UUID|PRECONDITION_TRANSPORTS",
    std::regex::icase);  // the transports of Open MPI are the key of a job
/// Variables whose values may contain names of hosts, users or folders.
const std::regex telling("HOSTNAME|HOSTID|HOSTFILE|NODELIST|NODENAME|_URI|COMM_ID|USER", std::regex::icase);
const std::regex folders("_FILE|_PATH|_DIR|_WDIR|LIBRARIES", std::regex::icase);
/// A slash that begins a word: of "/a", "./a", "~/a", "x=/a", "tcp://a", but not "GPU-12/1/0".
const std::regex path_form("(^|[^A-Za-z0-9])/");
const std::regex address_form(R"(::|(^|[^0-9.])([0-9]{1,3}\.){3}[0-9]{1,3}($|[^0-9.]))");

/// The users that this process knows of, each as a word of its own, whatever they are called.
std::regex make_user_form() {
  const passwd* const entry = getpwuid(geteuid());
  std::string names = "[^\\s\\S]";  // nobody
  for (const char* user : {entry == nullptr ? nullptr : entry->pw_name, std::getenv("USER"), std::getenv("LOGNAME")})
    if (user != nullptr && *user != '\0')
      names += "|" + std::regex_replace(std::string(user), std::regex("[^A-Za-z0-9_]"), "\\$&");
  return std::regex(fmt::format("(^|[^A-Za-z0-9_])({})($|[^A-Za-z0-9_])", names));
}

/// Part of a variable's value that must not be kept; null: none.
const char* held_back(const std::string& name, const std::string& value, const HostNames& hosts) {
  static const std::regex user_form = make_user_form();
  if (value.empty()) return nullptr;
  if (std::regex_search(name, folders) || std::regex_search(value, path_form)) return "a path";
  if (std::regex_search(value, user_form)) return "a user's name";
  if (hosts.shown()) return nullptr;
  if (std::regex_search(name, telling) || hosts.hidden(value) != value) return "a host name";
  return std::regex_search(value, address_form) ? "an address" : nullptr;
}
}  // namespace

HostNames::HostNames(std::vector<std::string> of_node, bool shown) : names_(std::move(of_node)), shown_(shown) {
  for (int node = 0; node < static_cast<int>(names_.size()); ++node) {
    std::string full = names_[static_cast<std::size_t>(node)];
    std::ranges::transform(full, full.begin(), lower);
    const std::string first = full.substr(0, full.find('.'));
    for (const std::string& form : first == full ? std::vector{full} : std::vector{full, first})
      if (!form.empty()) forms_.emplace_back(form, node);
  }
  std::ranges::stable_sort(forms_, std::greater<>(), [](const auto& form) { return form.first.size(); });
}

std::string HostNames::text(int node) const { return shown_ ? names_.at(node) : fmt::format("node {}", node); }

std::string HostNames::hidden(const std::string& text) const {
  if (shown_) return text;
  // One pass from the left: replaced text is not searched again, even if it looks like a host name.
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const auto form = std::ranges::find_if(forms_, [&](const auto& known) { return is_at(text, at, known.first); });
    const bool found = form != forms_.end();
    result += found ? this->text(form->second) : text.substr(at, 1);
    at += found ? form->first.size() : 1;
  }
  return result;
}

std::optional<std::string> recorded(const std::string& name, const std::string& value, const HostNames& hosts) {
  if (!std::regex_match(name, kept_names) || std::regex_search(name, secrets)) return std::nullopt;
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

std::string map_text(const std::vector<RankPlace>& ranks, const HostNames& hosts) {
  constexpr std::int64_t most = 16;
  std::string text;
  std::vector<int> apart;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].site.domain_shared == "no") apart.push_back(static_cast<int>(rank));
  for (std::size_t rank = 0; rank < std::min<std::size_t>(most, ranks.size()); ++rank) {
    const auto& [node, cores, unit, uuid, site] = ranks[rank];
    text += fmt::format("# rank {}: node {}{}, cores {}, {}{}{}\n", rank, node,
        hosts.shown() ? fmt::format(" ({})", hosts.text(node)) : "", cores, unit, uuid.empty() ? "" : ", ", uuid);
  }
  if (std::ssize(ranks) > most)
    text += fmt::format(
        "# and {} more, the last one on node {}\n", counted(std::ssize(ranks) - most, "rank"), ranks.back().node);
  if (!apart.empty())
    text += fmt::format("# warning: cores and device are in different NUMA domains: rank {}, {} and {}{}\n",
        apart.front(), ranks[apart.front()].site.core_domains, ranks[apart.front()].site.device_domains,
        apart.size() > 1 ? fmt::format("; ranks {} in all", topology::ranges_text(apart)) : "");
  return text;
}

h5::Dataset entry(std::string name, std::string_view text) {
  return {std::move(name), "text", "", h5::one(std::string(text))};
}

h5::Dataset entry(std::string name, std::string axis, std::vector<std::string> list) {
  const hsize_t size = list.size();
  return {std::move(name), "text", std::move(axis), std::move(list), {size}};
}

Provenance collect(const deck::Deck& deck, const std::vector<std::string>& arguments, const HostNames& hosts) {
  const std::vector<std::string> words = list_of(arguments, shell_quoted);
  return {entry("version", build::version), entry("git_hash", build::git_hash), entry("build_type", build::build_type),
      entry("compiler", build::compiler), entry("compiler_flags", build::compiler_flags), entry("started", utc_now()),
      entry("command", fmt::format("{}", fmt::join(words, " "))), entry("deck_path", deck.path),
      entry("deck", deck.text), entry("overrides", "override", deck.overrides),
      entry("environment", "variable", recorded_environment(hosts)), entry("links", "property", shaped_links())};
}

std::string version_text() {
  return fmt::format("minitaw {} ({}, {}, {})", build::version, build::git_hash, build::compiler, build::build_type);
}
}  // namespace minitaw::record
