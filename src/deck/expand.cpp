#include "deck/expand.hpp"

#include <fmt/format.h>

#include <set>

#include "base/error.hpp"
#include "deck/keys.hpp"

namespace minitaw::deck {

namespace {

/// One key that varies, with its values already checked one by one.
struct Axis {
  const Key* key;
  std::vector<Value> values;
};

/// The message of a check with the place where the key that it begins with was written in front.
std::string locate(const std::string& message, const Settings& settings, const std::string& path) {
  const auto at = settings.find(message.substr(0, message.find_first_of(": =")));
  return fmt::format("{}: {}", at == settings.end() ? printable(path) : at->second.where, message);
}

/// Values of a key: the elements of a list if it is swept, else the value itself.
std::vector<Value> values_of(const Key& key, const Setting& setting) {
  const auto* list = std::get_if<Value::List>(&setting.value.data);
  if (list == nullptr || key.list) return {setting.value};
  if (!key.axis)
    throw InputError(fmt::format("{}: a list is given, but this key takes one value; write for example {}",
                                 key.name, key.example));
  if (list->empty())
    throw InputError(fmt::format("{}: the list is empty; write for example {}", key.name, key.example));
  return *list;
}

/// Single values and defaults go into the draft, lists become axes.
std::vector<Axis> split_axes(const Settings& settings, Draft& draft) {
  std::vector<Axis> axes;
  for (const Key& key : keys()) {
    const auto at = settings.find(key.name);
    if (at == settings.end()) {
      if (key.required())
        throw InputError(fmt::format("{}: not given; add for example {}", key.name, key.example));
      if (!key.initial.empty()) key.store(draft, Value{key.initial});
      continue;
    }
    const std::vector<Value> values = values_of(key, at->second);
    Draft scratch;
    for (const Value& value : values) key.store(scratch, value);
    if (values.size() == 1) key.store(draft, values.front());
    else axes.push_back({&key, values});
  }
  return axes;
}

std::size_t count_cases(const std::vector<Axis>& axes) {
  std::size_t count = 1;
  for (const Axis& axis : axes) {
    if (axis.values.size() > most_cases / count)
      throw InputError(fmt::format("{}: the lists of this deck make more than {} cases; shorten one",
                                   axis.key->name, most_cases));
    count *= axis.values.size();
  }
  return count;
}

/// Keeps, for every value of every axis, whether a case runs it and else why not.
class Coverage {
public:
  explicit Coverage(const std::vector<Axis>& axes) {
    for (const Axis& axis : axes) {
      ran_.emplace_back(axis.values.size(), false);
      reason_.emplace_back(axis.values.size());
    }
  }

  void ran(const std::vector<std::size_t>& at) {
    any_ = true;
    for (std::size_t a = 0; a < at.size(); ++a) ran_[a][at[a]] = true;
  }

  void failed(const std::vector<std::size_t>& at, const std::string& reason) {
    if (first_.empty()) first_ = reason;
    for (std::size_t a = 0; a < at.size(); ++a)
      if (reason_[a][at[a]].empty()) reason_[a][at[a]] = reason;
  }

  /// Throws the first reason of a value that no case runs.
  void require_all() const {
    if (!any_) throw InputError(first_);
    for (std::size_t a = 0; a < ran_.size(); ++a)
      for (std::size_t v = 0; v < ran_[a].size(); ++v)
        if (!ran_[a][v]) throw InputError(reason_[a][v]);
  }

private:
  std::vector<std::vector<bool>> ran_;
  std::vector<std::vector<std::string>> reason_;
  std::string first_;
  bool any_ = false;
};

/// Position of combination `index` on each axis; the first axis varies slowest.
std::vector<std::size_t> position(const std::vector<Axis>& axes, std::size_t index) {
  std::vector<std::size_t> at(axes.size());
  for (std::size_t a = axes.size(); a-- > 0;) {
    at[a] = index % axes[a].values.size();
    index /= axes[a].values.size();
  }
  return at;
}

/// One note for each reason.
void note_left_out(const std::map<std::string, int>& reasons, Deck& deck) {
  for (const auto& [reason, count] : reasons)
    deck.notes.push_back(fmt::format("left out {} combination{}: {}", count, count == 1 ? "" : "s", reason));
}

void expand_unlocated(const Settings& settings, const Job& job, Deck& deck) {
  Draft draft;
  const std::vector<Axis> axes = split_axes(settings, draft);
  const std::size_t count = count_cases(axes);
  Coverage coverage(axes);
  std::set<std::string> seen;
  std::map<std::string, int> left_out;
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<std::size_t> at = position(axes, i);
    for (std::size_t a = 0; a < axes.size(); ++a) axes[a].key->store(draft, axes[a].values[at[a]]);
    try {
      Case c = complete(draft, job);
      coverage.ran(at);
      if (seen.insert(identity(c)).second) deck.cases.push_back(std::move(c));
    } catch (const InputError& error) {
      coverage.failed(at, error.what());
      ++left_out[error.what()];
    }
  }
  coverage.require_all();
  note_left_out(left_out, deck);
}

}  // namespace

void expand(const Settings& settings, const Job& job, Deck& deck) {
  try {
    expand_unlocated(settings, job, deck);
  } catch (const InputError& error) {
    throw InputError(locate(error.what(), settings, deck.path));
  }
}

}  // namespace minitaw::deck
