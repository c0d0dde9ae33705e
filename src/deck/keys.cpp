// SPDX-License-Identifier: BSD-3-Clause
#include "deck/keys.hpp"
#include <fmt/format.h>
#include "base/error.hpp"

namespace minitaw::deck {
namespace {
using C = Case;
using D = CaseDraft;
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
/// not keep.
template <class T, class Owner>
ValueOf value_of(T Owner::* field) {
  if constexpr (std::is_same_v<Owner, D>)
    return {};
  else if constexpr (std::is_same_v<T, bool>)
    return [=](const Case& c) { return std::string(field_of(c, field) ? "true" : "false"); };
  else if constexpr (std::is_enum_v<T>)
    return [=](const Case& c) { return std::string(name_of(field_of(c, field))); };
  else if constexpr (std::is_integral_v<T>)
    return [=](const Case& c) { return static_cast<std::int64_t>(field_of(c, field)); };
  else
    return [=](const Case& c) { return field_of(c, field); };
}

/// A whole number of [least, most], "4K" allowed.
template <class T, class Owner>
KeyForm size(T Owner::* field, std::int64_t least, std::int64_t most) {
  const auto store = [=](CaseDraft& draft, const std::string& value) {
    field_of(draft, field) = static_cast<T>(to_size(value, least, most));
  };
  return {"size", store, value_of(field)};
}

/// One of some words, stored as such or as the value of its position.
template <class T, class Owner>
KeyForm choice(T Owner::* field, std::vector<std::string> words) {
  const auto store = [=](CaseDraft& draft, const std::string& value) {
    const std::size_t at = to_choice(value, words);
    if constexpr (std::is_same_v<T, std::string>)
      field_of(draft, field) = words[at];
    else
      field_of(draft, field) = static_cast<T>(at);
  };
  return {"name", store, value_of(field)};
}

template <class Owner>
KeyForm text(std::string Owner::* field, const char* type) {
  const auto store = [=](CaseDraft& draft, const std::string& value) {
    field_of(draft, field) = value;
  };
  return {type, store, value_of(field)};
}

void store_schedule(CaseDraft& draft, const std::string& spec) {
  draft.schedule = schedule::to_text(schedule::parse_spec(spec));
}

void store_learning_rate(CaseDraft& draft, const std::string& value) {
  draft.learning_rate = to_positive(value);
  if (draft.learning_rate > 100)
    throw InputError("{} is more than 100; usual values are 1e-5 to 1e-2", in_quotes(value));
}

void store_clip_norm(CaseDraft& draft, const std::string& value) {
  draft.clip_norm = value == "off" ? 0 : to_positive(value);
}

void store_context(CaseDraft& draft, const std::string& value) {
  draft.shape.context.count = to_size(value, 1, most_ranks);
}

/// Empty where it follows from hidden and heads.
std::string head_dim_text(const Case& c) {
  return c.shape.given_head_dim > 0 ? fmt::format("{}", c.shape.given_head_dim) : "";
}

std::string clip_norm_text(const Case& c) {
  return c.clip_norm > 0 ? fmt::format("{}", c.clip_norm) : "off";
}

/// A key of a deck, `initial` if it is not given. `setting` has what only some keys have.
Setting key(const std::string& name,
    const KeyForm& form,
    const std::string& initial,
    const std::string& example_value,
    const std::string& doc,
    Setting setting = {}) {
  setting.name = name;
  setting.form = form;
  if (!setting.value)
    setting.value = form.value;
  setting.initial = initial;
  setting.example_value = example_value;
  setting.doc = doc;
  return setting;
}

/// A value that a record has, and no deck gives.
Setting column(const std::string& name, const std::string& doc, const ValueOf& value) {
  return {.name = name, .value = value, .doc = doc, .identity = Identity::never};
}

std::vector<Setting> program_settings() {
  return {
      key("schedule",
          {"name", store_schedule, value_of(&C::schedule)},
          "tawpipe",
          R"(["ddp", "tawpipe:cco=off"])",
          "How the step is spread over the ranks; options are appended as "
          "\":option=value\". \"serial\" always uses one rank."),
      key("ranks",
          size(&C::ranks, 1, most_ranks),
          "",
          "[2, 4]",
          "P, ranks that take part; the first P of the job.",
          {.fallback = "all ranks of the job"}),
      key("groups",
          text(&D::groups_text, "number or text"),
          "",
          R"([1, 2, "1+2+3"])",
          "D groups of equal size, or their sizes joined by \"+\", the last one \"*\" for "
          "all ranks that are left. Ranks of a group are consecutive.",
          {.value = [](const Case& c) { return c.groups.text(); },
              .fallback = "the nodes of the job"}),
      key("group_size",
          size(&D::group_size, 1, most_ranks),
          "",
          "8",
          "Ranks of each group, instead of groups: stays the same while ranks is swept.",
          {.fallback = "ranks / groups", .in_place_of = "groups"}),
      column("group_count", "Number of groups, D.", [](const Case& c) { return c.groups.count(); }),
      key("replicas",
          size(&C::replicas, 1, most_ranks),
          "1",
          "2",
          "Copies of the schedule side by side, each on ranks / replicas ranks, gradients "
          "summed over all. A model can then run on more ranks than it has layers.",
          {.identity = Identity::unless_initial}),
      key("context",
          {"size", store_context},
          "1",
          "[1, 2]",
          "n, neighbouring ranks of a group that share every sequence of their micro-batches "
          "(context parallelism): each computes two of 2 n equal chunks, one of the first "
          "half and one of the second. n divides every group, and seq is a multiple of 2 n. "
          "A stage of a pipeline is n ranks.",
          {.value = [](const Case& c) { return std::int64_t{c.shape.context.count}; },
              .identity = Identity::unless_initial}),
  };
}

std::vector<Setting> model_settings() {
  return {
      key("layers", size(&S::layers, 1, 10'000), "", "8", "L, transformer blocks."),
      key("hidden", size(&S::hidden, 1, M), "", "256", "H, width of the hidden state."),
      key("heads",
          size(&S::heads, 1, M),
          "",
          "8",
          "Query heads; where head_dim is not given, they must divide hidden.",
          {.fallback = "hidden / head_dim"}),
      key("head_dim",
          size(&S::given_head_dim, 1, M),
          "",
          "128",
          "d, width of a head, even. Given with heads, it is independent of hidden: Qwen3 0.6B has "
          "16 heads of 128 and hidden = 1024. Given alone, it stays the same while hidden is "
          "swept.",
          {.value = [](const Case& c) { return c.shape.head_dim(); },
              .fallback = "hidden / heads",
              .identity = Identity::unless_initial,
              .text = head_dim_text}),
      key("kv_heads",
          size(&S::kv_heads, 1, M),
          "",
          "2",
          "Key and value heads (grouped query attention); must divide heads.",
          {.fallback = "heads"}),
      key("vocab",
          size(&S::vocab, 1, 16 * M),
          "",
          "32000",
          "V, size of the vocabulary; at least 256 if data is a file.",
          {.fallback = "256 if data is a file, else 32000"}),
      key("tied",
          choice(&S::tied, {"false", "true"}),
          "false",
          "true",
          "true: one matrix is embedding and LM head (tied embeddings). Pipelines whose first and "
          "last stage are on different ranks keep two copies, and sum their gradients.",
          {.identity = Identity::unless_initial}),
      key("ffn",
          size(&S::ffn, 1, 4 * M),
          "",
          "768",
          "F, inner width of the SwiGLU of every block.",
          {.fallback = "8/3 hidden, rounded up to a multiple of 256"}),
      column("parameters",
          "Trained parameters, embedding and LM head included.",
          [](const Case& c) { return model::parameters(c.shape); }),
      key("dtype",
          choice(&S::dtype, {"fp32", "bf16"}),
          "fp32",
          R"("bf16")",
          "Precision of weights, activations and gradients: fp32 or bf16. Master weights "
          "and optimiser are fp32."),
      key("grad_dtype",
          choice(&D::grad_dtype, {"auto", "fp32"}),
          "auto",
          R"("fp32")",
          "Precision in which gradients are sent to the rank that sums them: auto (as dtype) "
          "or fp32, an option of PyTorch's FSDP too. Sums over micro-batches, and those of "
          "ddp and replicas, are always fp32.",
          {.value = [](const Case& c) { return std::string(name_of(c.shape.grad_dtype())); },
              .identity = Identity::unless_initial,
              .text = [](const Case& c) { return c.shape.fp32_gradients ? "fp32" : "auto"; }}),
      key("context_parts",
          size(&S::key_parts, 1, M),
          "1",
          "2",
          "Parts in which ranks with context gather keys and values, each of some key/value "
          "heads: the next part is under way while attention uses one. Divides kv_heads.",
          {.identity = Identity::unless_initial}),
      key("context_grad_dtype",
          choice(&D::context_grad_dtype, {"auto", "fp32"}),
          "auto",
          R"("fp32")",
          "Precision of the gradients of keys and values that ranks with context, or "
          "slices, add up: auto (as dtype), or fp32.",
          {.value =
                  [](const Case& c) { return std::string(name_of(c.shape.key_gradient_dtype())); },
              .identity = Identity::unless_initial,
              .text = [](const Case& c) { return c.shape.fp32_key_gradients ? "fp32" : "auto"; }}),
      key("recompute",
          choice(&S::recompute, {"block", "keep-attention", "none"}),
          "block",
          R"("none")",
          "What the backward pass computes again: block (all but the block input), "
          "keep-attention (all but the block input and the attention), none."),
      key("attention",
          choice(&C::attention, {"auto", "host", "portable", "cudnn"}),
          "auto",
          R"("portable")",
          "Attention kernel: host (vector code, fp32 on a host), portable (Kokkos, any "
          "device), cudnn (bf16 on NVIDIA), or auto, the fastest of these in this build.",
          {.identity = Identity::unless_initial}),
      key("transport",
          choice(&C::transport, {"auto", "mpi", "nccl"}),
          "auto",
          R"("mpi")",
          "What moves data between ranks: nccl (device to device), mpi (through host memory "
          "unless the MPI takes device pointers), or auto: nccl where each rank has a "
          "device of its own and the build has NCCL.",
          {.identity = Identity::unless_initial}),
  };
}

std::vector<Setting> batch_settings() {
  return {
      key("seq",
          size(&S::seq, 1, 64 * M),
          "",
          R"(["1K", "2K", "4K"])",
          "S, tokens per sequence.",
          {.units = "token"}),
      key("micro_batch",
          size(&S::micro_batch, 1, many),
          "1",
          "2",
          "B, sequences per micro-batch.",
          {.units = "sequence"}),
      key("tokens_per_micro_batch",
          size(&D::tokens, 1, many * K),
          "",
          R"("64K")",
          "B times S, instead of micro_batch: stays the same while seq is swept; a multiple "
          "of seq.",
          {.fallback = "micro_batch * seq", .in_place_of = "micro_batch"}),
      key("micro_batches",
          size(&C::micro_batches, 1, many),
          "",
          "16",
          "M, micro-batches per step, all ranks together: a multiple of ranks / context, or "
          "in pipelines a multiple of replicas.",
          {.fallback = "ranks / context", .units = "micro-batch"}),
      key("micro_batches_per_rank",
          size(&D::micro_batches_per_rank, 1, many),
          "",
          "8",
          "Micro-batches of each rank, or with context of each n ranks that share sequences; "
          "instead of micro_batches: a step grows with the number of ranks.",
          {.fallback = "micro_batches / (ranks / context)", .in_place_of = "micro_batches"}),
  };
}

std::vector<Setting> training_settings() {
  Setting data_sum =
      column("data_sum", "Checksum of the file `data`; empty: synthetic.", value_of(&C::data_sum));
  data_sum.identity = Identity::unless_initial;
  return {
      key("steps",
          size(&C::steps, 1, many),
          "10",
          "20",
          "Timed steps of a repetition; a result needs at least 3 samples to be valid.",
          {.axis = false, .units = "step"}),
      key("repeats",
          size(&C::repeats, 1, 1000),
          "1",
          "3",
          "Repetitions: how often a case is set up and timed again, warm-up included; `run "
          "--interleave` runs those of all cases in random order.",
          {.axis = false, .identity = Identity::never}),  // more repetitions are no other case
      key("warmup",
          size(&C::warmup, 0, many),
          "2",
          "3",
          "Steps before the timed ones.",
          {.axis = false, .units = "step"}),
      key("seed",
          size(&C::seed, 0, INT64_MAX),
          "1",
          "7",
          "Seed of initial weights and synthetic tokens.",
          {.axis = false}),
      key("learning_rate",
          {"number", store_learning_rate, value_of(&C::learning_rate)},
          fmt::format("{}", Case{}.learning_rate),
          "3e-4",
          "Learning rate of AdamW.",
          {.axis = false}),
      key("clip_norm",
          {"number", store_clip_norm, value_of(&C::clip_norm)},
          "off",
          "1.0",
          "Largest norm of the gradient of all weights: a larger gradient is scaled down "
          "before the update, and every rank waits for the norm. off: no limit.",
          {.axis = false, .identity = Identity::unless_initial, .text = clip_norm_text}),
      key("data",
          text(&C::data, "text"),
          "synthetic",
          R"("corpus.txt")",
          "File whose bytes are the tokens (path from the current folder), or "
          "\"synthetic\".",
          {.axis = false}),
      data_sum,
  };
}

std::vector<Setting> settings_that(const std::function<bool(const Setting&)>& fit) {
  std::vector<Setting> found;
  for (const auto& settings :
      {program_settings(), model_settings(), batch_settings(), training_settings()})
    std::ranges::copy_if(settings, std::back_inserter(found), fit);
  return found;
}
}  // namespace

const std::vector<Setting>& keys() {
  static const std::vector<Setting> found =
      settings_that([](const Setting& s) { return s.form.store != nullptr; });
  return found;
}

const std::vector<Setting>& settings() {
  static const std::vector<Setting> found =
      settings_that([](const Setting& s) { return s.value != nullptr; });
  return found;
}

void Setting::store(CaseDraft& draft, const std::string& given) const {
  try {
    form.store(draft, given);
  } catch (const InputError& error) {
    const std::string_view what = error.what();
    if (what.starts_with(name + ":"))  // of a schedule and its options
      throw;
    throw InputError("{}: {}", name, what);
  }
}

const Setting* find_key(const std::string& name) {
  const auto at = std::ranges::find(keys(), name, &Setting::name);
  return at == keys().end() ? nullptr : &*at;
}

const Setting* require_key(const std::string& name, const std::string& where) {
  if (const Setting* key = find_key(name))
    return key;
  throw InputError("{}: unknown key \"{}\"{} (minitaw help keys lists all)",
      where,
      printable(name),
      did_you_mean(name, list_of(keys(), &Setting::name)));
}

std::string identity(const Case& c) {
  std::string always, others;
  for (const Setting& s : settings()) {
    const std::string text = s.text ? s.text(c) : to_text(s.value(c));
    if (s.identity == Identity::always)
      always += fmt::format("{}{}={}", always.empty() ? "" : " ", s.name, text);
    if (s.identity == Identity::unless_initial && text != s.initial)
      others += fmt::format(" {}={}", s.name, text);
  }
  return always + others;
}
}  // namespace minitaw::deck
