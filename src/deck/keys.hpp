// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include "deck/deck.hpp"
#include "deck/value.hpp"
#include "schedule/registry.hpp"

namespace minitaw::deck {
/// A case as the user wrote it, values checked one by one. What has no default yet is 0 or empty.
struct Draft {
  Case c;
  std::string groups;      ///< "2", "1+2+3" or "1+2+*"
  std::string grad_dtype;  ///< "auto" or "fp32"
  std::int64_t head_dim = 0, ffn = 0, tokens = 0, micro_batches_per_rank = 0, sequences = 0;
  int group_size = 0;

  Draft() { c.ranks = c.micro_batches = 0; }
};

/// A deck key. Parsing, `minitaw help keys` and docs/keys.md all come from the table of these.
struct Key {
  std::string name;
  std::string type;   ///< for the reader: "size", "name", "number", "text"
  bool axis = false;  ///< a list of values is swept
  bool list = false;  ///< the value itself is a list (never swept)
  std::string
      initial;  ///< default as a text to store; empty if there is none or it depends on other keys
  std::string fallback;  ///< default in words, if it depends on other keys; empty: as `initial`, or
                         ///< required
  std::string example;   ///< TOML line that a message can show
  std::string doc;
  /// Checks one value and puts it into the draft, behind the others if the key is a list. Throws
  /// InputError "key: ...".
  std::function<void(Draft&, const std::string&)> store;
  /// The value of a case: identity() names it where it is not `initial`. Empty: identity() knows
  /// the key.
  std::function<std::string(const Case&)> text = {};
  /// The key that this one is another way to write. A deck has one of them.
  std::string in_place_of = {};

  [[nodiscard]] const std::string& meaning() const {
    return in_place_of.empty() ? name : in_place_of;
  }

  [[nodiscard]] bool required() const { return initial.empty() && fallback.empty(); }
};

/// All keys, in the order in which axes are swept: the first is the slowest.
[[nodiscard]] const std::vector<Key>& keys();
[[nodiscard]] const Key* find_key(const std::string& name);
/// Returns the key. Throws InputError "<where>: unknown key ..." with the nearest key if there is
/// none.
[[nodiscard]] const Key* require_key(const std::string& name, const std::string& where);
/// Text of `minitaw help KEY` and `minitaw help SCHEDULE`.
[[nodiscard]] std::string help_text(const Key& key);
[[nodiscard]] std::string help_text(const schedule::Entry& entry);
[[nodiscard]] std::string help_text();
[[nodiscard]] std::string help_markdown();
}  // namespace minitaw::deck
