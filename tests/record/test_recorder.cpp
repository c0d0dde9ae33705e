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

  template <class T>
  [[nodiscard]] h5::Array<T> stored(const std::string& name, std::size_t dimensions) const {
    return h5::read<T>(load_file(file_), "cases/0000/" + name, dimensions);
  }

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
    replace_file(path("changed.h5"), bytes_of(image));
    return path("changed.h5");
  }
};

void drop(hid_t file, const std::string& name) {
  h5::check(H5Ldelete(file, name.c_str(), H5P_DEFAULT), "delete " + name);
}

TEST_F(File, ReadsBackWhatWasWritten) {
  CaseResult r = sample_case();
  const Row written = open().append(r), row = rows().at(0);
  for (std::size_t i = 0; i < row.columns.size(); ++i)
    EXPECT_EQ(row.columns[i].text(), written.columns[i].text()) << row.columns[i].name;
  EXPECT_EQ(row.integer("ffn"), 9);
  EXPECT_TRUE(std::isnan(row.real("loss_error")));
  EXPECT_THAT(stored<double>("seconds", 2).shape, ElementsAre(4, 3));
  EXPECT_EQ(stored<double>("seconds", 2).values[4], 1.25);
  EXPECT_THAT(stored<std::int64_t>("repetition", 1).values, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(stored<std::int64_t>("position", 1).values, ElementsAre(3));
  EXPECT_EQ(stored<std::string>("window/begin", 1).values, r.begun);
  EXPECT_EQ(stored<std::string>("window/end", 1).values, r.ended);
}

TEST_F(File, GoesOnBehindFinishedCasesAndReplacesThoseThatFailed) {
  CaseResult failed = sample_case("tawpipe");
  failed.status = Status::error;
  failed.reason = "a rather long reason that is not there afterwards";
  {
    Recorder first = open();
    first.append(failed);
    EXPECT_EQ(first.append(sample_case("ddp")).integer("case"), 1);
  }
  EXPECT_EQ(files_in_folder(), 1U);
  const std::string before = read(file_);
  {
    Recorder second = open();
    EXPECT_EQ(read(file_), before) << "changed without a new case";
    EXPECT_TRUE(
        second.rows()[0].text("status") == "error" && second.rows()[1].text("status") == "ok");
    EXPECT_THAT(second.rows(),
        ElementsAre(testing::Not(testing::Truly(is_finished)), testing::Truly(is_finished)));
    EXPECT_EQ(second.note(), "") << "of the same sources";
    second.append(sample_case("ddp"));  // of this session from here on
    const Row row = second.append(sample_case("tawpipe"));
    EXPECT_EQ(std::tuple(row.integer("case"), row.integer("session")), std::tuple(0, 1));
    EXPECT_EQ(row.integer("samples"), 4) << "none of those that failed";
    EXPECT_THAT(second.rows(), Each(testing::Truly(is_finished)));
  }
  ASSERT_THAT(rows(), SizeIs(2));
  EXPECT_EQ(rows()[0].text("status") + rows()[0].text("reason"), "ok");
  EXPECT_EQ(rows()[1].text("schedule"), "ddp");
}

TEST_F(File, OfAProgramThatDiedNamesTheCaseThatRan) {
  const Case running = sample_case("ddp").settings;
  const pid_t child = ::fork();
  if (child == 0) {
    const Recorder recorder = open();
    recorder.begin_case(running);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(open().interrupted(), deck::identity(running));
  EXPECT_EQ(open().interrupted(), "");
}

TEST_F(File, OfACaseThatFailedBeforeItsBytesWereCountedHasNone) {
  CaseResult failed;
  failed.settings = sample_case().settings;
  failed.status = Status::error;
  open().append(failed);
  for (const char* name : {"cases/0000/bytes/planned", "cases/0000/bytes/counted"})
    EXPECT_THAT(h5::read<std::int64_t>(load_file(file_), name, 3).shape, ElementsAre(0U, 0U, 5U));
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
TEST_F(File, OfRepetitionsHasWhatWasFoundInEachOfThem) {
  for (const auto& [first, second] : {std::pair{true, true}, {true, false}, {false, true}}) {
    std::filesystem::remove(file_);
    Recorder recorder = open();
    for (const auto& [has, number] : {std::pair{first, 0}, {second, 1}}) {
      CaseResult r = sample_case();
      r.settings.repeats = 2;
      r.begun[0] += std::to_string(number);
      if (!has)
        r.found.clear();
      recorder.append(r, number);
    }
    EXPECT_THAT(stored<std::int64_t>("repetition", 1).values, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
    EXPECT_THAT(stored<double>("seconds", 2).shape, ElementsAre(8, 3));
    EXPECT_EQ(stored<double>("seconds", 2).values[13], 0.25);
    EXPECT_THAT(stored<std::string>("window/begin", 1).values,
        ElementsAre(testing::EndsWith("Z0"), testing::EndsWith("Z1")));
    EXPECT_THAT(stored<std::string>("window/end", 1).values, SizeIs(2));
    EXPECT_THAT(rows().at(0).real("energy"),
        testing::NanSensitiveDoubleEq(first && second ? 1200 : std::nan("")));
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

/// What another repetition of the case would be joined to.
TEST_F(File, WhoseCaseLacksWhatARepetitionNeedsIsRefused) {
  open().append(sample_case());
  const auto complaint = [&](const std::string& name, const Dataset& other) {
    const std::string file = changed([&](hid_t root) {
      drop(root, "cases/0000/" + name);
      if (!other.path.empty())
        h5::write(root, other);
    });
    return refusal_of([&] { open(file).append(sample_case(), 1); });
  };
  for (const std::string name : {"seconds", "repetition", "position"})
    EXPECT_THAT(complaint(name, {}), AllOf(HasSubstr("is damaged"), HasSubstr("0000/" + name)));
  const std::string seconds = "cases/0000/seconds";
  EXPECT_THAT(complaint("seconds", {seconds, "s", "", std::vector<double>(12, 0.5), {12}}),
      HasSubstr("dimensions"));
  EXPECT_THAT(complaint("seconds", {seconds, "s", "", std::vector<std::int64_t>(12, 1), {4, 3}}),
      HasSubstr("type"));
}

TEST_F(File, WhoseColumnsAreNotThoseOfTheProgramIsRefused) {
  open().append(sample_case("ddp"));
  const std::vector<std::int64_t> two = {128, 256};
  for (const auto& other : {Dataset{},
           {"summary/seq", "token", "case", two, {2}},
           {"summary/seq", "token", "case", std::vector<double>{128}, {1}}}) {
    const std::string file = changed([&](hid_t root) {
      drop(root, "summary/seq");
      if (!other.path.empty())
        h5::write(root, other);
    });
    for (const auto& refuse : {refusal, read_refusal})
      EXPECT_THAT(refuse(file), AllOf(HasSubstr("is damaged"), HasSubstr("summary/seq")));
  }
}

TEST_F(File, ThatLeadsElsewhereOrClaimsMoreThanItHoldsIsRefused) {
  open().append(sample_case("ddp"));
  const h5::Id options(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "create options"),
      chunks(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "create options"),
      filter(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "create options");
  const hsize_t huge = hsize_t{1} << 31, small = 4;
  const h5::Id claimed(H5Screate_simple(1, &huge, nullptr), H5Sclose, "create a space"),
      plain(H5Screate_simple(1, &small, nullptr), H5Sclose, "create a space"),
      none(H5Screate(H5S_NULL), H5Sclose, "create a space");
  H5Pset_external(options, "canary", 0, 4);
  H5Pset_chunk(chunks, 1, &small);
  H5Pset_chunk(filter, 1, &small);
  H5Pset_shuffle(filter);
  const auto dataset = [](hid_t root, hid_t type, hid_t space, hid_t properties) {
    (void)h5::Id(H5Dcreate2(root, "summary/seq", type, space, H5P_DEFAULT, properties, H5P_DEFAULT),
        H5Dclose,
        "create a dataset");
  };
  const std::vector<std::pair<const char*, std::function<void(hid_t)>>> changes = {
      {"cannot open", [](hid_t root) { H5Lcreate_soft("/cases", root, "summary/seq", {}, {}); }},
      {"cannot open",
          [](hid_t root) { H5Lcreate_external("other.h5", "/x", root, "summary/seq", {}, {}); }},
      {"another place", [&](hid_t root) { dataset(root, H5T_NATIVE_UINT8, plain, options); }},
      {"filtered", [&](hid_t root) { dataset(root, H5T_NATIVE_INT64, plain, filter); }},
      {"claims 2147483648", [&](hid_t root) { dataset(root, H5T_NATIVE_INT64, claimed, chunks); }},
      {"unexpected type", [&](hid_t root) { dataset(root, H5T_STD_REF_OBJ, plain, {}); }},
      {"dimensions", [&](hid_t root) { dataset(root, H5T_NATIVE_INT64, none, {}); }},
      {"cannot open", [](hid_t root) {
         const h5::Id type(H5Tcopy(H5T_NATIVE_INT), H5Tclose, "copy a type");
         H5Tcommit2(root, "summary/seq", type, {}, {}, {});
       }}};
  for (const auto& [words, change] : changes) {
    const std::string file = changed([&](hid_t root) {
      drop(root, "summary/seq");
      change(root);
    });
    for (const auto& refuse : {refusal, read_refusal})
      EXPECT_THAT(refuse(file), AllOf(HasSubstr("summary/seq"), HasSubstr(words)));
  }
}

/// They could command the terminal on which `show` prints them.
TEST_F(File, HasTextsWithoutControlCharacters) {
  CaseResult r = sample_case();
  r.status = Status::error;
  r.reason = "\x1b]0;owned\x07 a\tb\n";
  open().append(r);
  EXPECT_EQ(rows()[0].text("reason"), "?]0;owned? a\tb\n");
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
  EXPECT_FALSE(std::filesystem::exists(path("r.h5.part")));
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
