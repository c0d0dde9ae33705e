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
using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty, testing::SizeIs;

class File : public test::InFolder {
protected:
  std::string file_ = path("r.h5");

  static Recorder open(const std::string& file) {
    return {file, sample_session(), sample_remarks()};
  }

  Recorder open() { return open(file_); }

  std::vector<Row> rows() const { return read_results(file_).rows; }
};

CaseResult failed_case() {
  CaseResult failed;
  failed.asked = sample_case().asked;
  failed.status = Status::error;
  failed.reason = "a reason";
  return failed;
}

TEST_F(File, ReadsBackWhatWasWritten) {
  const Row written = open().append(sample_case(), 1), row = rows().at(0);
  for (std::size_t i = 0; i < columns().size(); ++i)
    EXPECT_EQ(to_text(row.cells[i]), to_text(written.cells[i])) << columns()[i].field.name;
  EXPECT_EQ(row.integer("repetition"), 1);
}

TEST_F(File, GrowsByARowForEachRunOfEachSession) {
  {
    Recorder first = open();
    first.begin_case(sample_case("ddp").asked);
    EXPECT_THAT(read(path("r.h5.running")), HasSubstr(deck::identity(sample_case("ddp").asked)));
    first.append(failed_case());
    EXPECT_EQ(first.append(sample_case("ddp")).integer("case"), 1);
  }
  EXPECT_EQ(std::ranges::distance(std::filesystem::directory_iterator(folder_)), 1);
  const std::string before = read(file_);
  {
    Recorder second = open();
    EXPECT_EQ(read(file_), before) << "changed without a new run";
    EXPECT_EQ(second.note(), "") << "of the same sources";
    const Row row = second.append(sample_case("tawpipe"));
    EXPECT_EQ(std::tuple(row.integer("case"), row.integer("session")), std::tuple(0, 1));
    EXPECT_EQ(second.append(sample_case("fsdp")).integer("case"), 2) << "not that after the last";
  }
  EXPECT_THAT(
      list_of(rows(), [](const Row& row) { return row.integer("case"); }), ElementsAre(0, 1, 0, 2));
  EXPECT_EQ(rows()[0].text("status"), "error");
}

TEST_F(File, ThatKnowsThatACaseIsSkippedGetsNoFurtherRow) {
  CaseResult skipped = failed_case();
  skipped.status = Status::skipped;
  Recorder recorder = open();
  for (const char* reason : {"needs 2", "needs 2", "needs 3"}) {
    skipped.reason = reason;
    recorder.append(skipped);
  }
  EXPECT_THAT(recorder.rows(), SizeIs(2));
  recorder.append(sample_case());
  recorder.append(skipped);
  EXPECT_THAT(recorder.rows(), SizeIs(4)) << "it has run since";
}

TEST_F(File, HasARunOfTheCaseInWhichAJobDied) {
  const CaseResult done = sample_case("ddp");
  open().append(done);
  const auto resumed = [&](const std::string& running, const std::vector<Case>& cases) {
    (void)write("r.h5.running", "cn7 - 1 1\n" + running + "\n");
    const auto now = std::filesystem::file_time_type::clock::now();
    std::filesystem::last_write_time(path("r.h5.running"), now - std::chrono::hours(1));
    return Recorder(file_, sample_session(), {}, cases).rows();
  };
  const std::string running = deck::identity(done.asked);
  EXPECT_THAT(resumed("", {done.asked}), SizeIs(1)) << "no case was running";
  EXPECT_THAT(resumed(running, {sample_case("fsdp").asked}), SizeIs(1)) << "of another deck";
  const Row died = resumed(running, {sample_case("fsdp").asked, done.asked}).at(1);
  EXPECT_EQ(died.text("identity") + died.text("status"), running + "error");
  EXPECT_THAT(died.text("reason"), testing::StartsWith(job_died));
  EXPECT_EQ(died.integer("repetition"), 1) << "the one that was finished stays";
  EXPECT_EQ(resumed(running, {done.asked}).at(2).integer("repetition"), 1) << "again the same";
}

TEST_F(File, ThatWasFinishedLeavesNoCaseRunning) {
  Recorder recorder = open();
  recorder.begin_case(sample_case().asked);
  recorder.append(sample_case());
  EXPECT_THAT(read(path("r.h5.running")), testing::Not(HasSubstr("schedule=")));
}

/// Whichever settings the cases have.
TEST_F(File, OfAnotherContentOfTheDataFileIsRefused) {
  const auto asking = [&](const std::string& data, const std::string& sum, int seq) {
    Case c = sample_case("ddp", seq).asked;
    c.data = data;
    c.data_sum = sum;
    Provenance session = sample_session();
    session["cases"] = list_data({deck::identity(c)});
    return refusal_of([&] { Recorder(file_, session, {}, {c}); });
  };
  EXPECT_EQ(asking("a.txt", "12ab", 8), "");
  EXPECT_EQ(asking("a.txt", "12ab", 9), "");
  EXPECT_EQ(asking("b.txt", "34cd", 9), "");
  EXPECT_EQ(asking("synthetic", "", 9), "");
  const std::string before = read(file_);
  EXPECT_THAT(asking("a.txt", "2ab", 10), test::Says({"r.h5", "a.txt", "2ab", "-o"}));
  EXPECT_EQ(read(file_), before);
}

/// Also before the first run ends, and where a later session asks for more.
TEST_F(File, SaysHowManyOfAllCasesThatWereAskedForAreUnfinished) {
  const auto asking = [&](const std::vector<std::string>& schedules) {
    Provenance session = sample_session();
    session["cases"] = list_data(list_of(schedules,
        [](const std::string& name) { return deck::identity(sample_case(name).asked); }));
    return Recorder(file_, session);
  };
  const auto expect = [&](const std::string& begin) {
    const h5::Id file = load_file(file_), runs = h5::open_group(file, "runs"),
                 kept(H5Aopen(runs, "verdict", H5P_DEFAULT), H5Aclose, "open the verdict"),
                 type(H5Aget_type(kept), H5Tclose, "read its type");
    char* text = nullptr;
    ASSERT_GE(H5Aread(kept, type, &text), 0);
    const Results found = read_results(file_);
    EXPECT_EQ(verdict(found.rows, found.asked, found.stopped), text);
    EXPECT_THAT(text, testing::StartsWith(begin));
    H5free_memory(text);
  };
  {
    Recorder first = asking({"tawpipe", "ddp"});
    expect("INVALID: unfinished cases: 2 (");
    first.append(sample_case("ddp"));
    expect("INVALID: unfinished cases: 1 (");
    first.stop("stopped by SIGHUP");
    expect("INVALID: stopped by SIGHUP, unfinished cases: 1 (");
    first.append(sample_case("tawpipe"));
    expect("VALID");
  }
  (void)asking({"ddp", "fsdp"});
  expect("INVALID: unfinished cases: 1 (");
  asking({"ddp"}).append(sample_case("ddp"));
  expect("INVALID: unfinished cases: 1 (");
  asking({"ddp"}).append(sample_case("fsdp"));
  expect("VALID");
}

/// The last row of a repetition counts.
TEST(CaseRuns, HaveARowOfEachRepetition) {
  CaseResult r = sample_case(), failed = failed_case();
  r.asked.repeats = failed.asked.repeats = 2;
  const Row first = make_row(r, {7, 0}), bad = make_row(failed, {7, 1}), good = make_row(r, {7, 1});
  const std::vector<Row> half = {first}, broken = {good, bad, first}, whole = {bad, first, good};
  EXPECT_FALSE(by_case(half).at(0).has_ended());
  EXPECT_TRUE(by_case(broken).at(0).has_ended()) << "none comes after a failure";
  EXPECT_THAT(by_case(whole).at(0).runs, ElementsAre(&whole[1], &whole[2]));
  EXPECT_TRUE(by_case(whole)[0].has_ended());
}

/// tests/python/test_hostile.py has more that is refused, by the same function.
TEST_F(File, OfSomethingElseIsRefusedAndKept) {
  std::filesystem::create_symlink("nowhere.h5", path("link.h5"));
  const std::string text = write("text", "hello\n");
  for (const auto& [file, words] : {std::pair{text, "not a miniTaw result"},
           {folder_.string(), "is not a file"},
           {path("link.h5"), "cannot be read"},
           {"/proc/r.h5", "/proc/r.h5 cannot be written"},  // not even for root
           {"", "not the name of a result file"}})
    EXPECT_THAT(refusal_of([&] { (void)open(file); }), HasSubstr(words));
  EXPECT_EQ(read(text), "hello\n");
}

TEST_F(File, ThatIsProtectedIsNotAddedTo) {
  (void)open();
  ASSERT_EQ(::chmod(file_.c_str(), 0444), 0);
  EXPECT_THAT(refusal_of([&] { (void)open(); }), HasSubstr("write-protected"));
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
  // No file may grow beyond this: a disk that fills up.
  const rlimit half{before.size() / 2, whole.rlim_max};
  setrlimit(RLIMIT_FSIZE, &half);
  EXPECT_THAT([&] { recorder.append(sample_case("tawpipe")); },
      testing::ThrowsMessage<std::runtime_error>(HasSubstr("cannot be written")));
  setrlimit(RLIMIT_FSIZE, &whole);
  EXPECT_EQ(read(file_), before);
  EXPECT_FALSE(std::filesystem::exists(path("r.h5.part")));
}

/// Appends runs for ever and tells through the pipe how many are done. Never returns.
[[noreturn]] void append_for_ever(const std::string& file, int pipe) {
  try {
    Recorder recorder(file, sample_session());
    for (int count = 1 + static_cast<int>(recorder.rows().size());; ++count) {
      CaseResult next = sample_case("tawpipe", 1 + count % 20);
      next.ticks = count;
      recorder.append(next, count / 20);
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
  for (int round = 0; round < 8; ++round) {
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
    EXPECT_NO_THROW((void)read_results(file_));
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
    // Of a run that was finished but not yet reported the file may know as well.
    ASSERT_THAT(std::ssize(found), testing::AnyOf(reported, reported + 1)) << "round " << round;
    for (int i = 0; i < std::ssize(found); ++i)
      ASSERT_EQ(found[i].integer("ticks"), i + 1);
  }
}
}  // namespace
}  // namespace minitaw::record
