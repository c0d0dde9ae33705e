#include "record/host_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <string_view>

namespace minitaw::record {

namespace {

constexpr std::size_t shortest_in_words = 4;

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// Where `name` (lower case) begins in `text`, from `from` on; npos: nowhere.
std::size_t place_of(std::string_view text, std::string_view name, std::size_t from) {
  for (std::size_t at = from; at + name.size() <= text.size(); ++at) {
    const std::size_t end = at + name.size();
    if (!std::ranges::equal(text.substr(at, name.size()), name, {}, lower)) continue;
    const bool alone = (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
    if (alone || name.size() >= shortest_in_words) return at;
  }
  return std::string_view::npos;
}

}  // namespace

HostNames::HostNames(std::vector<std::string> of_node, bool shown)
    : names_(std::move(of_node)), shown_(shown) {
  for (int node = 0; node < static_cast<int>(names_.size()); ++node) {
    std::string full = names_[static_cast<std::size_t>(node)];
    std::ranges::transform(full, full.begin(), lower);
    const std::string first = full.substr(0, full.find('.'));
    if (!full.empty()) forms_.push_back({full, node});
    if (!first.empty() && first != full) forms_.push_back({first, node});
  }
  std::ranges::stable_sort(forms_, std::greater<>(), [](const Form& form) { return form.name.size(); });
}

std::string HostNames::text(int node) const {
  return shown_ ? names_.at(static_cast<std::size_t>(node)) : fmt::format("node {}", node);
}

bool HostNames::occur_in(const std::string& text) const {
  return std::ranges::any_of(
      forms_, [&](const Form& form) { return place_of(text, form.name, 0) != std::string_view::npos; });
}

std::string HostNames::hidden(const std::string& text) const {
  if (shown_) return text;
  // One pass from the left: what has been put in is not looked at again, whatever the hosts are called.
  std::string result;
  std::size_t done = 0;
  while (true) {
    const Form* next = nullptr;
    std::size_t first = std::string::npos;
    for (const Form& form : forms_)
      if (const std::size_t at = place_of(text, form.name, done); at < first) {
        first = at;
        next = &form;
      }
    if (next == nullptr) return result + text.substr(done);
    result += text.substr(done, first - done) + this->text(next->node);
    done = first + next->name.size();
  }
}

}  // namespace minitaw::record
