#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "deck/value.hpp"

namespace minitaw::deck {

/// A case as the user wrote it: one value per key, each valid by itself. Empty: the default depends on other
/// keys or on the job, or the key must be given.
struct Draft {
  std::optional<std::string> schedule, groups, dtype, recompute, data, attention, transport;
  std::optional<std::int64_t> ranks, replicas, layers, hidden, heads, head_dim, kv_heads, vocab, ffn, seq;
  std::optional<std::int64_t> micro_batch, micro_batches, steps, repeats, warmup, seed;
  std::optional<std::vector<std::int64_t>> ffn_per_layer, micro_batch_per_rank;
  std::optional<double> learning_rate;
};

/// Fills in what depends on other keys and on the job, and checks the whole. Throws InputError "key: ...".
[[nodiscard]] Case complete(const Draft& draft, const Job& job);

/// A deck key. Parsing, `minitaw help keys` and docs/keys.md all come from the table of these.
struct Key {
  std::string name;
  std::string type;      ///< for the reader: "size", "name", "number", "text"
  bool axis = false;     ///< a list of values is swept
  bool list = false;     ///< the value itself is a list (never swept)
  std::string initial;   ///< default as a text to store; empty if there is none or it depends on other keys
  std::string fallback;  ///< default in words, if it depends on other keys; empty: as `initial`, or required
  std::string example;   ///< TOML line that a message can show
  std::string doc;
  /// Checks one value and puts it into the draft. Throws InputError "key: ...".
  std::function<void(Draft&, const Value&)> store;

  [[nodiscard]] bool required() const { return initial.empty() && fallback.empty(); }
};

/// All keys, in the order in which axes are swept: the first is the slowest.
[[nodiscard]] const std::vector<Key>& keys();
/// The key, or nullptr.
[[nodiscard]] const Key* find_key(const std::string& name);
/// The name of the key that is most like the word.
[[nodiscard]] std::string nearest_key(const std::string& word);
/// As find_key, never nullptr: throws InputError "<where>: unknown key ..." that names the nearest key.
[[nodiscard]] const Key* require_key(const std::string& name, const std::string& where);

/// Text of `minitaw help keys`.
[[nodiscard]] std::string help_text();
/// Text of docs/keys.md.
[[nodiscard]] std::string help_markdown();

/// What the user gave for each key: deck, then overrides on top.
using Settings = std::map<std::string, Setting>;

/// Largest number of cases of a sweep.
inline constexpr std::size_t most_cases = 100'000;

/// All combinations of the axes, completed and checked; the first key of keys() varies slowest. Combinations
/// that cannot be run are left out, with a note, if each of their values still occurs in some other case;
/// otherwise they are an error. Equal cases are kept once. Throws InputError that begins with where the key
/// was written.
void expand(const Settings& settings, const Job& job, Deck& deck);

}  // namespace minitaw::deck
