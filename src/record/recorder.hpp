#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "record/columns.hpp"
#include "record/disk.hpp"
#include "record/image.hpp"
#include "record/provenance.hpp"
#include "record/result.hpp"

namespace minitaw::record {

/// The result file of a sweep, held by one rank. After the constructor and after every append() the file on
/// disk is complete; a kill at any moment loses nothing that append() has returned for.
class Recorder {
public:
  /// Creates the file, or opens it to go on behind what is in it. Throws InputError for a file that is not a
  /// miniTaw result, is damaged, or has a newer schema, and for a folder that does not exist.
  Recorder(const std::string& path, Provenance session);

  /// Writes a case. A case of the same identity that had not ended ok is replaced. Returns the row of the
  /// summary. Throws std::runtime_error if the disk is full or another program changed the file; the file
  /// stays as it was.
  Row append(const CaseResult& result);

  /// Identities of the cases that ended ok: they need not run again.
  [[nodiscard]] std::set<std::string> finished() const;
  /// The summary, in file order.
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }
  /// What the user should know about a file that was begun earlier; one sentence each.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

private:
  void begin();
  void resume();
  void open_session();
  /// The row that this identity has or will get.
  [[nodiscard]] std::size_t index_of(const std::string& identity) const;
  void save();

  std::string path_;
  Provenance session_;
  Image image_;
  std::optional<FileState> state_;  ///< of the file as this recorder left it
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
  int session_number_ = -1;  ///< -1: nothing written in this session yet
};

/// The summary of a result file. Throws InputError as Recorder does.
[[nodiscard]] std::vector<Row> read_rows(const std::string& path);

}  // namespace minitaw::record
