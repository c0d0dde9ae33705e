// SPDX-License-Identifier: BSD-3-Clause
#include "deck/deck.hpp"
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <ranges>
#include <set>
#include "base/error.hpp"
#include "deck/keys.hpp"
#include "model/data.hpp"

namespace minitaw::deck {
namespace {
constexpr std::size_t most_cases = 100'000;
constexpr std::int64_t most_micro_batches = 1'000'000;

const schedule::Entry& entry_of(const std::string& spec) {
  return schedule::entry_of(spec.substr(0, spec.find(':')));
}

int ranks_of(const CaseDraft& draft, const Job& job) {
  const int ranks = draft.ranks;
  if (!job.planning && ranks > job.ranks)
    throw InputError(
        "ranks: {} ranks are asked for, but the job has {}; start it with mpiexec -n {}",
        ranks,
        job.ranks,
        ranks);
  if (ranks > 0)
    return ranks;
  if (job.ranks > 0)
    return job.ranks;
  const bool has_sizes = draft.groups_text.find('+') != std::string::npos;
  if (has_sizes && !draft.groups_text.ends_with("*"))
    return topology::parse_groups(draft.groups_text).ranks();
  if (entry_of(draft.schedule).one_rank)
    return 1;
  throw InputError(
      "ranks: not given, and a plan has no job to take it from; add for example --set ranks=8");
}

/// The part of each node that belongs to the first `ranks` ranks; one group if the nodes hold
/// fewer.
topology::Groups nodes_of(const Job& job, int ranks) {
  std::vector<int> sizes;
  int left = ranks;
  for (const int node : job.node_sizes) {
    if (left == 0)
      break;
    sizes.push_back(std::min(node, left));
    left -= sizes.back();
  }
  return left == 0 ? topology::Groups(sizes) : topology::Groups::equal(ranks, 1);
}

topology::Groups groups_of(const CaseDraft& draft, int ranks, const Job& job) {
  if (!draft.groups_text.empty())
    return topology::parse_groups(draft.groups_text, ranks);
  if (draft.group_size == 0)
    return nodes_of(job, ranks);
  if (ranks % draft.group_size != 0)
    throw InputError("group_size: {0} ranks cannot form groups of {1}; use a divisor of {0}, or "
                     "give the sizes with groups",
        ranks,
        draft.group_size);
  return topology::Groups::equal(ranks, ranks / draft.group_size);
}

/// Sets B.
void complete_micro_batch(Case& c, std::int64_t tokens) {
  if (tokens % c.shape.seq != 0)
    throw InputError("tokens_per_micro_batch: {} is not a multiple of seq = {}; use for example {}",
        tokens,
        c.shape.seq,
        (tokens / c.shape.seq + 1) * c.shape.seq);
  if (tokens > 0)
    c.shape.micro_batch = tokens / c.shape.seq;
}

/// Sets M. Ranks are known, and that context groups divide them.
void complete_micro_batches(Case& c, const CaseDraft& draft) {
  const int sharers = sharers_of(c);
  std::int64_t count = c.micro_batches > 0 ? c.micro_batches : sharers;
  if (draft.micro_batches_per_rank > 0)
    count = draft.micro_batches_per_rank * sharers;
  if (count > most_micro_batches)
    throw InputError(
        "micro_batches: {} a step are too many; use at most {}", count, most_micro_batches);
  c.micro_batches = count;
}

/// Heads and their width: what is not given follows from hidden and the other.
void complete_heads(model::Shape& shape) {
  std::int64_t& width = shape.given_head_dim;
  if (shape.heads == 0 && width == 0)
    throw InputError("heads: not given; add for example heads = 8, or head_dim = 128");
  if (shape.heads == 0 && shape.hidden % width != 0)
    throw InputError(
        "head_dim: {} does not divide hidden = {}; give heads too", width, shape.hidden);
  if (shape.heads == 0)
    shape.heads = static_cast<int>(shape.hidden / width);
  if (shape.heads * width == shape.hidden)
    width = 0;  // a case has one form
  if (shape.kv_heads == 0)
    shape.kv_heads = shape.heads;
}

/// Combinations, by what is to be said of them.
using Counted = std::map<std::string, int>;

/// Adds values that are given and change nothing. Ranks that share sequences are known, and slices.
void note_without_effect(const Case& c, const CaseDraft& draft, Counted& without_effect) {
  const bool alone = entry_of(c.schedule).one_rank;
  const auto note = [&](const char* key, const auto& value, bool given, const std::string& why) {
    if (given && !why.empty())
      ++without_effect[fmt::format("{}={}: {}", key, value, why)];
  };
  const std::string one_rank = alone ? c.schedule + " runs on one rank" : "",
                    fp32 = c.shape.dtype == model::Dtype::fp32 ? "dtype is fp32" : "",
                    whole =
                        alone || !c.shape.keys_apart() ? "no ranks or slices share sequences" : "";
  note("replicas", c.replicas, c.replicas > 1, one_rank);
  note("context", c.shape.context.count, c.shape.shares_sequences(), one_rank);
  note("context_parts",
      c.shape.key_parts,
      c.shape.key_parts > 1,
      alone || !c.shape.shares_sequences() ? "no ranks share sequences" : "");
  note("context_grad_dtype",
      draft.context_grad_dtype,
      draft.context_grad_dtype == "fp32",
      whole.empty() ? fp32 : whole);
  note("grad_dtype", draft.grad_dtype, draft.grad_dtype == "fp32", fp32);
}

/// Fills in what depends on other keys and on the job, and checks the whole. Throws InputError
/// "key: ...". Counts what has no effect.
Case complete(const CaseDraft& draft, const Job& job, Counted& without_effect) {
  Case c = draft;
  c.ranks = ranks_of(draft, job);
  c.groups = groups_of(draft, c.ranks, job);
  if (c.ranks % c.shape.context.count != 0)
    throw InputError("context: {0} do not divide into context groups of {1}; use a divisor of {2}",
        counted(c.ranks, "rank"),
        c.shape.context.count,
        c.ranks);
  complete_micro_batch(c, draft.tokens);
  complete_micro_batches(c, draft);
  complete_heads(c.shape);
  if (c.shape.ffn == 0)
    c.shape.ffn = ((8 * c.shape.hidden + 2) / 3 + 255) / 256 * 256;
  set_schedule(c, c.schedule);
  note_without_effect(c, draft, without_effect);
  if (!c.shape.shares_sequences())
    c.shape.key_parts = 1;
  c.shape.fp32_key_gradients = draft.context_grad_dtype == "fp32" && c.shape.keys_apart() &&
                               c.shape.dtype != model::Dtype::fp32;
  c.shape.fp32_gradients = draft.grad_dtype == "fp32" && c.shape.dtype != model::Dtype::fp32;
  if (c.shape.vocab == 0)
    c.shape.vocab = c.data == "synthetic" ? 32000 : 256;
  model::check(c.shape);
  // After the checks of ranks and groups: the other schedules share them.
  if (entry_of(c.schedule).one_rank)
    c = on_one_rank(std::move(c));
  model::check_data(c.shape, c.data, !job.planning);
  schedule::check(request_of(c));
  const schedule::Settled settled = schedule::settled(request_of(c), job.adapters);
  for (const std::string& option : settled.without_effect)
    ++without_effect[option];
  set_schedule(c, schedule::to_text(settled.spec));
  return c;
}

/// One key that varies, with its values already checked one by one.
struct Axis {
  const Setting* key;
  std::vector<std::string> values;
};

/// The message of a check, after the place of the key that it begins with, or of another key that
/// gives this one.
std::string locate(const std::string& text, const GivenKeys& given, const std::string& path) {
  const std::string name = text.substr(0, text.find_first_of(": ="));
  if (const auto at = given.find(name); at != given.end())
    return fmt::format("{}: {}", at->second.where, text);
  for (const auto& [other, values] : given)
    if (find_key(other)->in_place_of == name)
      return fmt::format("{}: {} gives {}", values.where, other, text);
  return fmt::format("{}: {}", printable(path), text);
}

/// Throws InputError if two keys say the same in different ways.
void require_one_of_each(const GivenKeys& given) {
  std::map<std::string, std::string> by_meaning;
  for (const Setting& key : keys())
    if (given.contains(key.name))
      if (const auto [at, is_new] = by_meaning.try_emplace(key.meaning(), key.name); !is_new)
        throw InputError("{}: given together with {}; keep one of the two", key.name, at->second);
}

/// Throws InputError if a list is given for one value, one value for a list, or what no key can
/// take.
void require_form(const Setting& key, const GivenKey& given) {
  const char* fault = nullptr;
  if (given.list && !key.axis)
    fault = "a list is given, but this key takes one value";
  const auto is_shown = [](const std::string& value) {
    return printable(value, value.size()) == value;
  };
  if (!std::ranges::all_of(given.values, is_shown))
    fault = "a value has a control character";
  if (given.values.empty() || std::ranges::count(given.values, "") > 0)
    fault = "a value is empty";
  if (fault != nullptr)
    throw InputError("{}: {}; write for example {}", key.name, fault, key.example());
}

/// Single values and defaults go into the draft, lists become axes.
std::vector<Axis> split_axes(const GivenKeys& given, CaseDraft& draft) {
  require_one_of_each(given);
  std::vector<Axis> axes;
  for (const Setting& key : keys()) {
    const auto at = given.find(key.name);
    if (at == given.end()) {
      if (key.required())
        throw InputError("{}: not given; add for example {}", key.name, key.example());
      if (!key.initial.empty())
        key.store(draft, key.initial);
      continue;
    }
    require_form(key, at->second);
    const std::vector<std::string>& values = at->second.values;
    for (const std::string& value : values)  // of an axis, store() replaces the last one
      key.store(draft, value);
    if (values.size() > 1)
      axes.push_back({&key, values});
  }
  return axes;
}

std::size_t count_cases(const std::vector<Axis>& axes) {
  std::size_t count = 1;
  for (const Axis& axis : axes) {
    if (axis.values.size() > most_cases / count)
      throw InputError("{}: the lists of this deck make more than {} cases; shorten one",
          axis.key->name,
          most_cases);
    count *= axis.values.size();
  }
  return count;
}

/// Many ranks in one group hide what nodes cost.
void note_one_group(const GivenKeys& given, const Job& job, Deck& deck) {
  constexpr int usual_node = 8;
  const int most = std::ranges::max_element(deck.cases, {}, &Case::ranks)->ranks;
  if (job.node_sizes.empty() && !given.contains("groups") && !given.contains("group_size") &&
      most > usual_node)
    deck.notes.push_back(
        fmt::format("groups: not given, so all {} ranks are one group, and nothing lies "
                    "between nodes; add for example --set group_size={}",
            most,
            usual_node));
}

/// Stores combination `i`: a value of each axis. The first key of keys() varies slowest.
void store(std::size_t i, const std::vector<Axis>& axes, CaseDraft& draft) {
  for (const auto& [key, values] : axes | std::views::reverse) {
    key->store(draft, values[i % values.size()]);
    i /= values.size();
  }
}

/// All combinations of the axes, completed and checked. One that cannot be run is left out with a
/// note; it is an error if none is left, or if the job has too few ranks for it. Equal cases are
/// kept once.
void expand(const GivenKeys& given, const std::string& folder, const Job& job, Deck& deck) {
  CaseDraft draft;
  draft.folder = folder;
  const std::vector<Axis> axes = split_axes(given, draft);
  const std::size_t count = count_cases(axes);
  if (!job.planning)
    draft.data_sum = model::data_sum(draft.data);
  std::set<std::string> seen;
  std::string first_reason;
  Counted failed, without_effect;
  int equal = 0;
  for (std::size_t i = 0; i < count; ++i) {
    store(i, axes, draft);
    (void)ranks_of(draft, job);  // a job that is too small is no matter of what suits what
    try {
      Counted found;
      Case c = complete(draft, job, found);
      for (const auto& [option, times] : found)
        without_effect[option] += times;
      if (seen.insert(identity(c)).second)
        deck.cases.push_back(std::move(c));
      else
        ++equal;
    } catch (const InputError& error) {
      if (failed.empty())
        first_reason = error.what();
      ++failed[error.what()];
    }
  }
  if (deck.cases.empty())
    throw InputError(first_reason);
  for (const auto& [reason, times] : failed)
    deck.left_out.push_back(fmt::format("left out {}: {}", counted(times, "combination"), reason));
  deck.notes = deck.left_out;
  for (const auto& [option, times] : without_effect)
    deck.notes.push_back(fmt::format("no effect in {}: {}", counted(times, "combination"), option));
  if (equal > 0)
    deck.notes.push_back(fmt::format("{} {} equal to another one: each runs once",
        counted(equal, "combination"),
        equal == 1 ? "is" : "are"));
  note_one_group(given, job, deck);
}
}  // namespace

Deck read_deck(const std::string& path, const std::vector<std::string>& overrides, const Job& job) {
  return make_deck(read_text(path), path, overrides, job);
}

Deck make_deck(const std::string& text,
    const std::string& path,
    const std::vector<std::string>& overrides,
    const Job& job) {
  Deck deck{text, {}, {}, {}};
  GivenKeys given = parse_toml(text, path);
  for (const std::string& override : overrides)
    override_key(given, override);
  try {
    expand(given, std::filesystem::path(path).parent_path().string(), job, deck);
  } catch (const InputError& error) {
    throw InputError(locate(error.what(), given, path));
  }
  return deck;
}
}  // namespace minitaw::deck
