// SPDX-License-Identifier: BSD-3-Clause
#include "deck/keys.hpp"
#include <fmt/format.h>
#include "base/error.hpp"

namespace minitaw::deck {
namespace {
using C = Case;
using D = Draft;
using S = model::Shape;
using Store = decltype(Setting::store);
using Value = decltype(Setting::value);

constexpr std::int64_t K = 1024, M = K * K, many = 1'000'000, most_ranks = topology::most_ranks;

// Where a key stores its value, and where a case has it.

auto& field_of(Draft& draft, auto Draft::* field) {
  return draft.*field;
}

auto& field_of(Draft& draft, auto Case::* field) {
  return draft.c.*field;
}

auto& field_of(Draft& draft, auto model::Shape::* field) {
  return draft.c.shape.*field;
}

const auto& field_of(const Case& c, auto Case::* field) {
  return c.*field;
}

const auto& field_of(const Case& c, auto model::Shape::* field) {
  return c.shape.*field;
}

/// A whole number of [least, most], "4K" allowed; or one more of a list.
template <class T, class Owner>
Store size(T Owner::* field, std::int64_t least, std::int64_t most) {
  return [=](Draft& draft, const std::string& key, const std::string& text) {
    const std::int64_t number = to_size(key, text, least, most);
    if constexpr (std::is_integral_v<T>)
      field_of(draft, field) = static_cast<T>(number);
    else
      field_of(draft, field).push_back(number);
  };
}

/// One of some words, stored as such or as the enumerator of its position.
template <class T, class Owner>
Store choice(T Owner::* field, std::vector<std::string> words) {
  return [=](Draft& draft, const std::string& key, const std::string& text) {
    const std::size_t at = to_choice(key, text, words);
    if constexpr (std::is_enum_v<T>)
      field_of(draft, field) = static_cast<T>(at);
    else
      field_of(draft, field) = words[at];
  };
}

template <class Owner>
Store text(std::string Owner::* field) {
  return [=](Draft& draft, const std::string&, const std::string& given) {
    field_of(draft, field) = given;
  };
}

template <class T, class Owner>
Value of(T Owner::* field) {
  return [=](const Case& c) -> Cell {
    const T& value = field_of(c, field);
    if constexpr (std::is_enum_v<T>)
      return std::string(name_of(value));
    else if constexpr (std::is_integral_v<T>)
      return static_cast<std::int64_t>(value);
    else
      return value;
  };
}

void store_schedule(Draft& draft, const std::string&, const std::string& spec) {
  draft.c.schedule = schedule::to_text(schedule::parse_spec(spec));
}

void store_learning_rate(Draft& draft, const std::string& key, const std::string& value) {
  draft.c.learning_rate = to_positive(key, value);
  if (draft.c.learning_rate > 100)
    throw InputError(fmt::format(
        "{}: {} is more than 100; usual values are 1e-5 to 1e-2", key, in_quotes(value)));
}

void store_clip_norm(Draft& draft, const std::string& key, const std::string& value) {
  draft.c.clip_norm = value == "off" ? 0 : to_positive(key, value);
}

std::string clip_norm_text(const Case& c) {
  return c.clip_norm > 0 ? fmt::format("{}", c.clip_norm) : "off";
}

std::vector<Setting> program_settings() {
  return {
      {.name = "schedule",
          .type = "name",
          .axis = true,
          .initial = "tawpipe",
          .example = R"(schedule = ["ddp", "tawpipe:cco=off"])",
          .doc = "How the step is spread over the ranks; options are appended as "
                 "\":option=value\". \"serial\" always uses one rank.",
          .store = store_schedule,
          .units = "text",
          .value = of(&C::schedule),
          .identity = Identity::always},
      {.name = "ranks",
          .type = "size",
          .axis = true,
          .fallback = "all ranks of the job",
          .example = "ranks = [2, 4]",
          .doc = "P, ranks that take part; the first P of the job.",
          .store = size(&C::ranks, 1, most_ranks),
          .value = of(&C::ranks),
          .identity = Identity::always},
      {.name = "groups",
          .type = "number or text",
          .axis = true,
          .fallback = "the nodes of the job",
          .example = R"(groups = [1, 2, "1+2+3"])",
          .doc = "D groups of equal size, or their sizes joined by \"+\", the last one \"*\" for "
                 "all ranks that are left. Ranks of a group are consecutive.",
          .store = text(&D::groups),
          .units = "text",
          .value = [](const Case& c) { return c.groups.text(); },
          .identity = Identity::always},
      {.name = "group_size",
          .type = "size",
          .axis = true,
          .fallback = "ranks / groups",
          .example = "group_size = 8",
          .doc = "Ranks of each group, in place of groups: what stays the same where ranks are "
                 "swept over nodes.",
          .in_place_of = "groups",
          .store = size(&D::group_size, 1, most_ranks)},
      {.name = "group_count", .value = [](const Case& c) { return c.groups.count(); }},
      {.name = "replicas",
          .type = "size",
          .axis = true,
          .initial = "1",
          .example = "replicas = 2",
          .doc = "Copies of the schedule side by side, each on ranks / replicas ranks, gradients "
                 "summed over all: what lets a model run on more ranks than it has layers.",
          .store = size(&C::replicas, 1, most_ranks),
          .value = of(&C::replicas),
          .identity = Identity::unless_initial},
  };
}

std::vector<Setting> model_settings() {
  return {
      {.name = "layers",
          .type = "size",
          .axis = true,
          .example = "layers = 8",
          .doc = "L, transformer blocks.",
          .store = size(&S::layers, 1, 10'000),
          .value = of(&S::layers),
          .identity = Identity::always},
      {.name = "hidden",
          .type = "size",
          .axis = true,
          .example = "hidden = 256",
          .doc = "H, width of the hidden state.",
          .store = size(&S::hidden, 1, M),
          .value = of(&S::hidden),
          .identity = Identity::always},
      {.name = "heads",
          .type = "size",
          .axis = true,
          .fallback = "hidden / head_dim",
          .example = "heads = 8",
          .doc = "Query heads; must divide hidden, and hidden / heads must be even.",
          .store = size(&S::heads, 1, M),
          .value = of(&S::heads),
          .identity = Identity::always},
      {.name = "head_dim",
          .type = "size",
          .axis = true,
          .fallback = "hidden / heads",
          .example = "head_dim = 128",
          .doc = "Width of a head, in place of heads: what stays the same where hidden is swept.",
          .in_place_of = "heads",
          .store = size(&D::head_dim, 1, M)},
      {.name = "kv_heads",
          .type = "size",
          .axis = true,
          .fallback = "heads",
          .example = "kv_heads = 2",
          .doc = "Key and value heads (grouped query attention); must divide heads.",
          .store = size(&S::kv_heads, 1, M),
          .value = of(&S::kv_heads),
          .identity = Identity::always},
      {.name = "vocab",
          .type = "size",
          .axis = true,
          .fallback = "256 if data is a file, else 32000",
          .example = "vocab = 32000",
          .doc = "V, size of the vocabulary; at least 256 if data is a file.",
          .store = size(&S::vocab, 1, 16 * M),
          .value = of(&S::vocab),
          .identity = Identity::always},
      {.name = "ffn",
          .type = "size",
          .axis = true,
          .fallback = "8/3 hidden, rounded up to a multiple of 256",
          .example = "ffn = 768",
          .doc = "F, inner width of the SwiGLU of every block.",
          .store = size(&D::ffn, 1, 4 * M),
          .units = "text",
          .value = [](const Case& c) { return ffn_text(c.shape); },
          .identity = Identity::always},
      {.name = "ffn_per_layer",
          .type = "list of sizes",
          .list = true,
          .fallback = "ffn for every block",
          .example = "ffn_per_layer = [128, 256]",
          .doc = "F of each block, `layers` values, in place of ffn.",
          .in_place_of = "ffn",
          .store = size(&S::ffn, 1, 4 * M)},
      {.name = "parameters", .value = [](const Case& c) { return model::parameters(c.shape); }},
      {.name = "dtype",
          .type = "name",
          .axis = true,
          .initial = "fp32",
          .example = "dtype = \"bf16\"",
          .doc = "Precision of weights, activations and gradients: fp32 or bf16. Master weights "
                 "and optimiser are fp32.",
          .store = choice(&S::dtype, {"fp32", "bf16"}),
          .units = "text",
          .value = of(&S::dtype),
          .identity = Identity::always},
      {.name = "grad_dtype",
          .type = "name",
          .axis = true,
          .initial = "auto",
          .example = "grad_dtype = \"fp32\"",
          .doc = "Precision of gradients in transit to where they are summed: auto (as dtype), or "
                 "fp32, as PyTorch's FSDP may reduce. Sums over micro-batches, ddp and replicas "
                 "are fp32 always.",
          .store = choice(&D::grad_dtype, {"auto", "fp32"}),
          .units = "text",
          .value = [](const Case& c) { return std::string(name_of(c.shape.grad_dtype())); },
          .identity = Identity::unless_initial,
          .text = [](const Case& c) { return c.shape.fp32_gradients ? "fp32" : "auto"; }},
      {.name = "recompute",
          .type = "name",
          .axis = true,
          .initial = "block",
          .example = "recompute = \"none\"",
          .doc = "What the backward pass computes again: block (all but the block input), "
                 "keep-attention (all but the block input and the attention), none.",
          .store = choice(&S::recompute, {"block", "keep-attention", "none"}),
          .units = "text",
          .value = of(&S::recompute),
          .identity = Identity::always},
      {.name = "attention",
          .type = "name",
          .axis = true,
          .initial = "auto",
          .example = "attention = \"portable\"",
          .doc = "Attention kernel: host (vector code, fp32 on a host), portable (Kokkos, any "
                 "device), cudnn (bf16 on NVIDIA), or auto, the fastest of these in this build.",
          .store = choice(&C::attention, {"auto", "host", "portable", "cudnn"}),
          .units = "text",
          .value = of(&C::attention),
          .identity = Identity::unless_initial},
      {.name = "transport",
          .type = "name",
          .axis = true,
          .initial = "auto",
          .example = "transport = \"mpi\"",
          .doc = "What moves data between ranks: nccl (device to device), mpi (through host memory "
                 "unless the MPI takes device pointers), or auto: nccl where each rank has a "
                 "device of its own and the build has NCCL.",
          .store = choice(&C::transport, {"auto", "mpi", "nccl"}),
          .units = "text",
          .value = of(&C::transport),
          .identity = Identity::unless_initial},
  };
}

std::vector<Setting> batch_settings() {
  return {
      {.name = "seq",
          .type = "size",
          .axis = true,
          .example = R"(seq = ["1K", "2K", "4K"])",
          .doc = "S, tokens per sequence.",
          .store = size(&S::seq, 1, 64 * M),
          .units = "token",
          .value = of(&S::seq),
          .identity = Identity::always},
      {.name = "micro_batch",
          .type = "size",
          .axis = true,
          .fallback = "1",
          .example = "micro_batch = 2",
          .doc = "B, sequences per micro-batch.",
          .store = size(&S::micro_batch, 1, many),
          .units = "sequence",
          .value = of(&S::micro_batch),
          .identity = Identity::always,
          .text = micro_batch_text},
      {.name = "micro_batch_per_rank",
          .type = "list of sizes",
          .list = true,
          .fallback = "micro_batch for every rank",
          .example = "micro_batch_per_rank = [1, 3, 2]",
          .doc = "B of each rank, `ranks` values, in place of micro_batch: for ranks of different "
                 "speed.",
          .in_place_of = "micro_batch",
          .store = size(&C::micro_batch_per_rank, 1, many),
          .units = "text",
          .value =
              [](const Case& c) {
                return c.micro_batch_per_rank.empty() ? "" : micro_batch_text(c);
              }},
      {.name = "tokens_per_micro_batch",
          .type = "size",
          .axis = true,
          .fallback = "micro_batch * seq",
          .example = "tokens_per_micro_batch = \"64K\"",
          .doc = "B times S, in place of micro_batch: what stays the same where seq is swept; a "
                 "multiple of seq.",
          .in_place_of = "micro_batch",
          .store = size(&D::tokens, 1, many * K)},
      {.name = "micro_batches",
          .type = "size",
          .axis = true,
          .fallback = "ranks",
          .example = "micro_batches = 16",
          .doc = "M, micro-batches per step, all ranks together; a multiple of ranks, in pipelines "
                 "of replicas.",
          .store = size(&C::micro_batches, 1, many),
          .units = "micro-batch",
          .value = of(&C::micro_batches),
          .identity = Identity::always},
      {.name = "micro_batches_per_rank",
          .type = "size",
          .axis = true,
          .fallback = "micro_batches / ranks",
          .example = "micro_batches_per_rank = 8",
          .doc = "M / P, in place of micro_batches: the step grows with the ranks.",
          .in_place_of = "micro_batches",
          .store = size(&D::micro_batches_per_rank, 1, many)},
      {.name = "sequences_per_step",
          .type = "size",
          .axis = true,
          .fallback = "micro_batches * micro_batch",
          .example = "sequences_per_step = 1536",
          .doc = "Sequences of all micro-batches, in place of micro_batches: the step stays the "
                 "same where B is swept; a multiple of B.",
          .in_place_of = "micro_batches",
          .store = size(&D::sequences, 1, many)},
  };
}

std::vector<Setting> training_settings() {
  return {
      {.name = "steps",
          .type = "size",
          .initial = "10",
          .example = "steps = 20",
          .doc = "Timed steps of a repetition; a result needs at least 3 samples to be valid.",
          .store = size(&C::steps, 1, many),
          .units = "step",
          .value = of(&C::steps),
          .identity = Identity::always},
      {.name = "repeats",
          .type = "size",
          .initial = "1",
          .example = "repeats = 3",
          .doc = "Repetitions: how often a case is set up and timed again, warm-up included; `run "
                 "--interleave` runs those of all cases in random order.",
          .store = size(&C::repeats, 1, 1000),
          .value = of(&C::repeats)},  // more repetitions are no other case
      {.name = "warmup",
          .type = "size",
          .initial = "2",
          .example = "warmup = 3",
          .doc = "Steps before the timed ones.",
          .store = size(&C::warmup, 0, many),
          .units = "step",
          .value = of(&C::warmup),
          .identity = Identity::always},
      {.name = "seed",
          .type = "size",
          .initial = "1",
          .example = "seed = 7",
          .doc = "Of initial weights and synthetic tokens.",
          .store = size(&C::seed, 0, INT64_MAX),
          .value = of(&C::seed),
          .identity = Identity::always},
      {.name = "learning_rate",
          .type = "number",
          .initial = fmt::format("{}", Case{}.learning_rate),
          .example = "learning_rate = 3e-4",
          .doc = "Of AdamW.",
          .store = store_learning_rate,
          .value = of(&C::learning_rate),
          .identity = Identity::always},
      {.name = "clip_norm",
          .type = "number",
          .initial = "off",
          .example = "clip_norm = 1.0",
          .doc = "Largest norm of the gradient of a step, all weights together: a longer one is "
                 "shortened before the update, for which every rank waits. off: none is.",
          .store = store_clip_norm,
          .value = of(&C::clip_norm),
          .identity = Identity::unless_initial,
          .text = clip_norm_text},
      {.name = "data",
          .type = "text",
          .initial = "synthetic",
          .example = "data = \"corpus.txt\"",
          .doc = "File whose bytes are the tokens (path from the current folder), or "
                 "\"synthetic\".",
          .store = text(&C::data),
          .units = "text",
          .value = of(&C::data),
          .identity = Identity::always},
  };
}

/// Those of all settings in which `part` is not empty.
std::vector<Setting> settings_with(auto Setting::* part) {
  std::vector<Setting> found;
  for (const auto& settings :
      {program_settings(), model_settings(), batch_settings(), training_settings()})
    for (const Setting& setting : settings)
      if (setting.*part)
        found.push_back(setting);
  return found;
}
}  // namespace

const std::vector<Setting>& keys() {
  static const std::vector<Setting> found = settings_with(&Setting::store);
  return found;
}

const std::vector<Setting>& columns() {
  static const std::vector<Setting> found = settings_with(&Setting::value);
  return found;
}

const Setting* find_key(const std::string& name) {
  const auto at = std::ranges::find(keys(), name, &Setting::name);
  return at == keys().end() ? nullptr : &*at;
}

const Setting* require_key(const std::string& name, const std::string& where) {
  if (const Setting* key = find_key(name))
    return key;
  throw InputError(fmt::format("{}: unknown key \"{}\"{} (minitaw help keys lists all)",
      where,
      printable(name),
      did_you_mean(name, list_of(keys(), &Setting::name))));
}

std::string identity(const Case& c) {
  std::string always, others;
  for (const Setting& s : columns()) {
    const std::string text = s.text ? s.text(c) : to_text(s.value(c));
    if (s.identity == Identity::always)
      always += fmt::format("{}{}={}", always.empty() ? "" : " ", s.name, text);
    if (s.identity == Identity::unless_initial && text != s.initial)
      others += fmt::format(" {}={}", s.name, text);
  }
  return always + others;
}
}  // namespace minitaw::deck
