// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>
#include "base/error.hpp"

/// What tests of several parts of miniTaw share.
namespace minitaw::test {
/// A folder of the test's own, removed at its end.
class InFolder : public testing::Test {
protected:
  InFolder() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  ~InFolder() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }

  /// Makes the folders that the file lies in, too.
  std::string write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

  [[nodiscard]] static std::string read(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("minitaw-test-" + std::to_string(::getpid()));
};

/// What the InputError of `call` says, or an error of another type that is named; empty if it
/// throws none.
template <class Refusal = InputError>
std::string refusal_of(const auto& call) {
  try {
    call();
  } catch (const Refusal& error) {
    return error.what();
  }
  return "";
}

/// Matches a sentence that says all of these words, in any order: the key, the value, the nearest
/// name. How the rest of the sentence is put does not matter.
inline testing::Matcher<std::string> Says(const std::vector<std::string>& words) {
  std::vector<testing::Matcher<std::string>> each;
  for (const std::string& word : words)
    each.emplace_back(testing::HasSubstr(word));
  return testing::AllOfArray(each);
}
}  // namespace minitaw::test
