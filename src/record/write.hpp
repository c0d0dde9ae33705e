#pragma once

#include <string>

#include "record/hdf5.hpp"
#include "record/provenance.hpp"
#include "record/result.hpp"

namespace minitaw::record {

/// "0007": the name of a case or session group.
[[nodiscard]] std::string numbered(int number);

/// Writes /provenance (docs/results.md) below `parent` under `name`.
void write_provenance(hid_t parent, const std::string& name, const Provenance& provenance);

/// Adds a line to the log of a provenance group.
void write_log_line(hid_t provenance, const std::string& line, hsize_t index);

/// Writes one case group below `cases`.
void write_case(hid_t cases, const CaseResult& result, int number, int session);

/// A row whose cells have the types of the columns.
[[nodiscard]] Row sample_row();

/// Creates the empty columns of /summary, and writes one row of it.
void make_summary(hid_t root);
void write_row(hid_t root, const Row& row, hsize_t index);

}  // namespace minitaw::record
