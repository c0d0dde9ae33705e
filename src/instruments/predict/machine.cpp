// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/machine.hpp"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <fmt/ranges.h>
#include <fstream>
#include <ranges>
#include <sstream>
#include <toml++/toml.hpp>
#include "base/error.hpp"
#include "base/range.hpp"

namespace minitaw::predict {
namespace {
const std::map<std::string_view, double> prefixes = {{"", 1},
    {"k", 1e3},
    {"M", 1e6},
    {"G", 1e9},
    {"T", 1e12},
    {"P", 1e15},
    {"m", 1e-3},
    {"u", 1e-6},
    {"n", 1e-9},
    {"Ki", 1 << 10},
    {"Mi", 1 << 20},
    {"Gi", 1 << 30}};

// What follows reads the value of a key. An InputError says what is wrong with it, as the end of a
// sentence that begins with the key.

/// Reads a quantity: its units with their factors, to which prefixes are put, and an example for
/// messages.
struct Dimension {
  std::vector<std::pair<std::string_view, double>> units;
  std::string_view example;

  double operator()(const toml::node& node) const {
    const std::string text = node.value_exact<std::string>().value_or("no text");
    const char* const end = text.data() + text.size();
    double value = 0;
    const auto [rest, code] = std::from_chars(text.data(), end, value);
    std::string_view unit(rest, end);
    unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
    for (const auto& [name, factor] : units)
      if (unit.ends_with(name) && value > 0 && std::isfinite(value))
        if (const auto prefix = prefixes.find(unit.substr(0, unit.size() - name.size()));
            prefix != prefixes.end())
          return value * prefix->second * factor;
    throw InputError(
        "is \"{}\"; it needs a number above zero with a unit, for example \"{}\"", text, example);
  }
};

const Dimension data_rate{{{"bit/s", 1.0 / 8}, {"B/s", 1}}, "10 Gbit/s"};
const Dimension compute_rate{{{"FLOP/s", 1}}, "400 TFLOP/s"};
const Dimension work{{{"FLOP", 1}}, "1 GFLOP"};
const Dimension time_span{{{"s", 1}}, "5 us"};
const Dimension amount{{{"B", 1}}, "80 GB"};

/// A rate for all sizes, or a list of sizes with their rates.
model::Curve curve_of(const toml::node& node) {
  const toml::array* const points = node.as_array();
  if (points == nullptr)
    return {{{1, compute_rate(node)}}};
  model::Curve curve;
  double last = 0;
  for (const toml::node& point : *points) {
    const toml::array* const pair = point.as_array();
    const double size = pair == nullptr || pair->size() != 2 ? 0 : work(*pair->get(0));
    if (size <= last)
      throw InputError("needs pairs in ascending order, for example "
                       R"([["1 GFLOP", "50 TFLOP/s"], ["1 TFLOP", "600 TFLOP/s"]])");
    curve.points.emplace_back(size, compute_rate(*pair->get(1)));
    last = size;
  }
  if (curve.points.empty())
    throw InputError("is an empty list");
  return curve;
}

std::string text_of(const toml::node& node) {
  if (const auto value = node.value_exact<std::string>())
    return *value;
  throw InputError("must be a text");
}

int count_of(const toml::node& node) {
  const auto value = node.value_exact<std::int64_t>();
  if (!value || *value < 1 || *value > 1'000'000)
    throw InputError("must be a whole number from 1 to 1000000");
  return *value;
}

double share_of(const toml::node& node) {
  const auto value = node.value<double>();
  if (!value || !(*value > 0 && *value <= 1))
    throw InputError("must be a number above 0, and at most 1");
  return *value;
}

/// "cluster.toml:12"
std::string place_of(const toml::source_region& source) {
  return fmt::format("{}:{}", *source.path, source.begin.line);
}

/// Reads one of some words.
template <class Choice>
auto choice_of(std::map<std::string, Choice> choices) {
  return [=](const toml::node& node) {
    const std::string value = text_of(node);
    if (const auto chosen = choices.find(value); chosen != choices.end())
      return chosen->second;
    const std::vector<std::string> names = list_of(choices | std::views::keys);
    throw InputError("is \"{}\", and not one of {}{}",
        value,
        fmt::join(names, ", "),
        did_you_mean(value, names));
  };
}

/// The keys of a machine file and of changes, which replace them.
class Keys {
public:
  /// Sets what the key is for, if it is given. One that must be has an example for messages.
  void read(
      const std::string& key, auto& part, const auto& value_of, const char* example = nullptr) {
    known_.push_back(key);
    const auto given = given_.find(key);
    if (given == given_.end()) {
      if (example != nullptr && missing_.empty())
        missing_ = fmt::format("{} is missing; write for example {}", key, example);
      return;
    }
    try {
      part = value_of(*given->second);
    } catch (const InputError& error) {
      fail(*given, error.what());
    }
    given_.erase(given);
  }

  /// Returns whether a key of "device.bf16." is given and not read.
  bool has(const std::string& table) const {
    const auto key = given_.lower_bound(table);
    return key != given_.end() && key->first.starts_with(table);
  }

  /// Refuses keys that nobody has read, and the lack of one that must be given.
  void require_complete(const std::string& path) const {
    if (!given_.empty())
      fail(*given_.begin(), "is no key of a machine" + did_you_mean(given_.begin()->first, known_));
    if (!missing_.empty())
      throw InputError("{}: {}", path, missing_);
  }

  void add(toml::table table) { add(tables_.emplace_back(std::move(table)), ""); }

private:
  using Given = std::map<std::string, const toml::node*>;  ///< by whole names of keys

  void add(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      if (const toml::table* const inner = node.as_table())
        add(*inner, name + ".");
      else
        given_[name] = &node;
    }
  }

  [[noreturn]] static void fail(const Given::value_type& given, const std::string& what) {
    const auto& [name, node] = given;
    throw InputError("{}: {} {}", place_of(node->source()), name, what);
  }

  std::deque<toml::table> tables_;
  Given given_;
  std::vector<std::string> known_;
  std::string missing_;
};

/// "between.rate=25 Gbit/s": what is no TOML is a text.
toml::table parse_change(const std::string& change) {
  constexpr std::string_view option = "--machine-set";
  const std::size_t equals = change.find('=');
  if (equals == std::string::npos)
    throw InputError("{} {}: write key=value, for example between.rate=25 Gbit/s", option, change);
  try {
    return toml::parse(change, option);
  } catch (const toml::parse_error&) {
    const std::string key = change.substr(0, equals), text = change.substr(equals + 1);
    return toml::parse(fmt::format("{}='{}'", key, text), option);
  }
}

}  // namespace

Machine parse_machine(
    const std::string& text, const std::string& path, const std::vector<std::string>& changes) {
  Keys keys;
  try {
    keys.add(toml::parse(text, path));
    for (const std::string& change : changes)
      keys.add(parse_change(change));
  } catch (const toml::parse_error& error) {
    throw InputError("{}: not TOML: {}", place_of(error.source()), error.description());
  }
  Machine m{.path = path, .name = path};
  keys.read("name", m.name, text_of);
  keys.read("nodes", m.nodes, count_of, "2");
  keys.read("ranks_per_node", m.ranks_per_node, count_of, "8");
  keys.read("device.memory_rate", m.memory_rate, data_rate, "\"3 TB/s\"");
  keys.read("device.memory", m.memory, amount);
  keys.read("device.overhead", m.overhead, time_span);
  keys.read("device.processors", m.processors, count_of);
  keys.read("device.moving", m.moving, data_rate);
  for (const model::Dtype dtype : {model::Dtype::fp32, model::Dtype::bf16}) {
    const std::string table = fmt::format("device.{}.", model::name_of(dtype));
    const bool is_last = dtype == model::Dtype::bf16 && m.speeds.empty();
    const bool is_needed = is_last || keys.has(table);
    DeviceSpeed speed;
    keys.read(
        table + "products", speed.products, curve_of, is_needed ? "\"400 TFLOP/s\"" : nullptr);
    speed.attention = speed.products;
    keys.read(table + "attention", speed.attention, curve_of);
    speed.attention_backward = speed.attention;
    keys.read(table + "attention_backward", speed.attention_backward, curve_of);
    keys.read(table + "peak", speed.peak, compute_rate);
    if (is_needed)
      m.speeds[dtype] = speed;
  }
  keys.read("inside.kind",
      m.inside,
      choice_of<Inside>(
          {{"switch", Inside::network}, {"pairs", Inside::pairs}, {"memory", Inside::memory}}));
  keys.read(
      "inside.rate", m.inside_rate, data_rate, m.ranks_per_node > 1 ? "\"400 GB/s\"" : nullptr);
  keys.read("inside.latency", m.inside_latency, time_span);
  keys.read("between.adapters", m.adapters, count_of);
  keys.read("between.rate", m.rate, data_rate, m.nodes > 1 ? "\"10 Gbit/s\"" : nullptr);
  keys.read("between.taper", m.taper, share_of);
  keys.read("between.latency", m.latency, time_span);
  keys.read("between.messages", m.messages, count_of);
  keys.read("between.protocol", m.eager, choice_of<bool>({{"rendezvous", false}, {"eager", true}}));
  keys.require_complete(path);
  if (m.adapters > m.ranks_per_node)
    throw InputError("{}: between.adapters are {}, more than the {} of a node; a rank "
                     "uses one adapter",
        path,
        m.adapters,
        counted(m.ranks_per_node, "rank"));
  return m;
}

Machine read_machine(const std::string& path, const std::vector<std::string>& changes) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw InputError("machine file {} cannot be read, or is empty", path);
  return parse_machine(text.str(), path, changes);
}
}  // namespace minitaw::predict
