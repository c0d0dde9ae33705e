// SPDX-License-Identifier: BSD-3-Clause
#include "deck/keys.hpp"
#include <fmt/format.h>
#include "base/error.hpp"

namespace minitaw::deck {
namespace {
using C = Case;
using D = Draft;
using S = model::Shape;

constexpr std::int64_t K = 1024, M = K * K, many = 1'000'000, most_ranks = topology::most_ranks;

/// The field of a case, of its model, or of a draft, which is a case too.
template <class T, class Owner>
auto& field_of(auto& c, T Owner::* field) {
  if constexpr (std::is_same_v<Owner, S>)
    return c.shape.*field;
  else
    return c.*field;
}

/// The value of a field: a word of an enumeration, a number or a text. Empty for what a case does
/// not keep, or not as one value.
template <class T, class Owner>
ValueOf value_of(T Owner::* field) {
  if constexpr (std::is_same_v<Owner, D> || std::is_same_v<T, std::vector<std::int64_t>>)
    return {};
  else if constexpr (std::is_enum_v<T>)
    return [=](const Case& c) { return std::string(name_of(field_of(c, field))); };
  else if constexpr (std::is_integral_v<T>)
    return [=](const Case& c) { return static_cast<std::int64_t>(field_of(c, field)); };
  else
    return [=](const Case& c) { return field_of(c, field); };
}

/// A whole number of [least, most], "4K" allowed; or a list of them.
template <class T, class Owner>
KeyForm size(T Owner::* field, std::int64_t least, std::int64_t most) {
  constexpr bool one = std::is_integral_v<T>;
  const auto store = [=](Draft& draft, const std::string& key, const std::string& value) {
    const std::int64_t number = to_size(key, value, least, most);
    if constexpr (one)
      field_of(draft, field) = static_cast<T>(number);
    else
      field_of(draft, field).push_back(number);
  };
  return {one ? "size" : "list of sizes", store, value_of(field), !one};
}

/// One of some words, stored as such or as the enumerator of its position.
template <class T, class Owner>
KeyForm choice(T Owner::* field, std::vector<std::string> words) {
  const auto store = [=](Draft& draft, const std::string& key, const std::string& value) {
    const std::size_t at = to_choice(key, value, words);
    if constexpr (std::is_enum_v<T>)
      field_of(draft, field) = static_cast<T>(at);
    else
      field_of(draft, field) = words[at];
  };
  return {"name", store, value_of(field)};
}

template <class Owner>
KeyForm text(std::string Owner::* field, const char* type) {
  const auto store = [=](Draft& draft, const std::string&, const std::string& value) {
    field_of(draft, field) = value;
  };
  return {type, store, value_of(field)};
}

void store_schedule(Draft& draft, const std::string&, const std::string& spec) {
  draft.schedule = schedule::to_text(schedule::parse_spec(spec));
}

void store_learning_rate(Draft& draft, const std::string& key, const std::string& value) {
  draft.learning_rate = to_positive(key, value);
  if (draft.learning_rate > 100)
    throw InputError(fmt::format(
        "{}: {} is more than 100; usual values are 1e-5 to 1e-2", key, in_quotes(value)));
}

void store_clip_norm(Draft& draft, const std::string& key, const std::string& value) {
  draft.clip_norm = value == "off" ? 0 : to_positive(key, value);
}

void store_context(Draft& draft, const std::string& key, const std::string& value) {
  draft.shape.context.count = static_cast<int>(to_size(key, value, 1, most_ranks));
}

std::string clip_norm_text(const Case& c) {
  return c.clip_norm > 0 ? fmt::format("{}", c.clip_norm) : "off";
}

std::vector<Setting> program_settings() {
  return {
      {.name = "schedule",
          .form = {"name", store_schedule, value_of(&C::schedule)},
          .initial = "tawpipe",
          .example_value = R"(["ddp", "tawpipe:cco=off"])",
          .doc = "How the step is spread over the ranks; options are appended as "
                 "\":option=value\". \"serial\" always uses one rank."},
      {.name = "ranks",
          .form = size(&C::ranks, 1, most_ranks),
          .fallback = "all ranks of the job",
          .example_value = "[2, 4]",
          .doc = "P, ranks that take part; the first P of the job."},
      {.name = "groups",
          .form = text(&D::groups_text, "number or text"),
          .value = [](const Case& c) { return c.groups.text(); },
          .fallback = "the nodes of the job",
          .example_value = R"([1, 2, "1+2+3"])",
          .doc = "D groups of equal size, or their sizes joined by \"+\", the last one \"*\" for "
                 "all ranks that are left. Ranks of a group are consecutive."},
      {.name = "group_size",
          .form = size(&D::group_size, 1, most_ranks),
          .fallback = "ranks / groups",
          .example_value = "8",
          .doc = "Ranks of each group, instead of groups: stays the same while ranks is swept.",
          .in_place_of = "groups"},
      {.name = "group_count",
          .value = [](const Case& c) { return c.groups.count(); },
          .identity = Identity::never},
      {.name = "replicas",
          .form = size(&C::replicas, 1, most_ranks),
          .initial = "1",
          .example_value = "2",
          .doc = "Copies of the schedule side by side, each on ranks / replicas ranks, gradients "
                 "summed over all. A model can then run on more ranks than it has layers.",
          .identity = Identity::unless_initial},
      {.name = "context",
          .form = {"size", store_context},
          .value = [](const Case& c) { return std::int64_t{c.shape.context.count}; },
          .initial = "1",
          .example_value = "[1, 2]",
          .doc =
              "n, neighbouring ranks of a group that share every sequence of their micro-batches "
              "(context parallelism): each computes two of 2 n equal chunks, one of the first "
              "half and one of the second. n divides every group, and seq is a multiple of 2 n. "
              "A stage of a pipeline is n ranks.",
          .identity = Identity::unless_initial},
  };
}

std::vector<Setting> model_settings() {
  return {
      {.name = "layers",
          .form = size(&S::layers, 1, 10'000),
          .example_value = "8",
          .doc = "L, transformer blocks."},
      {.name = "hidden",
          .form = size(&S::hidden, 1, M),
          .example_value = "256",
          .doc = "H, width of the hidden state."},
      {.name = "heads",
          .form = size(&S::heads, 1, M),
          .fallback = "hidden / head_dim",
          .example_value = "8",
          .doc = "Query heads; must divide hidden, and hidden / heads must be even."},
      {.name = "head_dim",
          .form = size(&D::head_dim, 1, M),
          .fallback = "hidden / heads",
          .example_value = "128",
          .doc = "Width of a head, instead of heads: stays the same while hidden is swept.",
          .in_place_of = "heads"},
      {.name = "kv_heads",
          .form = size(&S::kv_heads, 1, M),
          .fallback = "heads",
          .example_value = "2",
          .doc = "Key and value heads (grouped query attention); must divide heads."},
      {.name = "vocab",
          .form = size(&S::vocab, 1, 16 * M),
          .fallback = "256 if data is a file, else 32000",
          .example_value = "32000",
          .doc = "V, size of the vocabulary; at least 256 if data is a file."},
      {.name = "ffn",
          .form = size(&D::ffn, 1, 4 * M),
          .value = [](const Case& c) { return ffn_text(c.shape); },
          .fallback = "8/3 hidden, rounded up to a multiple of 256",
          .example_value = "768",
          .doc = "F, inner width of the SwiGLU of every block."},
      {.name = "ffn_per_layer",
          .form = size(&S::ffn, 1, 4 * M),
          .axis = false,
          .fallback = "ffn for every block",
          .example_value = "[128, 256]",
          .doc = "F of each block, `layers` values, instead of ffn.",
          .in_place_of = "ffn"},
      {.name = "parameters",
          .value = [](const Case& c) { return model::parameters(c.shape); },
          .identity = Identity::never},
      {.name = "dtype",
          .form = choice(&S::dtype, {"fp32", "bf16"}),
          .initial = "fp32",
          .example_value = R"("bf16")",
          .doc = "Precision of weights, activations and gradients: fp32 or bf16. Master weights "
                 "and optimiser are fp32."},
      {.name = "grad_dtype",
          .form = choice(&D::grad_dtype, {"auto", "fp32"}),
          .value = [](const Case& c) { return std::string(name_of(c.shape.grad_dtype())); },
          .initial = "auto",
          .example_value = R"("fp32")",
          .doc =
              "Precision in which gradients are sent to the rank that sums them: auto (as dtype) "
              "or fp32, an option of PyTorch's FSDP too. Sums over micro-batches, and those of "
              "ddp and replicas, are always fp32.",
          .identity = Identity::unless_initial,
          .text = [](const Case& c) { return c.shape.fp32_gradients ? "fp32" : "auto"; }},
      {.name = "context_parts",
          .form = size(&S::key_parts, 1, M),
          .initial = "1",
          .example_value = "2",
          .doc = "Parts in which ranks with context gather keys and values, each of some key/value "
                 "heads: the next part is under way while attention uses one. Divides kv_heads.",
          .identity = Identity::unless_initial},
      {.name = "context_grad_dtype",
          .form = choice(&D::context_grad_dtype, {"auto", "fp32"}),
          .value = [](const Case& c) { return std::string(name_of(c.shape.key_gradient_dtype())); },
          .initial = "auto",
          .example_value = R"("fp32")",
          .doc = "Precision of the gradients of keys and values that ranks with context, or "
                 "slices, add up: auto (as dtype), or fp32.",
          .identity = Identity::unless_initial,
          .text = [](const Case& c) { return c.shape.fp32_key_gradients ? "fp32" : "auto"; }},
      {.name = "recompute",
          .form = choice(&S::recompute, {"block", "keep-attention", "none"}),
          .initial = "block",
          .example_value = R"("none")",
          .doc = "What the backward pass computes again: block (all but the block input), "
                 "keep-attention (all but the block input and the attention), none."},
      {.name = "attention",
          .form = choice(&C::attention, {"auto", "host", "portable", "cudnn"}),
          .initial = "auto",
          .example_value = R"("portable")",
          .doc = "Attention kernel: host (vector code, fp32 on a host), portable (Kokkos, any "
                 "device), cudnn (bf16 on NVIDIA), or auto, the fastest of these in this build.",
          .identity = Identity::unless_initial},
      {.name = "transport",
          .form = choice(&C::transport, {"auto", "mpi", "nccl"}),
          .initial = "auto",
          .example_value = R"("mpi")",
          .doc = "What moves data between ranks: nccl (device to device), mpi (through host memory "
                 "unless the MPI takes device pointers), or auto: nccl where each rank has a "
                 "device of its own and the build has NCCL.",
          .identity = Identity::unless_initial},
  };
}

std::vector<Setting> batch_settings() {
  return {
      {.name = "seq",
          .form = size(&S::seq, 1, 64 * M),
          .example_value = R"(["1K", "2K", "4K"])",
          .doc = "S, tokens per sequence."},
      {.name = "micro_batch",
          .form = size(&S::micro_batch, 1, many),
          .fallback = "1",
          .example_value = "2",
          .doc = "B, sequences per micro-batch.",
          .text = micro_batch_text},
      {.name = "micro_batch_per_rank",
          .form = size(&C::micro_batch_per_rank, 1, many),
          .value =
              [](const Case& c) {
                return c.micro_batch_per_rank.empty() ? "" : micro_batch_text(c);
              },
          .axis = false,
          .fallback = "micro_batch for every rank",
          .example_value = "[1, 3, 2]",
          .doc = "B of each rank, `ranks` values, instead of micro_batch: for ranks of different "
                 "speed.",
          .in_place_of = "micro_batch",
          .identity = Identity::never},
      {.name = "tokens_per_micro_batch",
          .form = size(&D::tokens, 1, many * K),
          .fallback = "micro_batch * seq",
          .example_value = R"("64K")",
          .doc = "B times S, instead of micro_batch: stays the same while seq is swept; a multiple "
                 "of seq.",
          .in_place_of = "micro_batch"},
      {.name = "micro_batches",
          .form = size(&C::micro_batches, 1, many),
          .fallback = "ranks / context",
          .example_value = "16",
          .doc = "M, micro-batches per step, all ranks together: a multiple of ranks / context, or "
                 "in pipelines a multiple of replicas."},
      {.name = "micro_batches_per_rank",
          .form = size(&D::micro_batches_per_rank, 1, many),
          .fallback = "micro_batches / (ranks / context)",
          .example_value = "8",
          .doc =
              "Micro-batches of each rank, or with context of each n ranks that share sequences; "
              "instead of micro_batches: a step grows with the number of ranks.",
          .in_place_of = "micro_batches"},
  };
}

std::vector<Setting> training_settings() {
  return {
      {.name = "steps",
          .form = size(&C::steps, 1, many),
          .axis = false,
          .initial = "10",
          .example_value = "20",
          .doc = "Timed steps of a repetition; a result needs at least 3 samples to be valid."},
      {.name = "repeats",
          .form = size(&C::repeats, 1, 1000),
          .axis = false,
          .initial = "1",
          .example_value = "3",
          .doc = "Repetitions: how often a case is set up and timed again, warm-up included; `run "
                 "--interleave` runs those of all cases in random order.",
          .identity = Identity::never},  // more repetitions are no other case
      {.name = "warmup",
          .form = size(&C::warmup, 0, many),
          .axis = false,
          .initial = "2",
          .example_value = "3",
          .doc = "Steps before the timed ones."},
      {.name = "seed",
          .form = size(&C::seed, 0, INT64_MAX),
          .axis = false,
          .initial = "1",
          .example_value = "7",
          .doc = "Seed of initial weights and synthetic tokens."},
      {.name = "learning_rate",
          .form = {"number", store_learning_rate, value_of(&C::learning_rate)},
          .axis = false,
          .initial = fmt::format("{}", Case{}.learning_rate),
          .example_value = "3e-4",
          .doc = "Learning rate of AdamW."},
      {.name = "clip_norm",
          .form = {"number", store_clip_norm, value_of(&C::clip_norm)},
          .axis = false,
          .initial = "off",
          .example_value = "1.0",
          .doc = "Largest norm of the gradient of all weights: a larger gradient is scaled down "
                 "before the update, and every rank waits for the norm. off: no limit.",
          .identity = Identity::unless_initial,
          .text = clip_norm_text},
      {.name = "data",
          .form = text(&C::data, "text"),
          .axis = false,
          .initial = "synthetic",
          .example_value = R"("corpus.txt")",
          .doc = "File whose bytes are the tokens (path from the current folder), or "
                 "\"synthetic\"."},
  };
}

/// Those of all settings that have such a part.
std::vector<Setting> settings_with(const std::function<bool(const Setting&)>& has_part) {
  std::vector<Setting> found;
  for (const auto& settings :
      {program_settings(), model_settings(), batch_settings(), training_settings()})
    for (Setting setting : settings) {
      if (!setting.value)
        setting.value = setting.form.value;
      if (has_part(setting))
        found.push_back(std::move(setting));
    }
  return found;
}
}  // namespace

const std::vector<Setting>& keys() {
  static const std::vector<Setting> found =
      settings_with([](const Setting& s) { return s.form.store != nullptr; });
  return found;
}

const std::vector<Setting>& columns() {
  static const std::vector<Setting> found =
      settings_with([](const Setting& s) { return s.value != nullptr; });
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
