// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include "base/table.hpp"
#include "deck/deck.hpp"
#include "deck/value.hpp"
#include "schedule/registry.hpp"

namespace minitaw::deck {
/// A case as the user wrote it, values checked one by one. What has no default yet is 0 or empty.
struct CaseDraft : Case {
  std::string groups_text;                     ///< "2", "1+2+3" or "1+2+*"
  std::string grad_dtype, context_grad_dtype;  ///< "auto" or "fp32"
  std::int64_t tokens = 0, micro_batches_per_rank = 0;
  int group_size = 0;

  CaseDraft() { ranks = micro_batches = 0; }
};

using ValueOf = std::function<Cell(const Case&)>;

/// How a deck gives the value of a key.
struct KeyForm {
  std::string type{};  ///< for the reader: "size", "name", "number", "text"
  /// Checks a value and puts it into the draft. Throws InputError.
  std::function<void(CaseDraft& draft, const std::string& value)> store{};
  ValueOf value{};  ///< what was stored; empty: of the draft only
};

/// Whether identity() names a setting that has a value.
enum class Identity { always, unless_initial, never };

/// A setting of a case: a key that a deck may have, a value that a record has, or mostly both.
/// From the table of these come parsing, `minitaw help keys`, docs/keys.md, identity(), the
/// settings columns of result files and the settings in JSON.
struct Setting {
  std::string name{};
  KeyForm form{};  ///< empty: no key of a deck
  /// The value that a record has; empty: another setting says the same.
  ValueOf value{};
  bool axis = true;  ///< a list of values is swept
  /// Default as a text to store; empty if there is none or it depends on other keys.
  std::string initial{};
  /// Default in words, if it depends on other keys; empty: as `initial`, or required.
  std::string fallback{};
  std::string example_value{};  ///< as TOML
  std::string doc{};
  std::string in_place_of{};  ///< the key that this is another way to write: a deck has one of them
  std::string units = "1";    ///< of a number
  Identity identity = Identity::always;
  /// The text that identity() writes; left out: the value.
  std::function<std::string(const Case&)> text{};

  /// Puts a value of the key into the draft. Throws InputError "key: ...".
  void store(CaseDraft& draft, const std::string& given) const;

  const std::string& meaning() const { return in_place_of.empty() ? name : in_place_of; }

  /// A TOML line that a message can show.
  std::string example() const { return name + " = " + example_value; }

  bool required() const { return initial.empty() && fallback.empty(); }
};

/// The settings that a deck may give, in the order in which axes are swept: the first is the
/// slowest.
const std::vector<Setting>& keys();
/// The settings that a record has: all that it says of a case that was asked for, but its identity.
const std::vector<Setting>& settings();
const Setting* find_key(const std::string& name);
/// Returns the key. Throws InputError "<where>: unknown key ..." with the nearest key if there is
/// none.
const Setting* require_key(const std::string& name, const std::string& where);
/// Text of `minitaw help KEY` and `minitaw help SCHEDULE`.
std::string help_text(const Setting& key);
std::string help_text(const schedule::Entry& entry);
/// Text of `minitaw help keys`, which docs/keys.md shows.
std::string help_text();
}  // namespace minitaw::deck
