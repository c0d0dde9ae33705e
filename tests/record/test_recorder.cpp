#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "base/error.hpp"
#include "folder.hpp"
#include "raw.hpp"
#include "record/read.hpp"
#include "record/recorder.hpp"
#include "record/remaining.hpp"
#include "refusal.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class File : public InFolder {
protected:
  std::string file_;
  void SetUp() override {
    InFolder::SetUp();
    file_ = path("r.h5");
  }

  static std::string refusal(const std::string& file) {
    return refusal_of([&] { Recorder recorder(file, {}); });
  }

  [[nodiscard]] std::size_t files_in_folder() const {
    const std::filesystem::directory_iterator all(folder_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
};

TEST_F(File, is_complete_after_every_step) {
  Recorder recorder(file_, {});
  EXPECT_THAT(read_rows(file_), IsEmpty());
  for (int i = 0; i < 3; ++i) {
    const Row row = recorder.append(sample_case("tawpipe", 100 + i));
    EXPECT_EQ(row.integer("case"), i);
    const std::vector<Row> found = read_rows(file_);
    ASSERT_THAT(found, SizeIs(static_cast<std::size_t>(i) + 1));
    EXPECT_EQ(found.back().integer("seq"), 100 + i);
  }
  EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(File, reads_back_what_was_written) {
  const CaseResult r = sample_case();
  const Row written = Recorder(file_, {}).append(r);
  const Row row = read_rows(file_).at(0);
  for (std::size_t i = 0; i < columns().size(); ++i) {
    const bool nan =
        std::holds_alternative<double>(row.cells()[i]) && std::isnan(std::get<double>(row.cells()[i]));
    EXPECT_TRUE(nan || row.cells()[i] == written.cells()[i]) << columns()[i].name;
  }
  EXPECT_EQ(row.text("schedule"), "tawpipe");
  EXPECT_EQ(row.text("ffn"), "7,8,9,10,11");
  EXPECT_DOUBLE_EQ(row.real("median_s"), 2.25);
  EXPECT_DOUBLE_EQ(row.real("last_loss"), 2.5);
  EXPECT_TRUE(std::isnan(row.real("loss_error")));
}

TEST_F(File, goes_on_behind_finished_cases) {
  const CaseResult done = sample_case("ddp");
  CaseResult failed = sample_case("tawpipe");
  failed.status = Status::error;
  {
    Recorder first(file_, {});
    first.append(failed);
    first.append(done);
    EXPECT_THAT(first.notes(), IsEmpty());
  }
  Recorder second(file_, {});
  EXPECT_THAT(second.rows(),
              ElementsAre(testing::Not(testing::Truly(is_finished)), testing::Truly(is_finished)));
  EXPECT_THAT(second.notes(), ElementsAre(HasSubstr("2 cases, 1 of them finished")));
  EXPECT_THAT(second.rows(), SizeIs(2));
}

TEST_F(File, a_failed_case_is_replaced_when_it_runs_again) {
  CaseResult r = sample_case("tawpipe");
  r.status = Status::error;
  r.reason = "a rather long reason that is not there afterwards";
  {
    Recorder first(file_, {});
    first.append(r);
    first.append(sample_case("ddp"));
  }
  Recorder second(file_, {});
  const Row row = second.append(sample_case("tawpipe"));
  EXPECT_EQ(row.integer("case"), 0);
  EXPECT_EQ(row.integer("session"), 1);
  const std::vector<Row> rows = read_rows(file_);
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0].text("status"), "ok");
  EXPECT_EQ(rows[0].text("reason"), "");
  EXPECT_EQ(rows[1].text("schedule"), "ddp");
  EXPECT_THAT(second.rows(), testing::Each(testing::Truly(is_finished)));
}

TEST_F(File, reopening_without_a_new_case_changes_nothing) {
  {
    Recorder(file_, {}).append(sample_case());
  }
  const std::string before = read(file_);
  {
    Recorder again(file_, {});
  }
  EXPECT_EQ(read(file_), before);
}

/// What `show` and the like have to say.
std::string read_refusal(const std::string& file) {
  return refusal_of([&] { (void)read_rows(file); });
}

TEST_F(File, of_something_else_is_refused_and_kept) {
  for (const auto& refuse : {refusal, read_refusal}) {
    EXPECT_THAT(refuse(write("text", "hello\n")), HasSubstr("not a miniTaw result"));
    EXPECT_THAT(refuse(write("empty", "")), HasSubstr("not a miniTaw result"));
    EXPECT_THAT(refuse(folder_.string()), HasSubstr("is not a file"));
  }
  EXPECT_THAT(refusal(path("missing/r.h5")), HasSubstr("no folder"));
  EXPECT_THAT(read_refusal(path("missing.h5")), HasSubstr("No such file"));
  EXPECT_THAT(refusal(path("")), testing::Not(IsEmpty()));
  EXPECT_THAT(refusal(""), testing::Not(IsEmpty()));
  EXPECT_EQ(read(path("text")), "hello\n");
}

TEST_F(File, of_a_foreign_or_other_layout_is_refused) {
  const MemoryFile image = MemoryFile::create();
  h5::check(H5Adelete(image.root(), "schema"), "delete");
  replace_file(path("foreign"), image.bytes());
  replace_file(path("newer"), sealed(raw_bytes(MemoryFile::create()), schema_version + 1));
  replace_file(path("hollow"), MemoryFile::create().bytes());
  replace_file(path("unsealed"), raw_bytes(MemoryFile::create()));
  for (const auto& refuse : {refusal, read_refusal}) {
    EXPECT_THAT(refuse(path("foreign")), HasSubstr("is damaged"));
    EXPECT_THAT(refuse(path("newer")), AllOf(HasSubstr(fmt::format("schema version {}", schema_version + 1)),
                                             HasSubstr("another file")));
    EXPECT_THAT(refuse(path("hollow")), HasSubstr("is damaged"));
    EXPECT_THAT(refuse(path("unsealed")), HasSubstr("lost its seal"));
  }
}

TEST_F(File, that_another_program_has_changed_is_refused) {
  {
    Recorder(file_, {}).append(sample_case());
  }
  const h5::Id edited(H5Fopen(file_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose, "open a sealed file");
  h5::write_attribute(edited.get(), "note", std::string("mine"));
  h5::check(H5Fflush(edited.get(), H5F_SCOPE_LOCAL), "flush");
  for (const auto& refuse : {refusal, read_refusal})
    EXPECT_THAT(refuse(file_), HasSubstr("is damaged or was changed after it was written"));
}

TEST_F(File, shortened_anywhere_is_refused) {
  {
    Recorder(file_, {}).append(sample_case());
  }
  const std::string good = read(file_);
  for (std::size_t cut = 0; cut < good.size(); cut += 997)
    EXPECT_NE(refusal(write("cut.h5", good.substr(0, cut))), "") << cut << " bytes";
}

TEST_F(File, damaged_anywhere_is_refused_or_read_without_a_crash) {
  {
    Recorder(file_, {}).append(sample_case());
  }
  const std::string good = read(file_);
  const auto open_damaged_files = [&] {
    for (std::size_t at = 0; at < good.size(); at += 211) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x5a);
      (void)refusal(write("bad.h5", bad));
    }
    ::_exit(0);
  };
  // In a process of its own: what HDF5 itself loses of its memory over a damaged file is not ours to report.
  EXPECT_EXIT(open_damaged_files(), testing::ExitedWithCode(0), "");
}

TEST_F(File, a_stale_copy_is_cleaned) {
  {
    Recorder(file_, {}).append(sample_case());
  }
  (void)write("r.h5.part", "left by a killed run");
  {
    Recorder again(file_, {});
  }
  EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(File, changed_by_somebody_else_is_not_overwritten) {
  Recorder mine(file_, {});
  Recorder other(file_, {});
  other.append(sample_case("ddp"));
  EXPECT_THROW(mine.append(sample_case("tawpipe")), std::runtime_error);
  EXPECT_THAT(read_rows(file_), SizeIs(1));
}

TEST_F(File, behind_a_link_is_replaced_there) {
  std::filesystem::create_symlink("real.h5", path("link.h5"));
  (void)Recorder(path("real.h5"), {});
  {
    Recorder(path("link.h5"), {}).append(sample_case());
  }
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.h5")));
  EXPECT_THAT(read_rows(path("real.h5")), SizeIs(1));
}

/// No file may grow beyond this many bytes: a disk that fills up.
class FullDisk {
public:
  explicit FullDisk(std::size_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

private:
  rlimit before_{};
};

TEST_F(File, on_a_full_disk_stays_as_it_was) {
  Recorder recorder(file_, {});
  recorder.append(sample_case("ddp"));
  const std::string before = read(file_);
  {
    const FullDisk full(before.size() / 2);
    try {
      recorder.append(sample_case("tawpipe"));
      ADD_FAILURE() << "the disk was not full";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("cannot be written"));
    }
  }
  EXPECT_EQ(read(file_), before);
  EXPECT_EQ(files_in_folder(), 1U);
  recorder.append(sample_case("tawpipe"));
  EXPECT_THAT(read_rows(file_), SizeIs(2)) << "once there is room the run can go on";
}

}  // namespace
}  // namespace minitaw::record
