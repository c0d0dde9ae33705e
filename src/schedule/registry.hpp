#pragma once

#include <map>
#include <string>
#include <vector>

#include "schedule/program.hpp"

namespace minitaw::schedule {

/// "tawpipe:cco=off:prefetch=2" taken apart.
struct Spec {
  std::string name;
  std::map<std::string, std::string> options;
};
/// Throws InputError for an unknown schedule or option (naming the nearest known one) or a value that the option
/// does not take.
[[nodiscard]] Spec parse_spec(const std::string& text);
/// The spec in canonical form: options in alphabetical order, defaults left out.
[[nodiscard]] std::string to_text(const Spec& spec);

/// What a schedule is built for.
struct Request {
  Spec spec;
  topology::Groups groups{{1}};
  int micro_batches = 1;  ///< M of the step, all ranks together
  int layers = 1;
};

/// One option of a schedule, for parsing and help.
struct OptionDoc {
  std::string name;
  std::vector<std::string> values;  ///< allowed values, the default first; "1..8" is a range of integers
  std::string doc;
};

/// A schedule in the registry. Adding one: a file with its build function and a line in registry.cpp.
struct Entry {
  std::string name;
  std::string doc;
  std::vector<OptionDoc> options;
  Program (*build)(const Request& request);
};
[[nodiscard]] const std::vector<Entry>& registry();

/// Builds the program of a request. Throws InputError if the request does not fit (micro-batches not a multiple of
/// the ranks, fewer layers than shards, more than one rank for `serial`).
[[nodiscard]] Program build(const Request& request);

}  // namespace minitaw::schedule
