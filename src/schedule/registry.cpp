// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/registry.hpp"
#include <algorithm>
#include <fmt/ranges.h>
#include <numeric>
#include <ranges>
#include "base/error.hpp"

namespace minitaw::schedule {
/// The entry of each schedule, defined in its file.
namespace schedules {
Entry serial();
Entry ddp();
Entry fsdp();
Entry one_forward_one_backward();
Entry zero_bubble_1();
Entry zero_bubble_2();
Entry zero_bubble_v();
Entry from_csv();
Entry weipipe();
Entry tawpipe();
}  // namespace schedules

namespace {
const OptionDoc& option_of(const Entry& entry, const std::string& name) {
  const auto at = std::ranges::find(entry.options, name, &OptionDoc::name);
  if (at != entry.options.end())
    return *at;
  const std::vector<std::string> names = list_of(entry.options, &OptionDoc::name);
  throw InputError(
      names.empty()
          ? fmt::format("schedule: {} takes no options, but \":{}\" was given", entry.name, name)
          : fmt::format("schedule: {} has no option \"{}\"{}",
                entry.name,
                name,
                did_you_mean(name, names)));
}

/// Returns whether an allowed value of an option, a word or a range such as "1..8", is or contains
/// `value`.
bool takes(const std::string& allowed, const std::string& value) {
  const std::size_t dots = allowed.find("..");
  if (dots == std::string::npos)
    return allowed == value;
  const int first = std::stoi(allowed), last = std::stoi(allowed.substr(dots + 2));
  return std::ranges::any_of(std::views::iota(first, last + 1),
      [&](int number) { return std::to_string(number) == value; });
}

/// "on or off", "auto or 1..64"; a default within the range is not named.
std::string allowed_text(const OptionDoc& option) {
  if (option.values.empty())
    return "a text";
  if (takes(option.values.back(), option.values.front()))
    return option.values.back();
  return fmt::format("{}", fmt::join(option.values, " or "));
}

void parse_option(Spec& spec, const Entry& entry, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const OptionDoc& option = option_of(entry, name);
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  const auto allows = [&](const std::string& allowed) { return takes(allowed, value); };
  if (option.values.empty() ? value.empty() : std::ranges::none_of(option.values, allows))
    throw InputError("schedule: option \"{}\" of {} takes {}, not \"{}\"",
        option.name,
        entry.name,
        allowed_text(option),
        value);
  if (!spec.options.emplace(option.name, value).second)
    throw InputError("schedule: option \"{}\" is given twice in \"{}\"", option.name, text);
}
}  // namespace

const std::vector<Entry>& registry() {
  using namespace schedules;
  static const std::vector<Entry> entries = {serial(),
      ddp(),
      fsdp(),
      one_forward_one_backward(),
      zero_bubble_1(),
      zero_bubble_2(),
      zero_bubble_v(),
      from_csv(),
      weipipe(),
      tawpipe()};
  return entries;
}

const Entry& entry_of(const std::string& name) {
  const auto at = std::ranges::find(registry(), name, &Entry::name);
  if (at != registry().end())
    return *at;
  throw InputError("schedule: \"{}\" is unknown{} (minitaw help keys lists all)",
      name,
      did_you_mean(name, list_of(registry(), &Entry::name)));
}

Spec parse_spec(const std::string& text) {
  Spec spec{text.substr(0, text.find(':')), {}};
  const Entry& entry = entry_of(spec.name);
  for (const auto part : std::views::split(text, ':') | std::views::drop(1))
    parse_option(spec, entry, {part.begin(), part.end()});
  std::erase_if(spec.options, [&](const auto& given) {
    const std::vector<std::string>& values = option_of(entry, given.first).values;
    return !values.empty() && given.second == values.front();
  });
  return spec;
}

std::string to_text(const Spec& spec) {
  std::string text = spec.name;
  for (const auto& [name, value] : spec.options)
    text += fmt::format(":{}={}", name, value);
  return text;
}

int number_of(const Spec& spec, const std::string& option) {
  std::string value = spec.value(option);
  for (const OptionDoc& known : entry_of(spec.name).options)
    if (value.empty() && known.name == option)
      value = known.values.front();
  return value.empty() || value == "auto" ? 1 : std::stoi(value);
}

int shards_per_rank(const Spec& spec) {
  return entry_of(spec.name).shards_per_rank * number_of(spec, "chunks");
}

Groups Request::groups_of_replica() const {
  const int ranks = ranks_of_replica();
  Groups first = groups.within(0, ranks);
  for (int replica = 1; replica < replicas; ++replica)
    if (groups.within(replica * ranks, (replica + 1) * ranks) != first)
      throw InputError("replicas: the groups {} do not give {} replicas of {} with groups "
                       "alike; choose other groups",
          groups.text(),
          replicas,
          counted(ranks, "rank"));
  return first;
}

std::string Request::groups_text() const {
  const Groups each = groups_of_replica();
  return fmt::format("{} of {} {}{}",
      each.count() == 1 ? "a group" : "groups",
      each.text(),
      each.ranks() == 1 ? "rank" : "ranks",
      replicas == 1 ? "" : fmt::format(" in each of {} replicas", replicas));
}

namespace {
void check_context(const Request& request, const Entry& entry) {
  const int n = request.context;
  if (n == 1)
    return;
  if (!entry.refuses_context.empty())
    throw InputError("context: {}; use context = 1", entry.refuses_context);
  const Groups groups = request.groups_of_replica();
  int together = 0;
  for (const int size : groups.sizes())
    together = std::gcd(together, size);
  if (together % n != 0)
    throw InputError("context: {} neighbouring ranks of a group share a sequence, and {} cannot be "
                     "divided into such; use {}",
        n,
        request.groups_text(),
        together == 1 ? "context = 1, or other groups"
                      : fmt::format("a divisor of {}, or other groups", together));
}
}  // namespace

void check(const Request& request) {
  const Entry& entry = entry_of(request.spec.name);
  const int ranks = request.groups.ranks(), replicas = request.replicas;
  const std::string name = to_text(request.spec);
  if (entry.one_rank && ranks != 1)
    throw InputError("schedule: {} runs on 1 rank, not {}; set ranks = 1", entry.name, ranks);
  if (replicas != 1 && !entry.replicable)
    throw InputError("replicas: {} has no replicas; use replicas = 1", entry.name);
  if (replicas < 1 || ranks % replicas != 0)
    throw InputError("replicas: {} cannot be shared by {} replicas; use a divisor of {}",
        counted(ranks, "rank"),
        replicas,
        ranks);
  (void)request.groups_of_replica();
  check_context(request, entry);
  // The stages of a pipeline are context groups. Other schedules share their shards among ranks.
  const bool pipeline = entry.passes_activations;
  const int sharers = pipeline ? replicas : request.sharers_of_replica() * replicas;
  if (request.micro_batches < 1 || request.micro_batches % sharers != 0)
    throw InputError("micro_batches: {} cannot share {} evenly among {}; use a multiple of {}",
        name,
        counted(request.micro_batches, "micro-batch"),
        counted(sharers,
            pipeline              ? "replica"
            : request.context > 1 ? "context group"
                                  : "rank"),
        sharers);
  const int each = shards_per_rank(request.spec);
  const int holders = pipeline ? request.sharers_of_replica() : request.ranks_of_replica();
  if (request.layers < each * holders)
    throw InputError("layers: {} {} too few for {} on {}, which needs {} of at least "
                     "one layer on each{}; use layers = {}, fewer ranks or more replicas",
        counted(request.layers, "layer"),
        request.layers == 1 ? "is" : "are",
        name,
        counted(request.ranks_of_replica(), "rank"),
        each == 1 ? "a shard" : counted(each, "shard"),
        pipeline && request.context > 1 ? " context group" : " rank",
        each * holders);
  if (entry.check != nullptr)
    entry.check(request);
}

bool is_buildable(const Request& request) {
  try {
    check(request);
  } catch (const InputError&) {
    return false;
  }
  return true;
}

Settled settled(Request request, int adapters) {
  const Entry& entry = entry_of(request.spec.name);
  const auto given = request.spec.options;
  const auto spec_of = [&](Request asked) {
    if (entry.settle != nullptr)
      entry.settle(asked, adapters);
    return asked.spec;
  };
  Settled result{spec_of(request), {}};
  const auto note = [&](const std::string& name, const std::string& why) {
    result.without_effect.push_back(
        fmt::format("{}:{}={}: {}", entry.name, name, given.at(name), why));
  };
  for (const auto& [name, value] : given)
    if (const std::string now = result.spec.value(name); !now.empty() && now != value)
      note(name, fmt::format("here it is {}={}", name, now));
  // From the last one: what an option builds on is listed before it.
  for (const auto& [name, values, doc, without_effect] : entry.options | std::views::reverse) {
    if (without_effect == nullptr || !request.spec.options.contains(name))
      continue;
    const std::string why = without_effect(request);
    Request without = request;
    Spec rest = result.spec;
    without.spec.options.erase(name);
    rest.options.erase(name);
    if (why.empty() || spec_of(without) != rest)
      continue;
    note(name, why);
    request = without;
    result.spec = rest;
  }
  return result;
}

Program build(const Request& request) {
  check(request);
  Program program = entry_of(request.spec.name).build(request);
  program.schedule = to_text(request.spec);
  return program;
}
}  // namespace minitaw::schedule
