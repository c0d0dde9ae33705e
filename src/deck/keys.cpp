// SPDX-License-Identifier: BSD-3-Clause
#include "deck/keys.hpp"
#include <algorithm>
#include <fmt/ranges.h>
#include "base/error.hpp"

namespace minitaw::deck {
namespace {
constexpr std::int64_t K = 1024, M = K * K, many = 1'000'000, most_ranks = topology::most_ranks;
using Store = std::function<void(Draft&, const std::string&)>;
using Text = std::function<std::string(const Case&)>;

/// Where a key stores its value.
auto& field_of(Draft& draft, auto Draft::* field) {
  return draft.*field;
}

auto& field_of(Draft& draft, auto Case::* field) {
  return draft.c.*field;
}

auto& field_of(Draft& draft, auto model::Shape::* field) {
  return draft.c.shape.*field;
}

/// A whole number of [least, most], "4K" allowed; or one more of a list.
template <class T, class Owner>
Store size(const std::string& key, T Owner::* field, std::int64_t least, std::int64_t most) {
  return [=](Draft& draft, const std::string& text) {
    const std::int64_t number = to_size(key, text, least, most);
    if constexpr (std::is_integral_v<T>)
      field_of(draft, field) = static_cast<T>(number);
    else
      field_of(draft, field).push_back(number);
  };
}

/// One of some words, stored as such or as the enumerator of its position.
template <class T, class Owner>
Store choice(const std::string& key, T Owner::* field, std::vector<std::string> words) {
  return [=](Draft& draft, const std::string& text) {
    const std::size_t at = to_choice(key, text, words);
    if constexpr (std::is_enum_v<T>)
      field_of(draft, field) = static_cast<T>(at);
    else
      field_of(draft, field) = words[at];
  };
}

template <class T>
Text text_of(T Case::* field) {
  return [=](const Case& c) { return fmt::format("{}", c.*field); };
}

std::vector<Key> make_keys() {
  using D = Draft;
  using C = Case;
  using S = model::Shape;
  std::vector<Key> table;
  const auto add = [&](Key key) { table.push_back(std::move(key)); };
  // name, type, axis, list, initial, fallback, example, doc, store
  add({"schedule",
      "name",
      true,
      false,
      "tawpipe",
      "",
      "schedule = [\"ddp\", \"tawpipe:cco=off\"]",
      "How the step is spread over the ranks; options are appended as \":option=value\". "
      "\"serial\" always "
      "uses one rank.",
      [](D& draft, const std::string& text) {
        draft.c.schedule = schedule::to_text(schedule::parse_spec(text));
      }});
  add({"ranks",
      "size",
      true,
      false,
      "",
      "all ranks of the job",
      "ranks = [2, 4]",
      "P, ranks that take part; the first P of the job.",
      size("ranks", &C::ranks, 1, most_ranks)});
  add({"groups",
      "number or text",
      true,
      false,
      "",
      "the nodes of the job",
      "groups = [1, 2, \"1+2+3\"]",
      "D groups of equal size, or their sizes joined by \"+\", the last one \"*\" for all ranks "
      "that are "
      "left. Ranks of a group are consecutive.",
      [](D& draft, const std::string& text) { draft.groups = text; }});
  add({"group_size",
      "size",
      true,
      false,
      "",
      "ranks / groups",
      "group_size = 8",
      "Ranks of each group, in place of groups: what stays the same where ranks are swept over "
      "nodes.",
      size("group_size", &D::group_size, 1, most_ranks),
      {},
      "groups"});
  add({"replicas",
      "size",
      true,
      false,
      "1",
      "",
      "replicas = 2",
      "Copies of the schedule side by side, each on ranks / replicas ranks, gradients summed over "
      "all: what "
      "lets a model run on more ranks than it has layers.",
      size("replicas", &C::replicas, 1, most_ranks),
      text_of(&C::replicas)});
  add({"layers",
      "size",
      true,
      false,
      "",
      "",
      "layers = 8",
      "L, transformer blocks.",
      size("layers", &S::layers, 1, 10'000)});
  add({"hidden",
      "size",
      true,
      false,
      "",
      "",
      "hidden = 256",
      "H, width of the hidden state.",
      size("hidden", &S::hidden, 1, M)});
  add({"heads",
      "size",
      true,
      false,
      "",
      "hidden / head_dim",
      "heads = 8",
      "Query heads; must divide hidden, and hidden / heads must be even.",
      size("heads", &S::heads, 1, M)});
  add({"head_dim",
      "size",
      true,
      false,
      "",
      "hidden / heads",
      "head_dim = 128",
      "Width of a head, in place of heads: what stays the same where hidden is swept.",
      size("head_dim", &D::head_dim, 1, M),
      {},
      "heads"});
  add({"kv_heads",
      "size",
      true,
      false,
      "",
      "heads",
      "kv_heads = 2",
      "Key and value heads (grouped query attention); must divide heads.",
      size("kv_heads", &S::kv_heads, 1, M)});
  add({"vocab",
      "size",
      true,
      false,
      "",
      "256 if data is a file, else 32000",
      "vocab = 32000",
      "V, size of the vocabulary; at least 256 if data is a file.",
      size("vocab", &S::vocab, 1, 16 * M)});
  add({"ffn",
      "size",
      true,
      false,
      "",
      "8/3 hidden, rounded up to a multiple of 256",
      "ffn = 768",
      "F, inner width of the SwiGLU of every block.",
      size("ffn", &D::ffn, 1, 4 * M)});
  add({"ffn_per_layer",
      "list of sizes",
      false,
      true,
      "",
      "ffn for every block",
      "ffn_per_layer = [128, 256]",
      "F of each block, `layers` values, in place of ffn.",
      size("ffn_per_layer", &S::ffn, 1, 4 * M),
      {},
      "ffn"});
  add({"dtype",
      "name",
      true,
      false,
      "fp32",
      "",
      "dtype = \"bf16\"",
      "Precision of weights, activations and gradients: fp32 or bf16. Master weights and optimiser "
      "are fp32.",
      choice("dtype", &S::dtype, {"fp32", "bf16"})});
  add({"grad_dtype",
      "name",
      true,
      false,
      "auto",
      "",
      "grad_dtype = \"fp32\"",
      "Precision of gradients in transit to where they are summed: auto (as dtype), or fp32, as "
      "PyTorch's FSDP may reduce. Sums over micro-batches, ddp and replicas are fp32 always.",
      choice("grad_dtype", &D::grad_dtype, {"auto", "fp32"}),
      [](const Case& c) { return std::string(c.shape.fp32_gradients ? "fp32" : "auto"); }});
  add({"recompute",
      "name",
      true,
      false,
      "block",
      "",
      "recompute = \"none\"",
      "What the backward pass computes again: block (all but the block input), keep-attention (all "
      "but the "
      "block input and the attention), none.",
      choice("recompute", &S::recompute, {"block", "keep-attention", "none"})});
  add({"attention",
      "name",
      true,
      false,
      "auto",
      "",
      "attention = \"portable\"",
      "Attention kernel: host (vector code, fp32 on a host), portable (Kokkos, any device), cudnn "
      "(bf16 on "
      "NVIDIA), or auto, the fastest of these in this build.",
      choice("attention", &C::attention, {"auto", "host", "portable", "cudnn"}),
      text_of(&C::attention)});
  add({"transport",
      "name",
      true,
      false,
      "auto",
      "",
      "transport = \"mpi\"",
      "What moves data between ranks: nccl (device to device), mpi (through host memory unless the "
      "MPI takes device "
      "pointers), or auto: nccl where each rank has a device of its own and the build has NCCL.",
      choice("transport", &C::transport, {"auto", "mpi", "nccl"}),
      text_of(&C::transport)});
  add({"seq",
      "size",
      true,
      false,
      "",
      "",
      "seq = [\"1K\", \"2K\", \"4K\"]",
      "S, tokens per sequence.",
      size("seq", &S::seq, 1, 64 * M)});
  add({"micro_batch",
      "size",
      true,
      false,
      "",
      "1",
      "micro_batch = 2",
      "B, sequences per micro-batch.",
      size("micro_batch", &S::micro_batch, 1, many)});
  add({"micro_batch_per_rank",
      "list of sizes",
      false,
      true,
      "",
      "micro_batch for every rank",
      "micro_batch_per_rank = [1, 3, 2]",
      "B of each rank, `ranks` values, in place of micro_batch: for ranks of different speed.",
      size("micro_batch_per_rank", &C::micro_batch_per_rank, 1, many),
      {},
      "micro_batch"});
  add({"tokens_per_micro_batch",
      "size",
      true,
      false,
      "",
      "micro_batch * seq",
      "tokens_per_micro_batch = \"64K\"",
      "B times S, in place of micro_batch: what stays the same where seq is swept; a multiple of "
      "seq.",
      size("tokens_per_micro_batch", &D::tokens, 1, many * K),
      {},
      "micro_batch"});
  add({"micro_batches",
      "size",
      true,
      false,
      "",
      "ranks",
      "micro_batches = 16",
      "M, micro-batches per step, all ranks together; a multiple of ranks, in pipelines of "
      "replicas.",
      size("micro_batches", &C::micro_batches, 1, many)});
  add({"micro_batches_per_rank",
      "size",
      true,
      false,
      "",
      "micro_batches / ranks",
      "micro_batches_per_rank = 8",
      "M / P, in place of micro_batches: the step grows with the ranks.",
      size("micro_batches_per_rank", &D::micro_batches_per_rank, 1, many),
      {},
      "micro_batches"});
  add({"sequences_per_step",
      "size",
      true,
      false,
      "",
      "micro_batches * micro_batch",
      "sequences_per_step = 1536",
      "Sequences of all micro-batches, in place of micro_batches: the step stays the same where B "
      "is swept; "
      "a multiple of B.",
      size("sequences_per_step", &D::sequences, 1, many),
      {},
      "micro_batches"});
  add({"data",
      "text",
      false,
      false,
      "synthetic",
      "",
      "data = \"corpus.txt\"",
      "File whose bytes are the tokens (path from the current folder), or \"synthetic\".",
      [](D& draft, const std::string& text) { draft.c.data = text; }});
  add({"steps",
      "size",
      false,
      false,
      "10",
      "",
      "steps = 20",
      "Timed steps of a repetition; a result needs at least 3 samples to be valid.",
      size("steps", &C::steps, 1, many)});
  add({"repeats",
      "size",
      false,
      false,
      "1",
      "",
      "repeats = 3",
      "Repetitions: how often a case is set up and timed anew, warm-up included; `run "
      "--interleave` runs "
      "those of all cases in random order.",
      size("repeats", &C::repeats, 1, 1000)});  // more repetitions are no other case
  add({"warmup",
      "size",
      false,
      false,
      "2",
      "",
      "warmup = 3",
      "Steps before the timed ones.",
      size("warmup", &C::warmup, 0, many)});
  add({"seed",
      "size",
      false,
      false,
      "1",
      "",
      "seed = 7",
      "Of initial weights and synthetic tokens.",
      size("seed", &C::seed, 0, INT64_MAX)});
  add({"learning_rate",
      "number",
      false,
      false,
      fmt::format("{}", Case{}.learning_rate),
      "",
      "learning_rate = 3e-4",
      "Of AdamW.",
      [](D& draft, const std::string& text) {
        draft.c.learning_rate = to_positive("learning_rate", text);
        if (draft.c.learning_rate > 100)
          throw InputError(
              fmt::format("learning_rate: {} is more than 100; usual values are 1e-5 to 1e-2",
                  in_quotes(text)));
      }});
  add({"clip_norm",
      "number",
      false,
      false,
      "off",
      "",
      "clip_norm = 1.0",
      "Largest norm of the gradient of a step, all weights together: a longer one is shortened "
      "before the "
      "update, for which every rank waits. off: none is.",
      [](D& draft, const std::string& text) {
        draft.c.clip_norm = text == "off" ? 0 : to_positive("clip_norm", text);
      },
      [](const Case& c) { return c.clip_norm > 0 ? fmt::format("{}", c.clip_norm) : "off"; }});
  return table;
}

std::string default_of(const Key& key) {
  if (key.required())
    return "required";
  return key.initial.empty() ? key.fallback : key.initial;
}

std::string values_of(const schedule::OptionDoc& option) {
  return option.values.empty() ? "TEXT" : fmt::format("{}", fmt::join(option.values, "|"));
}

/// "`cco=on|off` (communication ...)" for every option, from the registry.
std::string options_of(const schedule::Entry& entry) {
  std::string text;
  for (const schedule::OptionDoc& option : entry.options)
    text += fmt::format(
        "{}{}={} ({})", text.empty() ? "" : "; ", option.name, values_of(option), option.doc);
  return text.empty() ? "no options" : text;
}

constexpr std::string_view rules = "A deck is a TOML file with keys at the top level; `--set "
                                   "key=value` replaces a key, or one that it\n"
                                   "is in place of. A size is a whole number or a text with a "
                                   "suffix in steps of 1024: \"4K\", \"1M\",\n"
                                   "\"2G\". A key marked as an axis also takes a list; the cases "
                                   "are all combinations of the lists. A\n"
                                   "combination that cannot be run is left out with a note. It is "
                                   "an error if none is left, or if the\n"
                                   "job has too few ranks for one.\n";
}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = make_keys();
  return table;
}

const Key* find_key(const std::string& name) {
  const auto at = std::ranges::find(keys(), name, &Key::name);
  return at == keys().end() ? nullptr : &*at;
}

const Key* require_key(const std::string& name, const std::string& where) {
  if (const Key* key = find_key(name))
    return key;
  throw InputError(fmt::format("{}: unknown key \"{}\"{} (minitaw help keys lists all)",
      where,
      printable(name),
      did_you_mean(name, list_of(keys(), &Key::name))));
}

std::string help_text(const Key& key) {
  return fmt::format("{} ({}{}; default: {})\n    {}\n    e.g. {}\n",
      key.name,
      key.type,
      key.axis ? ", axis" : "",
      default_of(key),
      key.doc,
      key.example);
}

std::string help_text(const schedule::Entry& entry) {
  std::string text = fmt::format("{}: {}\n", entry.name, entry.doc);
  for (const schedule::OptionDoc& option : entry.options)
    text += fmt::format("    {}:{}={}\n        {}{}\n",
        entry.name,
        option.name,
        values_of(option),
        option.doc,
        option.values.empty() ? "" : fmt::format(" (default: {})", option.values[0]));
  return text + (entry.options.empty() ? "    no options\n" : "");
}

std::string help_text() {
  std::string text = fmt::format("{}\n", rules);
  for (const Key& key : keys())
    text += help_text(key);
  text += "\nSchedules and their options (the first value is the default):\n";
  for (const schedule::Entry& entry : schedule::registry())
    text += fmt::format("{}: {}\n    {}\n", entry.name, entry.doc, options_of(entry));
  return text;
}

std::string help_markdown() {
  std::string text = fmt::format(
      "# Deck keys\n\n{}\nThis page is the output of `minitaw help keys --markdown`; a test keeps "
      "it so.\n\n"
      "| key | type | axis | default | meaning | example |\n|---|---|---|---|---|---|\n",
      rules);
  for (const Key& key : keys())
    text += fmt::format("| `{}` | {} | {} | {} | {} | `{}` |\n",
        key.name,
        key.type,
        key.axis ? "yes" : "no",
        default_of(key),
        key.doc,
        key.example);
  text += "\n## Schedules\n\nThe first value of an option is its default.\n\n";
  for (const schedule::Entry& entry : schedule::registry())
    text += fmt::format("- `{}`: {}. Options: {}.\n", entry.name, entry.doc, options_of(entry));
  return text;
}
}  // namespace minitaw::deck
