#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>

#include <memory>

#include "base/error.hpp"
#include "record/archive.hpp"
#include "refusal.hpp"

namespace minitaw::record {

static bool operator==(const Member& a, const Member& b) {
  return a.name == b.name && a.content == b.content;
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<Member> members = {
    {"b/two.txt", "second\n"}, {"a", std::string(70001, '\0')}, {"empty", ""}};

std::string refusal(const std::string& bytes) {
  return refusal_of([&] { (void)unpack(bytes, "x.tar.gz"); });
}

/// One entry as no bundle has it.
struct Odd {
  std::string name;
  unsigned type = AE_IFREG;
  std::string link = "";
  std::string content = "x";
};

la_ssize_t append(archive*, void* to, const void* bytes, std::size_t count) {
  static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), count);
  return static_cast<la_ssize_t>(count);
}

std::string odd_archive(const std::vector<Odd>& entries,
                        int (*format)(archive*) = archive_write_set_format_gnutar) {
  std::string bytes;
  const std::unique_ptr<archive, decltype(&archive_write_free)> a(archive_write_new(), archive_write_free);
  archive_write_add_filter_gzip(a.get());
  format(a.get());
  archive_write_set_bytes_in_last_block(a.get(), 1);
  archive_write_open(a.get(), &bytes, nullptr, append, nullptr);
  for (const Odd& odd : entries) {
    const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> e(archive_entry_new(),
                                                                          archive_entry_free);
    archive_entry_set_pathname(e.get(), odd.name.c_str());
    archive_entry_set_filetype(e.get(), odd.type);
    if (odd.type == AE_IFLNK) archive_entry_set_symlink(e.get(), odd.link.c_str());
    else if (!odd.link.empty()) archive_entry_set_hardlink(e.get(), odd.link.c_str());
    const bool content = odd.type == AE_IFREG && odd.link.empty();
    archive_entry_set_size(e.get(), content ? static_cast<la_int64_t>(odd.content.size()) : 0);
    EXPECT_EQ(archive_write_header(a.get(), e.get()), ARCHIVE_OK) << odd.name;
    if (content) archive_write_data(a.get(), odd.content.data(), odd.content.size());
  }
  archive_write_close(a.get());
  return bytes;
}

TEST(Archive, gives_back_what_it_got_sorted_by_name) {
  EXPECT_THAT(unpack(pack(members), "x"), ElementsAre(members[1], members[0], members[2]));
}

TEST(Archive, depends_on_nothing_but_its_members) {
  const std::string bytes = pack(members);
  EXPECT_EQ(pack({members[2], members[0], members[1]}), bytes);
  EXPECT_NE(pack({members[0], members[1]}), bytes);
  EXPECT_EQ(bytes.substr(4, 4), std::string(4, '\0')) << "a time in the gzip header";
}

TEST(Archive, knows_the_published_digests) {  // FIPS 180-2, appendix B, and of nothing
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Archive, tells_safe_names_from_others) {
  for (const char* name : {"a", "a/b", "..a", "a..", ".hidden", "a b/c-d_e+f@g=h,i~"})
    EXPECT_TRUE(is_safe_name(name)) << name;
  for (const char* name : {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "a\\b",
                           "a\nb", "ä", "a\x7f"})
    EXPECT_FALSE(is_safe_name(name)) << name;
  EXPECT_TRUE(is_safe_name(std::string(100, 'x')));
  EXPECT_FALSE(is_safe_name(std::string(101, 'x')));
}

TEST(Archive, refuses_what_leads_out_of_the_folder) {
  EXPECT_EQ(refusal(odd_archive({{"fine"}})), "");
  for (const char* name : {"../x", "/x", "a/../../x", "a/..", "a\\x"})
    EXPECT_THAT(refusal(odd_archive({{name}})), HasSubstr("unsafe name")) << name;
  EXPECT_THAT(refusal(odd_archive({{"x", AE_IFLNK, "/etc/passwd"}})), HasSubstr("a link"));
  EXPECT_THAT(refusal(odd_archive({{"y"}, {"x", AE_IFREG, "y"}})), HasSubstr("a link"));
  EXPECT_THAT(refusal(odd_archive({{"x", AE_IFIFO}})), HasSubstr("a link"));
  EXPECT_THAT(refusal(odd_archive({{"x"}, {"x"}})), HasSubstr("x twice"));
}

TEST(Archive, passes_over_folders) {
  EXPECT_THAT(unpack(odd_archive({{"a/", AE_IFDIR}, {"a/x"}}), "x"), ElementsAre(Member{"a/x", "x"}));
}

TEST(Archive, refuses_other_formats) {
  EXPECT_THAT(refusal(""), HasSubstr("not a tar.gz"));
  EXPECT_THAT(refusal("a text of no archive"), HasSubstr("not a tar.gz"));
  EXPECT_THAT(refusal(odd_archive({{"x"}}, archive_write_set_format_cpio_newc)), HasSubstr("x.tar.gz"));
  EXPECT_THAT(refusal(odd_archive({{"x"}}, archive_write_set_format_zip)), HasSubstr("x.tar.gz"));
}

// A thousand times as much as its own bytes.
TEST(Archive, stops_at_what_unpacks_to_too_much) {
  const std::string piece(std::size_t{1} << 20, '\0');
  const std::string bomb =
      odd_archive({{"a", AE_IFREG, "", piece}, {"b", AE_IFREG, "", piece}, {"c", AE_IFREG, "", "x"}});
  EXPECT_THAT(bomb.size(), testing::Lt(std::size_t{4} << 10));
  const auto says = [&](std::size_t most) {
    try {
      return std::to_string(unpack(bomb, "x", most).size()) + " files";
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(says(2 * piece.size() + 1), "3 files");
  for (const std::size_t most : {2 * piece.size(), 2 * piece.size() - 1, piece.size(), std::size_t{0}})
    EXPECT_THAT(says(most), HasSubstr("unpacks to more than " + std::to_string(most) + " bytes"));
}

TEST(Archive, stops_at_too_many_files) {
  std::vector<Odd> entries;
  for (std::size_t i = 0; i <= most_archive_members; ++i) entries.push_back({std::to_string(i)});
  EXPECT_THAT(refusal(odd_archive(entries)), HasSubstr("more than 1000 files"));
  for (Odd& odd : entries) odd = {odd.name + "/", AE_IFDIR};
  EXPECT_THAT(refusal(odd_archive(entries)), HasSubstr("more than 1000 files"));
  std::vector<Member> many(most_archive_members + 1);
  EXPECT_THROW(static_cast<void>(pack(many)), InputError);
}

/// What is accepted is what was packed: bytes that hold no content (the time in the head) may differ.
void expect_refused_or_same(const std::string& bytes, int& refused) {
  try {
    EXPECT_THAT(unpack(bytes, "x"), ElementsAre(members[1], members[0], members[2]));
  } catch (const InputError&) {
    ++refused;
  }
}

TEST(Archive, that_was_cut_is_refused_at_every_length) {
  const std::string bytes = pack(members);
  int refused = 0;
  for (std::size_t length = 0; length < bytes.size(); ++length)
    expect_refused_or_same(bytes.substr(0, length), refused);
  EXPECT_GT(refused, static_cast<int>(bytes.size()) - 32) << "the trailer of gzip is all that may lack";
}

}  // namespace
}  // namespace minitaw::record
