#include "record/provenance.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <regex>
#include <sstream>
#include <string_view>

#include "base/version.hpp"
#include "record/result.hpp"

namespace minitaw::record {

namespace {

constexpr std::size_t shortest_in_words = 4;

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// Where `name` (lower case) begins in `text`, from `from` on; npos: nowhere.
std::size_t place_of(std::string_view text, std::string_view name, std::size_t from) {
  for (std::size_t at = from; at + name.size() <= text.size(); ++at) {
    const std::size_t end = at + name.size();
    if (!std::ranges::equal(text.substr(at, name.size()), name, {}, lower)) continue;
    const bool alone = (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
    if (alone || name.size() >= shortest_in_words) return at;
  }
  return std::string_view::npos;
}

}  // namespace

HostNames::HostNames(std::vector<std::string> of_node, bool shown)
    : names_(std::move(of_node)), shown_(shown) {
  for (int node = 0; node < static_cast<int>(names_.size()); ++node) {
    std::string full = names_[static_cast<std::size_t>(node)];
    std::ranges::transform(full, full.begin(), lower);
    const std::string first = full.substr(0, full.find('.'));
    if (!full.empty()) forms_.push_back({full, node});
    if (!first.empty() && first != full) forms_.push_back({first, node});
  }
  std::ranges::stable_sort(forms_, std::greater<>(), [](const Form& form) { return form.name.size(); });
}

std::string HostNames::text(int node) const {
  return shown_ ? names_.at(static_cast<std::size_t>(node)) : fmt::format("node {}", node);
}

bool HostNames::occur_in(const std::string& text) const {
  return std::ranges::any_of(
      forms_, [&](const Form& form) { return place_of(text, form.name, 0) != std::string_view::npos; });
}

std::string HostNames::hidden(const std::string& text) const {
  if (shown_) return text;
  // One pass from the left: what has been put in is not looked at again, whatever the hosts are called.
  std::string result;
  std::size_t done = 0;
  while (true) {
    const Form* next = nullptr;
    std::size_t first = std::string::npos;
    for (const Form& form : forms_)
      if (const std::size_t at = place_of(text, form.name, done); at < first) {
        first = at;
        next = &form;
      }
    if (next == nullptr) return result + text.substr(done);
    result += text.substr(done, first - done) + this->text(next->node);
    done = first + next->name.size();
  }
}

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

namespace {

/// More than this are many.
constexpr int each_its_line = 16;

std::string node_text(int node, const HostNames& hosts) {
  return hosts.shown() ? fmt::format("node {} ({})", node, hosts.text(node)) : fmt::format("node {}", node);
}

std::string ranks_text(int first, int end) {
  return end - first == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, end - 1);
}

std::string line(int first, int end, const RankPlace& place, const HostNames& hosts, bool with_uuid) {
  return fmt::format("# {}: {}, cores {}, {}{}{}{}\n", ranks_text(first, end), node_text(place.node, hosts),
                     place.cores, place.unit, end - first > 1 ? " each" : "",
                     with_uuid && !place.uuid.empty() ? ", " : "", with_uuid ? place.uuid : "");
}

bool alike(const RankPlace& a, const RankPlace& b) { return a.cores == b.cores && a.unit == b.unit; }

class Compact {
public:
  Compact(const std::vector<RankPlace>& ranks, const HostNames& hosts) : ranks_(ranks), hosts_(hosts) {
    for (int rank = 0; rank < count(); ++rank)
      if (rank == 0 || at(rank).node != at(rank - 1).node) firsts_.push_back(rank);
    firsts_.push_back(count());
  }

  [[nodiscard]] std::string text() const {
    std::string text;
    const int nodes = static_cast<int>(firsts_.size()) - 1;
    for (int node = 0, next; node < nodes; node = next) {
      for (next = node + 1; next < nodes && same(node, next);) ++next;
      text += of_node(node);
      if (next - node > 1) text += of_followers(node, next);
    }
    return text;
  }

private:
  [[nodiscard]] int count() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] const RankPlace& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int first(int node) const { return firsts_[static_cast<std::size_t>(node)]; }

  [[nodiscard]] bool same(int a, int b) const {
    return std::equal(ranks_.begin() + first(a), ranks_.begin() + first(a + 1), ranks_.begin() + first(b),
                      ranks_.begin() + first(b + 1), alike);
  }

  [[nodiscard]] std::string of_node(int node) const {
    std::string text;
    for (int rank = first(node), end; rank < first(node + 1); rank = end) {
      for (end = rank + 1; end < first(node + 1) && alike(at(rank), at(end));) ++end;
      text += line(rank, end, at(rank), hosts_, false);
    }
    return text;
  }

  /// The nodes after `node` that are like it.
  [[nodiscard]] std::string of_followers(int node, int end) const {
    std::string names;
    for (int n = node + 1; n < end && hosts_.shown(); ++n)
      names += (n > node + 1 ? ", " : " (") + hosts_.text(n);
    return fmt::format("# {}: node{} {}{}{}, as on node {}\n", ranks_text(first(node + 1), first(end)),
                       end - node > 2 ? "s" : "", node + 1,
                       end - node > 2 ? fmt::format(" to {}", end - 1) : "", names.empty() ? "" : names + ")",
                       node);
  }

  const std::vector<RankPlace>& ranks_;
  const HostNames& hosts_;
  std::vector<int> firsts_;  ///< rank of each node, and the number of ranks
};

}  // namespace

std::string map_text(const std::vector<RankPlace>& ranks, const HostNames& hosts) {
  const int count = static_cast<int>(ranks.size());
  if (count > each_its_line) return Compact(ranks, hosts).text();
  std::string text;
  for (int rank = 0; rank < count; ++rank)
    text += line(rank, rank + 1, ranks[static_cast<std::size_t>(rank)], hosts, true);
  return text;
}

namespace {

/// So that the line can be pasted into a shell.
std::string shell_quoted(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("-_=+:,./@%").find(c) != std::string::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

Provenance collect(const deck::Deck& deck, const std::vector<std::string>& arguments,
                   const HostNames& hosts) {
  Provenance p;
  p.version = build::version;
  p.git_hash = build::git_hash;
  p.build_type = build::build_type;
  p.compiler = build::compiler;
  p.compiler_flags = build::compiler_flags;
  p.started = utc_now();
  for (const std::string& word : arguments) p.command += (p.command.empty() ? "" : " ") + shell_quoted(word);
  p.deck_path = deck.path;
  p.deck = deck.text;
  p.overrides = deck.overrides;
  p.environment = recorded_environment(hosts);
  p.links = shaped_links();
  return p;
}

std::string version_text() {
  return fmt::format("minitaw {} ({}, {}, {})", build::version, build::git_hash, build::compiler,
                     build::build_type);
}

}  // namespace minitaw::record
