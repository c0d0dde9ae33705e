#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare_output.hpp"

namespace minitaw::app {

namespace {

using namespace record::compare;

/// The length of the well-formed UTF-8 sequence at the front of `text`; 0: there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80                      ? 1
                             : byte(0) >= 0xC2 && byte(0) < 0xE0 ? 2
                             : byte(0) >= 0xE0 && byte(0) < 0xF0 ? 3
                             : byte(0) >= 0xF0 && byte(0) < 0xF5 ? 4
                                                                 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Longer than needed, halves of pairs, and what XML leaves out: U+FFFE and U+FFFF.
  if (byte(0) == 0xE0 && byte(1) < 0xA0) return 0;
  if (byte(0) == 0xED && byte(1) > 0x9F) return 0;
  if (byte(0) == 0xEF && byte(1) == 0xBF && byte(2) > 0xBD) return 0;
  if (byte(0) == 0xF0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

std::string escaped(char c) {
  switch (c) {
  case '&':
    return "&amp;";
  case '<':
    return "&lt;";
  case '>':
    return "&gt;";
  case '"':
    return "&quot;";
  default:
    // XML 1.0 has no other control characters, not even escaped.
    if (c == '\n' || c == '\t') return fmt::format("&#{};", static_cast<int>(c));
    return static_cast<unsigned char>(c) < 0x20 ? "?" : std::string(1, c);
  }
}

/// Text between tags or in an attribute. Names in a file may hold anything: what XML cannot becomes "?".
std::string xml(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) safe += "?";
    else safe += length == 1 ? escaped(text.front()) : std::string(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return safe;
}

enum class Result { passed, failed, skipped };

Result result_of(const Aspect& aspect, bool strict) {
  if (aspect.outcome == Outcome::worse) return Result::failed;
  if (aspect.outcome == Outcome::none) return Result::skipped;
  if (aspect.outcome == Outcome::ambiguous) return strict ? Result::failed : Result::skipped;
  return Result::passed;
}

/// Step time of the new side for the test of the time, so that a viewer's history shows it; else none.
double seconds_of(const Aspect& aspect) {
  return aspect.name == "time" && std::isfinite(aspect.fresh) ? aspect.fresh : 0;
}

std::string values(const Aspect& aspect) {
  if (!std::isfinite(aspect.base) && !std::isfinite(aspect.fresh)) return "";
  return fmt::format("base {:.9g} {}, new {:.9g} {}", aspect.base, aspect.units, aspect.fresh, aspect.units);
}

std::string test(const CaseComparison& c, const Aspect& aspect, bool strict) {
  const std::string head = fmt::format("    <testcase classname=\"minitaw.{}\" name=\"{}\" time=\"{:.9f}\"",
                                       xml(c.label), xml(aspect.name), seconds_of(aspect));
  switch (result_of(aspect, strict)) {
  case Result::failed:
    return fmt::format("{}>\n      <failure message=\"{}\" type=\"{}\">{}</failure>\n    </testcase>\n", head,
                       xml(aspect.word + ": " + aspect.reason), xml(aspect.word), xml(values(aspect)));
  case Result::skipped:
    return fmt::format("{}>\n      <skipped message=\"{}\"/>\n    </testcase>\n", head,
                       xml(aspect.word.empty() ? "nothing to compare" : aspect.word + ": " + aspect.reason));
  case Result::passed:
    break;
  }
  return fmt::format("{}>\n      <system-out>{}</system-out>\n    </testcase>\n", head,
                     xml(fmt::format("{} {}", aspect.word, values(aspect))));
}

struct Counts {
  std::size_t tests = 0, failures = 0, skipped = 0;

  void add(Result result) {
    ++tests;
    failures += result == Result::failed ? 1 : 0;
    skipped += result == Result::skipped ? 1 : 0;
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"0\"", tests, failures);
  }
};

}  // namespace

std::string compare_junit(const Comparison& comparison, bool strict) {
  Counts all;
  std::string suites;
  for (const CaseComparison& c : comparison.cases) {
    Counts counts;
    std::string tests;
    for (const Aspect& aspect : c.aspects) {
      counts.add(result_of(aspect, strict));
      all.add(result_of(aspect, strict));
      tests += test(c, aspect, strict);
    }
    suites += fmt::format("  <testsuite name=\"{}\" {} skipped=\"{}\" time=\"{:.9f}\">\n{}  </testsuite>\n",
                          xml(c.label), counts.text(), counts.skipped, seconds_of(c.aspect("time")), tests);
  }
  return fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"minitaw compare\" {}>\n"
                     "{}</testsuites>\n",
                     all.text(), suites);
}

}  // namespace minitaw::app
