#pragma once

#include <map>
#include <string>
#include <vector>

#include "deck/draft.hpp"
#include "deck/value.hpp"

namespace minitaw::deck {

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
