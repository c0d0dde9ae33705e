#include <fmt/format.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>

#include "base/error.hpp"
#include "mutate.hpp"
#include "raw.hpp"
#include "record/read.hpp"
#include "record/read_case.hpp"
#include "record/recorder.hpp"
#include "record/table.hpp"
#include "record/timeline.hpp"
#include "record/verdict.hpp"
#include "sample.hpp"
#include "trace/write.hpp"

/// record_fuzz FOLDER COUNT SEED FILE...: gives COUNT damaged copies of a result file of this schema, made in
/// the folder, and of the old ones named, to everything that reads them. Each reader has to accept what it
/// gets, or to say in one sentence that it does not; anything else, a crash or more than five minutes
/// included, leaves the copy in the folder and exit code 1. SEED 0: a random one.
///
/// A fifth of the copies has a seal that is right for the damaged bytes. Nothing but intent makes such a
/// file. `run`, which has no child read first, gives it to HDF5 as it is; what comes of that is tried in a
/// child here, and the ends that HDF5 does not survive are counted.
namespace minitaw::record {
namespace {

namespace fs = std::filesystem;

/// Also of a packed file.
Content read_packed(const std::string& path) {
  const gzFile file = ::gzopen(path.c_str(), "rb");
  Content content(std::size_t{16} << 20);
  const int size =
      file == nullptr ? -1 : ::gzread(file, content.data(), static_cast<unsigned>(content.size()));
  if (file != nullptr) ::gzclose(file);
  if (size <= 0) throw std::runtime_error(path + " cannot be read");
  content.resize(static_cast<std::size_t>(size));
  return content;
}

Content fresh_sample(const std::string& path) {
  Recorder recorder(path, {});
  CaseResult drawn = sample_case("tawpipe", 128);
  drawn.timeline = sample_timeline();
  recorder.append(drawn);
  CaseResult failed;
  failed.settings = sample_case("ddp", 256).settings;
  failed.status = Status::error;
  recorder.append(failed);
  return read_file(path);
}

/// A sentence that is one line.
void require_sentence(const std::string& text) {
  if (text.empty() || text.find('\n') != std::string::npos)
    throw std::logic_error(fmt::format("this is no sentence: \"{}\"", text));
}

/// True if `read` accepts the file.
template <class Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const InputError& error) {
    require_sentence(error.what());
    return false;
  }
}

void read_table(const Image& image, const std::string& path) {
  const std::vector<Row> rows = read_summary(image, path);
  std::string text = settings_text(rows) + closing_text(rows) + to_csv(rows) + to_json(rows);
  for (const Row& row : rows) text += Table(rows).row(row);
}

void draw_timelines(const std::string& path) {
  for (const int number : cases_with_timeline(path)) {
    const trace::Timeline timeline = read_timeline(path, number);
    (void)trace::to_svg({&timeline, 1});
    (void)trace::to_chrome_trace({&timeline, 1});
  }
}

void go_on(const std::string& path) { (void)Recorder(path, {}).rows(); }

/// Gives the file to everything that reads it in a child first; how many accept it. All begin with
/// Image::load(), which has its price: it is asked once where that is enough.
int read_by_all(const std::string& path) {
  std::optional<Image> image;
  if (!accepts([&] { image.emplace(Image::load(path)); })) return 0;
  int accepted = 0;
  accepted += accepts([&] { read_table(*image, path); }) ? 1 : 0;
  accepted += accepts([&] { (void)read_cases(*image, path); }) ? 1 : 0;
  accepted += accepts([&] { draw_timelines(path); }) ? 1 : 0;
  return accepted;
}

struct Tally {
  int accepted = 0, refused = 0;
  std::map<int, int> deaths = {};  ///< by signal; 0: the sanitizer ended it

  void count(bool accepts) { (accepts ? accepted : refused) += 1; }
  [[nodiscard]] std::string text() const {
    std::string all = fmt::format("{} accepted, {} refused", accepted, refused);
    for (const auto& [signal, count] : deaths)
      all += fmt::format(", {} ended by {}", count, signal == 0 ? "the sanitizer" : ::strsignal(signal));
    return all;
  }
};

constexpr int found_wrong = 99, is_refused = 100, is_accepted = 101;  // of the child; others are not ours

[[noreturn]] void go_on_in_child(const std::string& path) {
  const itimerval seconds{{}, {2, 0}};
  ::setitimer(ITIMER_PROF, &seconds, nullptr);
  try {
    ::_exit(accepts([&] { go_on(path); }) ? is_accepted : is_refused);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", path, error.what());
  }
  ::_exit(found_wrong);
}

/// False if the recorder did what it may not.
bool survive(const std::string& path, Tally& tally) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) go_on_in_child(path);
  int status = 0;
  ::waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (WIFSIGNALED(status)) ++tally.deaths[WTERMSIG(status)];
  else if (code == is_accepted || code == is_refused) tally.count(code == is_accepted);
  else if (code != found_wrong) ++tally.deaths[0];
  return code != found_wrong;
}

class Fuzz {
public:
  Fuzz(std::string folder, std::uint64_t seed, const std::vector<std::string>& old)
      : folder_(std::move(folder)), mutate_(seed) {
    fs::create_directories(folder_);
    fs::remove(folder_ + "/sample.h5");
    files_.push_back(fresh_sample(folder_ + "/sample.h5"));
    for (const std::string& path : old) files_.push_back(read_packed(path));
    for (const Content& file : files_) require_readable(file);
  }

  bool run(int count) {
    for (int i = 1; i <= count; ++i) {
      if (!(i % 5 == 0 ? read_resealed() : read_damaged())) return false;
      if (i % 1000 == 0 || i == count) report(i);
    }
    return true;
  }

private:
  void put(const Content& file) {
    std::ofstream(copy_, std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  }

  void require_readable(const Content& file) {
    put(file);
    if (read_by_all(copy_) != 3) throw std::runtime_error("a sound file is not accepted");
  }

  /// As often of this schema as of all older ones.
  const Content& any() { return files_[mutate_.below(2) * mutate_.below(files_.size())]; }

  void count(Tally& tally) {
    ::alarm(300);
    tally.count(read_by_all(copy_) > 0);
    ::alarm(0);
  }

  bool read_damaged() {
    put(mutate_(any(), any()));
    count(damaged_);
    return !accepts([&] { go_on(copy_); }) || copy_is_sound();
  }

  /// Nothing but the sample as it was may be added to.
  bool copy_is_sound() const {
    if (read_file(copy_) == files_.front()) return true;
    fmt::print(stderr, "{}: may be added to\n", copy_);
    return false;
  }

  bool read_resealed() {
    const Content& sample = files_.front();
    Content raw(sample.begin() + seal_size, sample.end());
    raw = mutate_(std::move(raw), any());
    put(sealed(raw, schema_version));
    count(resealed_);
    return survive(copy_, added_to_);
  }

  void report(int done) const {
    fmt::print("{} files; damaged: {}; sealed again: {}; sealed again, by run: {}\n", done, damaged_.text(),
               resealed_.text(), added_to_.text());
    std::fflush(stdout);
  }

  std::string folder_, copy_ = folder_ + "/copy.h5";
  Mutator mutate_;
  std::vector<Content> files_;
  Tally damaged_, resealed_, added_to_;
};

int fuzz(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string folder = argv[1];
  std::uint64_t seed = std::strtoull(argv[3], nullptr, 10);
  if (seed == 0) seed = std::random_device{}();
  fmt::print("seed {}\n", seed);
  std::fflush(stdout);
  return Fuzz(folder, seed, {argv + 4, argv + argc}).run(std::atoi(argv[2])) ? 0 : 1;
}

}  // namespace
}  // namespace minitaw::record

int main(int argc, char** argv) {
  int code = 1;
  try {
    code = minitaw::record::fuzz(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(code);  // what HDF5 itself loses of its memory over a damaged file is not ours to report
}
