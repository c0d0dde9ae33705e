#include "base/error.hpp"
#include "record/archive.hpp"

/// In place of archive.cpp where CMake found no libarchive.
namespace minitaw::record {

namespace {

[[noreturn]] void refuse() { throw InputError(why_no_archives()); }

}  // namespace

std::string why_no_archives() {
  return "this minitaw was built without libarchive, which bundles need: install it (Debian: libarchive-dev) "
         "and build again with -DMINITAW_BUNDLE=ON";
}

std::string pack(std::vector<Member>) { refuse(); }
std::vector<Member> unpack(std::string_view, const std::string&, std::size_t) { refuse(); }
std::string sha256(std::string_view) { refuse(); }

}  // namespace minitaw::record
