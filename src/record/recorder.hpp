// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "record/file.hpp"
#include "record/provenance.hpp"
#include "record/verdict.hpp"

namespace minitaw::record {
/// What a result file holds.
struct Results {
  std::vector<Row> rows;                          ///< of /runs
  std::vector<std::string> git_hashes{};          ///< [session]: of its program
  std::vector<std::vector<std::string>> links{};  ///< [session]: how they were shaped
  Asked asked{};                                  ///< by all sessions
  std::string stopped{};                          ///< why the last one ended before its cases
};

/// `path` is for messages. Throws InputError if the file is damaged.
Results read_results(hid_t file, const std::string& path);
/// Reads a file on disk. Throws InputError as load_file() does.
Results read_results(const std::string& path);

/// The result file of a sweep, held by one rank, complete on disk after every call.
class Recorder {
public:
  /// Creates the file, or opens it to go on with these cases. If a job died in one of them, that is
  /// a run of it. Throws InputError for a file that another program writes, that is damaged, of
  /// another format or schema, or of another content of the data file.
  Recorder(const std::string& path,
      Provenance session,
      Remarks remarks = {},
      const std::vector<Case>& cases = {});

  /// Throws InputError if another program has taken the file.
  void begin_case(const Case& c) { mark_.set(deck::identity(c)); }

  /// Adds a run, which is never changed again. Returns its row. A case that was skipped for a
  /// reason and still is gets no further row. Throws std::runtime_error, and the file stays, if the
  /// disk is full.
  Row append(const CaseResult& result, int repetition = 0);

  /// The session ends before its cases, for this reason.
  void stop(const std::string& why);

  /// No case runs any more.
  void finish() { mark_.remove(); }

  const std::vector<Row>& rows() const { return rows_; }

  /// Says so if other sources than this program's have measured a part of the file; else empty.
  const std::string& note() const { return note_; }

private:
  void begin();
  /// Returns whether this session asks for cases that no earlier one has asked for.
  bool resume(const std::vector<Case>& cases);
  void append_death(const std::vector<Case>& cases);
  int case_number(const std::string& identity) const;
  void write_session();
  void write_judgement();
  void save();

  std::string path_;
  Provenance provenance_;
  Remarks remarks_;
  RunningMark mark_;
  h5::Id file_;
  std::vector<Row> rows_;
  Asked asked_;          ///< by all sessions, this one included
  std::string stopped_;  ///< why this session ended before its cases
  std::string note_;
  int sessions_ = 0;      ///< in the file before this one
  bool written_ = false;  ///< this session is in the file
};
}  // namespace minitaw::record
