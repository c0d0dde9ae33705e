#pragma once

#include <fmt/format.h>

#include <string>

#include "raw.hpp"
#include "record/columns.hpp"
#include "record/disk.hpp"
#include "record/image.hpp"

namespace minitaw::record {

/// Removes what schema 4 brought to the cases.
inline void forget_repetitions(hid_t root) {
  const h5::Id cases = h5::open_group(root, "cases");
  for (int number = 0; h5::exists(cases.get(), fmt::format("{:04}", number)); ++number) {
    const h5::Id group = h5::open_group(cases.get(), fmt::format("{:04}", number));
    for (const char* name : {"repetition", "position", "device", "counters"})
      h5::check(H5Ldelete(group.get(), name, H5P_DEFAULT), "delete a dataset");
  }
}

/// The file as a program of that schema version would have left it, as far as summary and samples go.
inline void make_older(const std::string& from, const std::string& to, std::int64_t version) {
  const Image image = Image::load(from);
  {
    const h5::Id summary = h5::open_group(image.root(), "summary");
    for (const Column& column : columns())
      if (column.since > version)
        h5::check(H5Ldelete(summary.get(), column.name.c_str(), H5P_DEFAULT), "delete a column");
    if (version < 4) forget_repetitions(image.root());
    set_schema(image, version);
  }
  replace_file(to, version < first_sealed_schema ? raw_bytes(image) : image.bytes());
}

}  // namespace minitaw::record
