// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <csignal>
#include <gmock/gmock.h>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "fixtures.hpp"
#include "record/recorder.hpp"
#include "sample.hpp"
#include "this_run.hpp"

namespace minitaw::record {
namespace {
using test::refusal_of;
using testing::AllOf, testing::Each, testing::ElementsAre, testing::HasSubstr, testing::IsEmpty,
    testing::SizeIs;

class File : public test::InFolder {
protected:
  std::string file_ = path("r.h5");

  static Recorder open(const std::string& file) {
    return {file, sample_session(), sample_extensions()};
  }

  Recorder open() { return open(file_); }

  [[nodiscard]] std::vector<Row> rows() const { return read_contents(file_).rows; }

  [[nodiscard]] CaseResult stored(const std::string& file) const {
    return read_case(load_file(file), file, 0, 3);
  }

  [[nodiscard]] CaseResult stored() const { return stored(file_); }

  static std::string refusal(const std::string& file) {
    return refusal_of([&] { (void)open(file); });
  }

  /// What `show` has to say.
  static std::string read_refusal(const std::string& file) {
    return refusal_of([&] { (void)read_contents(file); });
  }

  [[nodiscard]] std::size_t files_in_folder() const {
    const std::filesystem::directory_iterator all(folder_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  /// The file after `change` was done to it, as another program might have left it, with a seal.
  std::string changed(const auto& change) {
    const h5::Id image = load_file(file_);
    change(image);
    replace_file(path("changed.h5"), bytes_of(image), state_of(path("changed.h5")));
    return path("changed.h5");
  }
};

void drop(hid_t file, const std::string& name) {
  h5::check(H5Ldelete(file, name.c_str(), H5P_DEFAULT), "delete " + name);
}

TEST_F(File, ReadsBackWhatWasWritten) {
  CaseResult r = sample_case();
  std::get<std::vector<double>>(r.find("energy")->values)[1] = std::nan("");
  const Row written = open().append(r), row = rows().at(0);
  for (std::size_t i = 0; i < row.columns.size(); ++i)
    EXPECT_EQ(row.columns[i].text(), written.columns[i].text()) << row.columns[i].name;
  EXPECT_EQ(row.text("ffn"), "7,8,9,10,11");
  EXPECT_TRUE(std::isnan(row.real("loss_error")));
  const CaseResult found = stored();
  EXPECT_EQ(found.seconds, r.seconds);
  EXPECT_EQ(std::tie(found.repetition, found.position), std::tie(r.repetition, r.position));
  EXPECT_EQ(found.begun.at(0) + found.ended.at(0), r.begun[0] + r.ended[0]);
  const h5::Id file = load_file(file_);
  for (const Dataset& dataset : r.found) {
    const std::string path = "cases/0000/" + dataset.path;
    std::visit(
        [&]<class T>(const std::vector<T>& values) {
          const h5::Array<T> there = h5::read<T>(file, path, dataset.shape.size());
          EXPECT_THAT(there.shape, testing::ElementsAreArray(dataset.shape)) << path;
          if constexpr (std::is_same_v<T, double>)
            EXPECT_THAT(there.values, testing::Pointwise(testing::NanSensitiveDoubleEq(), values))
                << path;
          else
            EXPECT_EQ(there.values, values) << path;
        },
        dataset.values);
  }
}

TEST_F(File, GoesOnBehindFinishedCasesAndReplacesThoseThatFailed) {
  CaseResult failed = sample_case("tawpipe");
  failed.status = Status::error;
  failed.reason = "a rather long reason that is not there afterwards";
  {
    Recorder first = open();
    first.append(failed);
    EXPECT_EQ(first.append(sample_case("ddp")).integer("case"), 1);
    EXPECT_EQ(files_in_folder(), 1U);
  }
  const std::string before = read(file_);
  Recorder second = open();
  EXPECT_EQ(read(file_), before) << "changed without a new case";
  EXPECT_TRUE(
      second.rows()[0].text("status") == "error" && second.rows()[1].text("status") == "ok");
  EXPECT_THAT(second.rows(),
      ElementsAre(testing::Not(testing::Truly(is_finished)), testing::Truly(is_finished)));
  EXPECT_EQ(second.note(), "") << "of the same sources";
  second.begin_case(sample_case("ddp").settings);
  EXPECT_EQ(open().interrupted(), second.rows()[1].text("identity"));
  second.append(sample_case("ddp"));  // of this session from here on
  const Row row = second.append(sample_case("tawpipe"));
  EXPECT_EQ(std::tuple(row.integer("case"), row.integer("session")), std::tuple(0, 1));
  EXPECT_EQ(row.integer("samples"), 4) << "none of those that failed";
  second.finish();
  EXPECT_EQ(open().interrupted(), "");
  ASSERT_THAT(rows(), SizeIs(2));
  EXPECT_EQ(rows()[0].text("status") + rows()[0].text("reason"), "ok");
  EXPECT_EQ(rows()[1].text("schedule"), "ddp");
  EXPECT_THAT(second.rows(), Each(testing::Truly(is_finished)));
}

TEST_F(File, OfACaseThatFailedBeforeItsBytesWereCountedHasNone) {
  CaseResult failed;
  failed.settings = sample_case().settings;
  failed.status = Status::error;
  open().append(failed);
  for (const char* name : {"cases/0000/bytes/planned", "cases/0000/bytes/counted"})
    EXPECT_THAT(h5::read<std::uint64_t>(load_file(file_), name, 3).shape, ElementsAre(0U, 0U, 5U));
}

TEST(Recorder, ACaseIsFinishedWithItsLastRepetition) {
  CaseResult r = sample_case();  // of four samples
  r.settings.steps = 2;
  EXPECT_EQ(repetitions_of(make_row(r)), 2);
  for (const int repeats : {1, 2, 3}) {
    r.settings.repeats = repeats;
    EXPECT_EQ(is_finished(make_row(r)), repeats < 3) << repeats;
  }
}

/// What only some repetitions have would be taken for what all have.
TEST_F(File, OfRepetitionsHasWhatInstrumentsFoundInEachOfThem) {
  for (const auto& [first, second] : {std::pair{true, true}, {true, false}, {false, true}}) {
    std::filesystem::remove(file_);
    Recorder recorder = open();
    for (const auto& [has, number] : {std::pair{first, 0}, {second, 1}}) {
      CaseResult r = sample_case();
      r.settings.repeats = 2;
      r.begun[0] += std::to_string(number);
      Dataset& energy = *r.find("energy");
      energy.values = has ? std::vector<double>{1.0 + number, 2, 3} : std::vector<double>{};
      energy.shape = {has ? 1UL : 0UL, has ? 3UL : 0UL};
      recorder.append(r, number);
    }
    const CaseResult found = stored();
    EXPECT_THAT(found.repetition, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
    EXPECT_THAT(found.seconds, SizeIs(8));
    EXPECT_THAT(found.begun, ElementsAre(testing::EndsWith("Z0"), testing::EndsWith("Z1")));
    EXPECT_THAT(found.ended, SizeIs(2));
    const h5::Id file = load_file(file_);
    const auto energy = h5::read<double>(file, "cases/0000/energy", 2);
    EXPECT_EQ(energy.values,
        first && second ? (std::vector<double>{1, 2, 3, 2, 2, 3}) : std::vector<double>{});
  }
}

TEST_F(File, OfSomethingElseIsRefusedAndKept) {
  (void)open(path("hollow"));
  file_ = path("hollow");
  const std::string hollow = changed([](hid_t file) { drop(file, "provenance"); });
  for (const auto& refuse : {refusal, read_refusal}) {
    for (const auto& [name, content] : {std::pair{"text", std::string("hello\n")},
             {"empty", ""},
             {"unsealed", read(hollow).substr(seal_size)}})
      EXPECT_THAT(refuse(write(name, content)), HasSubstr("not a miniTaw result")) << name;
    EXPECT_THAT(refuse(folder_.string()), HasSubstr("is not a file"));
    EXPECT_THAT(refuse(hollow), HasSubstr("is damaged"));
  }
  EXPECT_THAT(refusal(path("missing/r.h5")), HasSubstr("no folder"));
  EXPECT_THAT(read_refusal(path("missing.h5")), HasSubstr("No such file"));
  EXPECT_THAT(refusal(""), HasSubstr("not the name of a result file"));
  EXPECT_THAT(
      refusal("/proc/r.h5"), HasSubstr("/proc/r.h5 cannot be written"));  // not even for root
  EXPECT_EQ(read(path("text")), "hello\n");
  std::filesystem::create_symlink("nowhere.h5", path("link.h5"));
  EXPECT_THAT(refusal(path("link.h5")), HasSubstr("cannot be read"));
}

TEST_F(File, WhoseCaseIsNotWhatWasWrittenIsRefused) {
  open().append(sample_case());
  const auto complaint =
      [&](const std::string& name, const Values& values, const std::vector<hsize_t>& shape) {
        const std::string file = changed([&](hid_t root) {
          drop(root, "cases/0000/" + name);
          if (!shape.empty())
            h5::write(root, {"cases/0000/" + name, "1", "", values, shape});
        });
        return refusal_of([&] { (void)stored(file); });
      };
  for (const char* name : {"seconds", "repetition", "position"})
    EXPECT_THAT(complaint(name, {}, {}),
        AllOf(HasSubstr("is damaged"), HasSubstr("0000"), HasSubstr(name)));
  using Reals = std::vector<double>;
  using Integers = std::vector<std::int64_t>;
  EXPECT_THAT(complaint("seconds", Reals(8, 0.5), {4, 2}), HasSubstr("seconds has another shape"));
  EXPECT_THAT(complaint("seconds", Reals(12, 0.5), {12}), HasSubstr("dimensions"));
  EXPECT_THAT(complaint("seconds", Integers(12, 1), {4, 3}), HasSubstr("type"));
  const std::string energy = "cases/0000/energy";
  const std::string longer = changed([&](hid_t root) {
    drop(root, energy);
    h5::write(root, {energy, "J", "", Reals(6, 1), {2, 3}});
  });
  EXPECT_THAT(read_refusal(longer), HasSubstr(energy + " has the length 2"));
  EXPECT_THAT(
      complaint("repetition", Integers{0, 0, 0}, {3}), HasSubstr("seconds has another shape"));
}

TEST_F(File, ThatLacksAColumnIsRefused) {
  open().append(sample_case("ddp"));
  for (const char* name : {"seq", "mfu"}) {
    const std::string lacking =
        changed([&](hid_t root) { drop(root, fmt::format("summary/{}", name)); });
    EXPECT_THAT(read_refusal(lacking), AllOf(HasSubstr("is damaged"), HasSubstr(name)));
  }
}

/// As h5py leaves it where no more is asked for.
TEST_F(File, WhoseColumnsCannotGrowIsGoneOnWith) {
  open().append(sample_case("ddp"));
  const std::string other = changed([](hid_t root) {
    drop(root, "summary/seq");
    h5::write(root, {"summary/seq", "token", "case", std::vector<std::int64_t>{128}, {1}});
  });
  open(other).append(sample_case("tawpipe", 256));
  const std::vector<Row> rows = read_contents(other).rows;
  EXPECT_EQ(std::tuple(rows.at(0).integer("seq"), rows.at(1).integer("seq")), std::tuple(128, 256));
}

TEST_F(File, WithAStaleCopyIsCleanedAndAProtectedOneIsNotAddedTo) {
  open().append(sample_case());
  (void)write("r.h5.part", "left by a killed run");
  (void)open();
  EXPECT_EQ(files_in_folder(), 1U);
  ASSERT_EQ(::chmod(file_.c_str(), 0444), 0);
  EXPECT_THAT(refusal(file_), HasSubstr("write-protected"));
}

TEST_F(File, BehindALinkIsReplacedThere) {
  (void)open();
  std::filesystem::create_symlink("r.h5", path("link.h5"));
  open(path("link.h5")).append(sample_case());
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.h5")));
  EXPECT_THAT(rows(), SizeIs(1));
}

TEST_F(File, OnAFullDiskStaysAsItWas) {
  Recorder recorder = open();
  recorder.append(sample_case("ddp"));
  const std::string before = read(file_);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit whole{};
  getrlimit(RLIMIT_FSIZE, &whole);
  const rlimit half{
      before.size() / 2, whole.rlim_max};  // no file may grow beyond this: a disk that fills up
  setrlimit(RLIMIT_FSIZE, &half);
  EXPECT_THAT([&] { recorder.append(sample_case("tawpipe")); },
      testing::ThrowsMessage<std::runtime_error>(HasSubstr("cannot be written")));
  setrlimit(RLIMIT_FSIZE, &whole);
  EXPECT_EQ(read(file_), before);
  EXPECT_EQ(files_in_folder(), 1U);
}

/// How many cases were appended to a file, by their ticks. From the 20th on, a case replaces an
/// earlier one.
constexpr int different = 20;

int appended(const std::vector<Row>& rows) {
  std::int64_t last = 0;
  for (const Row& row : rows)
    last = std::max(last, row.integer("ticks"));
  return static_cast<int>(last);
}

/// Appends cases for ever and tells through the pipe how many are done. Never returns.
[[noreturn]] void append_for_ever(const std::string& file, int pipe) {
  try {
    Recorder recorder(file, sample_session());
    for (int done = appended(recorder.rows());; ++done) {
      CaseResult next = sample_case("tawpipe", 1 + done % different);
      const int count = next.ticks = done + 1;
      recorder.append(next);
      if (::write(pipe, &count, sizeof count) != sizeof count)
        ::_exit(3);
    }
  } catch (...) {
    ::_exit(2);
  }
}

/// Whoever reads meanwhile sees whole files, too.
TEST_F(File, OfARunThatWasKilledAtAnyMomentHasAllThatWasReported) {
  using Clock = std::chrono::steady_clock;
  std::mt19937 random(test::seed());
  (void)open();
  EXPECT_THAT(rows(), IsEmpty());
  for (int round = 0; round < (test::sanitized ? 10 : 25); ++round) {
    int ends[2], reported = 0;
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0)
      append_for_ever(file_, ends[1]);
    ::close(ends[1]);
    const auto next = [&] {
      return ::read(ends[0], &reported, sizeof reported) == sizeof reported;
    };
    ASSERT_TRUE(next());
    const auto begin = Clock::now();
    EXPECT_NO_THROW((void)read_contents(file_));
    ASSERT_TRUE(next());
    const auto append = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
    ::usleep(static_cast<useconds_t>(random() % static_cast<unsigned>(2 * append.count() + 2)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << WEXITSTATUS(status);
    while (next()) {}
    ::close(ends[0]);
    const std::vector<Row> found = rows();
    // Of a case that was finished but not yet reported the file may know as well.
    const int last = appended(found);
    ASSERT_GE(last, reported) << "round " << round;
    ASSERT_LE(last, reported + 1) << "round " << round;
    ASSERT_THAT(found, SizeIs(std::min(last, different))) << "round " << round;
    for (int i = 0; i < static_cast<int>(found.size()); ++i) {
      const Row& row = found[static_cast<std::size_t>(i)];
      ASSERT_EQ(row.integer("seq"), i + 1);
      ASSERT_EQ(row.integer("ticks"), i + 1 + (last - 1 - i) / different * different)
          << "the last that was appended";
    }
  }
}
}  // namespace
}  // namespace minitaw::record
