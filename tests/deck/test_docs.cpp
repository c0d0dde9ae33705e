#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "deck/keys.hpp"

namespace minitaw::deck {
namespace {

TEST(Docs, keys_page_is_the_help_of_the_program) {
  const auto page = std::filesystem::path(MINITAW_DOCS) / "keys.md";
  std::ostringstream text;
  text << std::ifstream(page).rdbuf();
  EXPECT_EQ(text.str(), help_markdown()) << "renew it with: minitaw help keys --markdown > docs/keys.md";
}

TEST(Docs, help_names_every_key) {
  for (const Key& key : keys())
    EXPECT_NE(help_text().find("\n" + key.name + " ("), std::string::npos) << key.name;
}

}  // namespace
}  // namespace minitaw::deck
