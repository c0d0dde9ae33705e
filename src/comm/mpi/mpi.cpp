#include "comm/mpi/mpi.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <fmt/format.h>
#include <mpi.h>
#include <numeric>
#include <sstream>

#include "base/error.hpp"
#include "topology/system.hpp"

namespace minitaw::comm::mpi {

int rank_in(MPI_Comm world, const schedule::Program& program) {
  int rank = 0, ranks = 0;
  check(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(world, &ranks), "MPI_Comm_size");
  if (static_cast<std::size_t>(ranks) != program.ranks.size())
    throw LogicError(fmt::format("a program for {} ranks is executed by {}", program.ranks.size(), ranks));
  return rank;
}

namespace {

/// Words with one space between them.
std::string joined(const std::string& text) {
  std::istringstream words(text);
  std::string result;
  for (std::string word; words >> word;) result += (result.empty() ? "" : " ") + word;
  return result;
}

std::string without(std::string text, const std::string& word) {
  if (const std::size_t at = text.find(word); at != std::string::npos) text.erase(at, word.size());
  return text;
}

}  // namespace

std::vector<std::string> gather_texts(const std::string& mine, MPI_Comm comm) {
  const auto ranks = static_cast<std::size_t>(size_of(comm));
  const int size = static_cast<int>(mine.size());
  std::vector<int> sizes(ranks), starts(ranks);
  check(MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, comm), "gathering texts");
  std::exclusive_scan(sizes.begin(), sizes.end(), starts.begin(), 0);
  std::string all(static_cast<std::size_t>(starts.back() + sizes.back()), '\0');
  check(MPI_Allgatherv(mine.data(), size, MPI_CHAR, all.data(), sizes.data(), starts.data(), MPI_CHAR, comm),
        "gathering texts");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r)
    texts.push_back(all.substr(static_cast<std::size_t>(starts[r]), static_cast<std::size_t>(sizes[r])));
  return texts;
}

std::string library_line(const std::string& text) {
  std::istringstream lines(text);
  std::string first, device;
  std::getline(lines, first);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("MPICH Device:")) device = joined(line.substr(line.find(':') + 1));
  first.resize(std::min(first.size(), first.find(", package:")));
  first = without(joined(first), " Version:");
  return device.empty() ? first : first + ", device " + device;
}

std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  return library_line(std::string(text.data(), static_cast<std::size_t>(length)));
}

Environment::Environment(int& argc, char**& argv) : exceptions_(std::uncaught_exceptions()) {
  int offered = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &offered), "MPI_Init_thread");
  if (offered < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw InputError(
        "this MPI does not offer MPI_THREAD_MULTIPLE; run with an MPI built with thread support");
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks_), "MPI_Comm_size");
  try {
    topology::require_launched_together(ranks_);
  } catch (const InputError&) {
    MPI_Finalize();
    throw;
  }
}

Environment::~Environment() {
  if (std::uncaught_exceptions() > exceptions_) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
}

}  // namespace minitaw::comm::mpi
