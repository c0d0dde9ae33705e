#include "libraries.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <hdf5.h>

#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "cli/cli11.hpp"
#include "comm/mpi/texts.hpp"
#include "deck/source.hpp"
#include "engine/make_transport.hpp"
#include "kernels/kernels.hpp"
#include "topology/devices.hpp"
#include "topology/nvml.hpp"

namespace minitaw::app {
namespace {

/// File name of the library that a function of this program comes from: its vendor, where nothing else says.
template <class Function>
std::string file_of(Function* function) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(function), &info) == 0 || info.dli_fname == nullptr) return "unknown";
  const std::string path = info.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) return "unknown";
  return fmt::format("{}.{}.{}", major, minor, release);
}

/// Of a library that another one may have brought along.
std::string zlib_version() {
  const auto ask = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "zlibVersion"));
  return ask == nullptr ? "" : ask();
}

class Texts {
public:
  /// Nothing for an empty version: it is not there.
  void add(const std::string& name, const std::string& version) {
    if (!version.empty()) texts_.push_back(fmt::format("{} {}", name, version));
  }
  [[nodiscard]] std::vector<std::string> take() { return std::move(texts_); }

private:
  std::vector<std::string> texts_;
};

void add_language(Texts& texts) {
  texts.add("C library", fmt::format("glibc {}", gnu_get_libc_version()));
#if defined(_GLIBCXX_RELEASE)
  texts.add("C++ library", fmt::format("libstdc++ {}", _GLIBCXX_RELEASE));
#elif defined(_LIBCPP_VERSION)
  texts.add("C++ library", fmt::format("libc++ {}", _LIBCPP_VERSION));
#endif
#if defined(_OPENMP)
  texts.add("OpenMP", fmt::format("{} ({})", _OPENMP, file_of(&omp_get_max_threads)));
#endif
}

void add_tools(Texts& texts) {
  texts.add("HDF5", hdf5_version());
  texts.add("zlib", zlib_version());
  texts.add("fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  texts.add("toml++", deck::toml_version());
  texts.add("CLI11", CLI11_VERSION);
  texts.add("nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                         NLOHMANN_JSON_VERSION_PATCH));
}

void add_devices(Texts& texts) {
  texts.add("CUDA runtime", topology::runtime_version());
  texts.add("driver", topology::driver_version());
  texts.add("NCCL", engine::nccl_version());
  texts.add("NVML", topology::runtime_version().empty() ? "" : nvml::library_version());
}

}  // namespace

std::vector<std::string> library_texts() {
  Texts texts;
  texts.add("Kokkos", kokkos_version());
  texts.add("MPI", comm::mpi::library_version());
  for (const auto& [name, version] : kernels::library_versions()) texts.add(name, version);
  add_devices(texts);
  add_language(texts);
  add_tools(texts);
  return texts.take();
}

std::string kokkos_version() {
  return fmt::format("{}.{}.{} {}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100,
                     Kokkos::DefaultExecutionSpace::name());
}

}  // namespace minitaw::app
