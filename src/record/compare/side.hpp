#pragma once

#include <string>
#include <vector>

#include "record/provenance.hpp"
#include "record/read_case.hpp"

namespace minitaw::record::compare {

/// A result file in memory.
struct File {
  std::string path;
  std::vector<StoredCase> cases;
  std::vector<Provenance> sessions;

  /// Of the session that measured the case.
  [[nodiscard]] const Provenance& provenance_of(const StoredCase& stored) const;
};

/// What one build measured, in one file or in several that repeat each other.
using Side = std::vector<File>;

/// Throws InputError for a file that is no result, damaged, of a newer schema, or without a case.
[[nodiscard]] Side read_side(const std::vector<std::string>& paths);

/// Settings that must agree, and of provenance what must: names that --allow takes.
[[nodiscard]] const std::vector<std::string>& what_matters();

/// The value of one of these, as text; empty: not known. `stored` is one of the cases of `file`.
[[nodiscard]] std::string value_of(const std::string& name, const File& file, const StoredCase& stored);

/// Cases with the same key are the same apart from what_matters(), and from steps, warm-up and repetitions,
/// which say only how well they are measured.
[[nodiscard]] std::string key_of(const Row& row);

/// "tawpipe, 2 ranks in groups 1+1, 64 tokens, B 1, M 4"
[[nodiscard]] std::string label_of(const Row& row);

}  // namespace minitaw::record::compare
