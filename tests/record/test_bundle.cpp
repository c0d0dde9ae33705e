#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/error.hpp"
#include "folder.hpp"
#include "record/bundle.hpp"
#include "record/recorder.hpp"
#include "record/table.hpp"
#include "record/verdict.hpp"
#include "refusal.hpp"
#include "sample.hpp"
#include "seed.hpp"

namespace minitaw::record {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

Provenance session(const std::string& deck) {
  Provenance p;
  p.version = "0.9";
  p.git_hash = "abc123";
  p.started = "2026-07-18T09:30:00Z";
  p.command = "minitaw run d.toml";
  p.deck = deck;
  p.environment = {"OMP_NUM_THREADS=3"};
  p.hosts = {"node 0", "node 1"};
  p.devices = {"cpu", "cpu"};
  p.cores = {"0-3", "4"};
  return p;
}

class Bundled : public InFolder {
protected:
  std::string record_;
  void SetUp() override {
    InFolder::SetUp();
    record_ = path("r.h5");
    put("layers = 5\n", "ddp", "first words\nmore\n");
    put("layers = 6\n", "tawpipe", "second words\n");
    put("layers = 5\n", "weipipe", "");
  }

  /// A file of so many bytes that takes no room on the disk.
  [[nodiscard]] std::string sparse(const std::string& name, std::size_t bytes) const {
    std::filesystem::resize_file(write(name, ""), bytes);
    return path(name);
  }
  void put(const std::string& deck, const std::string& schedule, const std::string& log) const {
    Recorder recorder(record_, session(deck));
    recorder.log(log);
    recorder.append(sample_case(schedule));
  }
  [[nodiscard]] std::string archive(const std::vector<std::string>& added = {}) const {
    return make_bundle(record_, added);
  }
  [[nodiscard]] std::vector<Member> members(const std::vector<std::string>& added = {}) const {
    return unpack(archive(added), "x");
  }
  [[nodiscard]] std::string refusal(const std::string& bytes) const {
    return refusal_of([&] { (void)read_bundle(write("b.tar.gz", bytes)); });
  }
  [[nodiscard]] std::string refusal_to_add(const std::vector<std::string>& added) const {
    return refusal_of([&] { (void)archive(added); });
  }
};

std::vector<std::string> names_of(const std::vector<Member>& members) {
  std::vector<std::string> names;
  for (const Member& member : members) names.push_back(member.name);
  return names;
}

std::string& content_of(std::vector<Member>& members, const std::string& name) {
  return std::ranges::find(members, "bundle/" + name, &Member::name)->content;
}

TEST_F(Bundled, holds_what_its_page_lists) {
  std::vector<Member> found = members({write("job.sh", "srun\n")});
  EXPECT_THAT(names_of(found),
              ElementsAre("bundle/README.txt", "bundle/SHA256SUMS", "bundle/added/job.sh",
                          "bundle/deck-0001.toml", "bundle/deck.toml", "bundle/environment.txt",
                          "bundle/log.txt", "bundle/record.h5", "bundle/summary.csv", "bundle/summary.txt"));
  const std::vector<Row> rows = read_rows(record_);
  EXPECT_EQ(content_of(found, "record.h5"), read(record_));
  EXPECT_EQ(content_of(found, "added/job.sh"), "srun\n");
  EXPECT_EQ(content_of(found, "deck.toml"), "layers = 5\n");
  EXPECT_EQ(content_of(found, "deck-0001.toml"), "layers = 6\n");
  EXPECT_EQ(content_of(found, "summary.csv"), to_csv(rows));
  EXPECT_EQ(content_of(found, "summary.txt"), whole_text(rows));
  EXPECT_THAT(content_of(found, "log.txt"),
              HasSubstr("first words\nmore\n\n== session 1, started 2026-07-18T09:30:00Z\nsecond words\n"));
  EXPECT_THAT(content_of(found, "environment.txt"),
              AllOf(HasSubstr("OMP_NUM_THREADS=3\n"), HasSubstr("node 1, cpu, cores 4\n"),
                    HasSubstr("minitaw run d.toml\n")));
  EXPECT_THAT(content_of(found, "README.txt"),
              AllOf(HasSubstr(closing_text(rows)), HasSubstr("minitaw 0.9 (abc123)")));
}

TEST_F(Bundled, gives_the_same_bytes_again) { EXPECT_EQ(archive(), archive()); }

TEST_F(Bundled, is_read_back) {
  const Bundle bundle = read_bundle(write("b.tar.gz", archive()));
  EXPECT_THAT(bundle.rows, SizeIs(3));
  EXPECT_EQ(bundle.rows[1].text("schedule"), "tawpipe");
  ASSERT_THAT(bundle.sessions, SizeIs(3));
  EXPECT_EQ(bundle.sessions[1].deck, "layers = 6\n");
  EXPECT_EQ(bundle.sessions[2].cores, (std::vector<std::string>{"0-3", "4"}));
  EXPECT_THAT(bundle.names, Contains("record.h5"));
}

TEST_F(Bundled, of_an_invalid_result_says_so) {
  CaseResult failed = sample_case("fsdp");
  failed.status = Status::oom;
  failed.reason = "needs 9 GiB";
  Recorder(record_, session("")).append(failed);
  std::vector<Member> found = members();
  EXPECT_THAT(content_of(found, "README.txt"), HasSubstr("RESULT: INVALID"));
  EXPECT_FALSE(verdict(read_bundle(write("b.tar.gz", archive())).rows).valid());
}

TEST_F(Bundled, refuses_added_files_that_do_not_fit) {
  std::filesystem::create_directories(folder_ / "other");
  const std::string one = write("one", "1");
  EXPECT_THAT(refusal_to_add({one, write("other/one", "2")}), HasSubstr("another added/one"));
  EXPECT_THAT(refusal_to_add({path("missing")}), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal_to_add({sparse("huge", most_archive_bytes + 1)}),
              HasSubstr("no bundle holds more than"));
  EXPECT_THAT(refusal_to_add({folder_.string()}), HasSubstr("not a file"));
  EXPECT_THAT(refusal_to_add({path("other/..")}), HasSubstr("--add"));
  EXPECT_THAT(refusal_to_add({path("other/")}), HasSubstr("--add"));
  EXPECT_THAT(refusal_to_add({""}), HasSubstr("--add"));
  EXPECT_THAT(refusal_to_add({write("a\nb", "x")}), HasSubstr("printable"));
  EXPECT_THAT(refusal_to_add({"/dev/zero"}), HasSubstr("not a file"));
}

// Names of the bundle's own files are no matter: what is added has a folder of its own.
TEST_F(Bundled, keeps_added_files_apart) {
  std::filesystem::create_directories(folder_ / "other");
  std::vector<Member> found = members({write("record.h5", "mine"), write("SHA256SUMS", "mine too")});
  EXPECT_EQ(content_of(found, "record.h5"), read(record_));
  EXPECT_EQ(content_of(found, "added/record.h5"), "mine");
  EXPECT_THAT(content_of(found, "SHA256SUMS"), HasSubstr("  added/SHA256SUMS\n"));
}

TEST_F(Bundled, shows_a_change_of_any_member) {
  const std::vector<Member> all = members({write("job.sh", "srun\n")});
  ASSERT_EQ(refusal(pack(all)), "");
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<Member> changed = all;
    changed[i].content[changed[i].content.size() / 2] ^= 1;
    EXPECT_THAT(refusal(pack(changed)), HasSubstr("changed")) << all[i].name;
    changed = all;
    changed[i].content += 'x';
    EXPECT_THAT(refusal(pack(changed)), HasSubstr("changed")) << all[i].name;
    changed = all;
    changed[i].name += 'x';
    EXPECT_THAT(refusal(pack(changed)), HasSubstr("changed")) << all[i].name;
    changed = all;
    changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(refusal(pack(changed)), HasSubstr("changed")) << all[i].name;
  }
}

TEST_F(Bundled, shows_files_that_nobody_listed) {
  std::vector<Member> more = members();
  more.push_back({"bundle/added/late.txt", "x"});
  EXPECT_THAT(refusal(pack(more)), HasSubstr("added/late.txt"));
  more = members();
  more.push_back({"elsewhere/x", "x"});
  EXPECT_THAT(refusal(pack(more)), HasSubstr("not in the folder"));
}

// Right sums around a wrong record: what is inside must be a result all the same.
TEST_F(Bundled, needs_a_record_that_can_be_read) {
  const auto with = [](const std::string& record) {
    std::vector<Member> all{{"record.h5", record}};
    all.push_back({"SHA256SUMS", sums_text(all)});
    for (Member& member : all) member.name.insert(0, bundle_folder);
    return pack(all);
  };
  EXPECT_EQ(refusal(with(read(record_))), "");
  EXPECT_THAT(refusal(with("no HDF5")), HasSubstr("record.h5 in"));
  EXPECT_THAT(refusal(with("")), HasSubstr("record.h5 in"));
  EXPECT_THAT(refusal(with(read(record_).substr(0, 5000))), HasSubstr("record.h5 in"));
  EXPECT_THAT(refusal(pack({{"bundle/SHA256SUMS", ""}})), HasSubstr("no record.h5"));
  EXPECT_THAT(refusal(pack({})), HasSubstr("no SHA256SUMS"));
}

/// Accepted only with every member as it was.
void expect_refused_or_same(const std::string& file, const std::vector<std::string>& names, int& refused) {
  try {
    const Bundle bundle = read_bundle(file);
    EXPECT_EQ(bundle.names, names);
    EXPECT_THAT(bundle.rows, SizeIs(3));
  } catch (const InputError&) {
    ++refused;
  }
}

TEST_F(Bundled, damaged_anywhere_is_refused) {
  const unsigned seed = test::seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string good = archive();
  const std::vector<std::string> names = read_bundle(write("g.tar.gz", good)).names;
  const auto pick = [&](std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
  };
  const char* tries = std::getenv("MINITAW_MUTATIONS");
  const int count = tries == nullptr ? 500 : std::atoi(tries);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    std::string bytes = good;
    switch (pick(4)) {
    case 0:
      bytes.resize(pick(good.size()));
      break;
    case 1:
      bytes[pick(good.size())] ^= static_cast<char>(1U << pick(8));
      break;
    case 2:
      bytes.erase(pick(good.size()), 1 + pick(100));
      break;
    default:
      bytes.insert(pick(good.size()), std::string(1 + pick(9), static_cast<char>(pick(256))));
    }
    expect_refused_or_same(write("m.tar.gz", bytes), names, refused);
  }
  EXPECT_GT(refused, count * 9 / 10);
}

}  // namespace
}  // namespace minitaw::record
