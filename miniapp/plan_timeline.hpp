#pragma once

#include <string>
#include <vector>

#include "deck/settings.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::app {

/// --timeline and --case of `plan`.
struct TimelineOptions {
  std::string path;   ///< empty: no timeline
  std::string cases;  ///< "2", "0,3" or "all"; empty: the first
};

/// The cases to draw, in the order given. Throws InputError for a path that does not end in
/// .svg or .json, or cases that the deck does not have.
[[nodiscard]] std::vector<int> chosen_cases(const TimelineOptions& options, int cases);

/// Plays the chosen cases on the machine and writes their timelines into one file, as its name says: .svg, or
/// .json for a Chrome trace. Throws InputError for cases too large to draw or a file that cannot be written.
void write_timeline(const TimelineOptions& options, const deck::Deck& deck, const schedule::Machine& machine);

/// "400T", "50G" or a plain number; steps of 1000. `option` is only named. Throws InputError.
[[nodiscard]] double parse_rate(const std::string& option, const std::string& text);

/// The same in bytes/s, or in bits/s: "100mbit", "1gbit".
[[nodiscard]] double parse_link_rate(const std::string& option, const std::string& text);

/// "400 TFLOP/s, 450 GB/s inside its group and 50 GB/s to others".
[[nodiscard]] std::string to_text(const schedule::Machine& machine);

}  // namespace minitaw::app
