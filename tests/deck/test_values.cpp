#include <gmock/gmock.h>

#include "deck/value.hpp"
#include "helpers.hpp"

namespace minitaw::deck {
namespace {

using testing::HasSubstr;

std::int64_t size_of(const std::string& text) { return to_size("seq", Value{text}, 0, INT64_MAX); }

TEST(Size, suffixes_count_in_steps_of_1024) {
  EXPECT_EQ(size_of("7"), 7);
  EXPECT_EQ(size_of("4K"), 4096);
  EXPECT_EQ(size_of("3k"), 3072);
  EXPECT_EQ(size_of("1M"), 1048576);
  EXPECT_EQ(size_of("8191G"), 8191LL << 30);
  EXPECT_EQ(to_size("seq", Value{std::int64_t{5}}, 1, 5), 5);
}

TEST(Size, text_that_is_no_size_is_refused) {
  for (const std::string text : {"", "K", "4KB", "4.5K", "0x10", " 4", "4 ", "4K4", "--4", "1e3", "nan", "٣"})
    EXPECT_THROW((void)size_of(text), InputError) << text;
}

TEST(Size, overflow_is_refused) {
  for (const std::string text : {"9999999999G", "9223372036854775808", "9007199254740992K", "-9999999999G"})
    EXPECT_THROW((void)size_of(text), InputError) << text;
}

TEST(Size, other_types_are_refused) {
  EXPECT_THROW((void)to_size("seq", Value{1e30}, 1, 10), InputError);
  EXPECT_THROW((void)to_size("seq", Value{4.0}, 1, 10), InputError);
  EXPECT_THROW((void)to_size("seq", Value{true}, 1, 10), InputError);
  EXPECT_THROW((void)to_size("seq", Value{Value::List{}}, 1, 10), InputError);
}

TEST(Size, limits_are_included) {
  EXPECT_EQ(to_size("seq", Value{std::int64_t{1}}, 1, 10), 1);
  EXPECT_EQ(to_size("seq", Value{std::int64_t{10}}, 1, 10), 10);
  EXPECT_THROW((void)to_size("seq", Value{std::int64_t{0}}, 1, 10), InputError);
  EXPECT_THROW((void)to_size("seq", Value{std::int64_t{11}}, 1, 10), InputError);
}

TEST(Positive, takes_integers_and_reals_above_zero) {
  EXPECT_EQ(to_positive("learning_rate", Value{std::int64_t{2}}), 2.0);
  EXPECT_EQ(to_positive("learning_rate", Value{1e-3}), 1e-3);
  EXPECT_EQ(to_positive("learning_rate", Value{std::string("3e-4")}), 3e-4);
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL})
    EXPECT_THROW((void)to_positive("learning_rate", Value{bad}), InputError) << bad;
  for (const std::string bad : {"", "fast", "1e-3x", "1e999"})
    EXPECT_THROW((void)to_positive("learning_rate", Value{bad}), InputError) << bad;
}

TEST(Choice, names_the_nearest_word) {
  try {
    (void)to_choice("dtype", Value{std::string("bf61")}, {"fp32", "bf16"});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"bf16\""));
  }
}

TEST(Printable, one_short_line) {
  EXPECT_EQ(printable("a\nb\x1b[31m\xff"), "a?b?[31m?");
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 63U);
  EXPECT_EQ(printable("tëxt \u20ac \U0001F600"), "tëxt \u20ac \U0001F600");
  EXPECT_EQ(printable("\xe2\x82"), "??") << "a character that ends early";
  EXPECT_EQ(printable("\xc2\x9b"), "??") << "a control character of two bytes";
  EXPECT_EQ(printable("\u20ac\u20ac\u20ac", 2), "\u20ac\u20ac...");
}

}  // namespace
}  // namespace minitaw::deck
