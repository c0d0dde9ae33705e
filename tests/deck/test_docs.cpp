// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include "deck/keys.hpp"
#include "helpers.hpp"

namespace minitaw::deck {
namespace {
TEST(Docs, KeysPageIsTheHelpOfTheProgram) {
  const auto page = std::filesystem::path(MINITAW_DOCS) / "keys.md";
  std::ostringstream text;
  text << std::ifstream(page).rdbuf();
  EXPECT_EQ(text.str(), help_markdown()) << "renew it with: minitaw help keys --markdown > docs/keys.md";
}

/// Why no job of the usual sizes (0: the deck says its own) can run the deck; empty if one can.
std::string refused_by_all(const std::string& path) {
  std::string why;
  for (const int ranks : {0, 4, 6}) try {
      (void)read_deck(path, {}, planned(ranks));
      return "";
    } catch (const InputError& error) {
      why += fmt::format("{}\n", error.what());
    }
  return why;
}

TEST(Docs, EveryDeckOfTheRepositoryIsValid) {
  int decks = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(MINITAW_INPUTS)) {
    const bool machine = file.path().parent_path().filename() == "machines";  // test_machine.cpp reads those
    if (file.path().extension() != ".toml" || machine) continue;
    ++decks;
    EXPECT_EQ(refused_by_all(file.path().string()), "");
  }
  EXPECT_GT(decks, 5);
}

TEST(Docs, HelpNamesEveryKey) {
  for (const Key& key : keys()) EXPECT_NE(help_text().find("\n" + key.name + " ("), std::string::npos) << key.name;
}
}  // namespace
}  // namespace minitaw::deck
