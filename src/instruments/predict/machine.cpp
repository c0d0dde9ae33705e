// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/machine.hpp"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>
#include <fstream>
#include <ranges>
#include <regex>
#include <set>
#include <sstream>
#include <toml++/toml.hpp>
#include "base/error.hpp"

namespace minitaw::predict {
namespace {
/// A dimension: units with their factors, to which SI prefixes are put, and an example for
/// messages.
struct Dimension {
  std::vector<std::pair<std::string_view, double>> units;
  std::string_view example;
};

const Dimension data_rate{{{"bit/s", 1.0 / 8}, {"B/s", 1}}, "10 Gbit/s"};
const Dimension compute_rate{{{"FLOP/s", 1}}, "400 TFLOP/s"};
const Dimension work{{{"FLOP", 1}}, "1 GFLOP"};
const Dimension time_span{{{"s", 1}}, "5 us"};
const Dimension amount{{{"B", 1}}, "80 GB"};

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

double quantity(std::string_view text, const Dimension& dimension, bool zero) {
  const auto wrong = [&](const char* what) {
    return InputError(fmt::format("{}; write for example \"{}\"", what, dimension.example));
  };
  double value = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || !std::isfinite(value))
    throw wrong("does not begin with a number");
  std::string_view unit(rest, text.data() + text.size() - rest);
  while (unit.starts_with(' '))
    unit.remove_prefix(1);
  if (value < 0 || (value == 0 && !zero))
    throw InputError(zero ? "is below zero" : "is not above zero");
  for (const auto& [name, factor] : dimension.units)
    if (unit.ends_with(name))
      if (const auto prefix = prefixes.find(unit.substr(0, unit.size() - name.size()));
          prefix != prefixes.end())
        return value * prefix->second * factor;
  throw wrong(unit.empty() ? "has no unit" : "has a unit that does not fit");
}

/// A table of the file; it remembers which keys were asked for, so that the others are found out.
class Table {
public:
  Table(const toml::table& table, std::string prefix, const std::string& path)
      : table_(table),
        prefix_(std::move(prefix)),
        path_(path) {}

  bool has(const std::string& key) {
    known_.insert(key);
    return table_.contains(key);
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    const toml::node* node = table_.get(key);
    const auto line =
        (node != nullptr ? *node : static_cast<const toml::node&>(table_)).source().begin.line;
    const std::string where = line > 0 ? fmt::format("{}:{}", path_, line)
                                       : path_;  // a table that is missing has no line
    throw InputError(fmt::format("{}: {}{} {}", where, prefix_, key, what));
  }

  std::string text(const std::string& key, const std::string& otherwise) {
    if (!has(key))
      return otherwise;
    if (const auto value = table_.get(key)->value<std::string>())
      return *value;
    refuse(key, "must be a text");
  }

  template <class Choice>
  Choice choice(
      const std::string& key, const std::vector<std::pair<std::string, Choice>>& choices) {
    const std::string value = text(key, choices.front().first);
    const auto chosen = std::ranges::find(choices, value, [](const auto& c) { return c.first; });
    if (chosen != choices.end())
      return chosen->second;
    const std::vector<std::string> names = list_of(choices | std::views::keys);
    refuse(key,
        fmt::format("is \"{}\", and not one of {}{}",
            value,
            fmt::join(names, ", "),
            did_you_mean(value, names)));
  }

  /// `otherwise` where the key is not there; without it, the key must be. So in what follows.
  int count(const std::string& key, std::optional<int> otherwise = std::nullopt) {
    if (!has(key))
      return otherwise ? *otherwise : missing(key, "2");
    const auto value = table_.get(key)->as_integer();
    if (value == nullptr || value->get() < 1 || value->get() > 1'000'000)
      refuse(key, "must be a whole number from 1 to 1000000");
    return static_cast<int>(value->get());
  }

  double number(const std::string& key,
      const Dimension& dimension,
      std::optional<double> otherwise = std::nullopt) {
    if (!has(key))
      return otherwise ? *otherwise : missing(key, dimension.example);
    return read(key, *table_.get(key), dimension, otherwise == 0.0);
  }

  double factor(const std::string& key, double otherwise) {
    if (!has(key))
      return otherwise;
    const std::optional<double> value = table_.get(key)->value<double>();
    if (!value || !(*value > 0) || !std::isfinite(*value))
      refuse(key, "must be a number above zero");
    return *value;
  }

  /// "0-3,8", or one number; each below `count`.
  std::set<int> numbers(const std::string& key, int count) {
    static const std::regex range(" *([0-9]{1,7})(?:-([0-9]{1,7}))? *");
    const auto value = has(key) ? table_[key].value<std::int64_t>() : std::nullopt;
    std::istringstream parts(
        value ? std::to_string(*value) : table_[key].value<std::string>().value_or("none"));
    std::set<int> found;
    std::smatch ends;
    for (std::string part; std::getline(parts, part, ',');) {
      if (!std::regex_match(part, ends, range) ||
          (ends[2].matched && std::stoi(ends[2]) < std::stoi(ends[1])))
        refuse(key, R"(must be numbers like "0-3,8")");
      const int first = std::stoi(ends[1]), last = ends[2].matched ? std::stoi(ends[2]) : first;
      if (last >= count)
        refuse(key, fmt::format("has {}, but they are 0 to {}", last, count - 1));
      for (int number = first; number <= last; ++number)
        found.insert(number);
    }
    return found;
  }

  /// A rate for all sizes, or a list of sizes with their rates.
  Curve curve(const std::string& key, const std::optional<Curve>& otherwise = std::nullopt) {
    if (!has(key) && otherwise)
      return *otherwise;
    const toml::array* points = table_[key].as_array();
    if (points == nullptr)
      return {{{1, number(key, compute_rate)}}};
    Curve curve;
    for (const toml::node& point : *points) {
      const toml::array* pair = point.as_array();
      if (pair == nullptr || pair->size() != 2)
        refuse(key,
            R"(must be a rate, or a list like [["1 GFLOP", "50 TFLOP/s"], ["1 TFLOP", "600 TFLOP/s"]])");
      const double size = read(key, *pair->get(0), work, false);
      if (!curve.points.empty() && size <= curve.points.back().first)
        refuse(key, "must have sizes in ascending order");
      curve.points.emplace_back(size, read(key, *pair->get(1), compute_rate, false));
    }
    if (curve.points.empty())
      refuse(key, "is an empty list");
    return curve;
  }

  /// An empty one if there is no such key.
  Table table(const std::string& key) {
    static const toml::table empty;
    const toml::table* const inner = has(key) ? table_.get(key)->as_table() : &empty;
    if (inner == nullptr)
      refuse(key, "must be a table");
    return {*inner, prefix_ + key + ".", path_};
  }

  /// The tables of a list; none if there is no such key.
  std::vector<Table> tables(const std::string& key) {
    std::vector<Table> all;
    if (!has(key))
      return all;
    const toml::array* const list = table_.get(key)->as_array();
    if (list == nullptr || !list->is_homogeneous<toml::table>())
      refuse(key, "must be a list of tables");
    for (std::size_t i = 0; i < list->size(); ++i)
      all.emplace_back(*list->get(i)->as_table(), fmt::format("{}{}[{}].", prefix_, key, i), path_);
    return all;
  }

  /// Refuses keys that were not read.
  void finish() const {
    for (const auto& [key, node] : table_)
      if (const std::string name(key.str()); !known_.contains(name))
        refuse(name,
            fmt::format(
                "is no key of a machine{}", did_you_mean(name, {known_.begin(), known_.end()})));
  }

private:
  [[noreturn]] int missing(const std::string& key, std::string_view example) const {
    refuse(key, fmt::format("is missing; write for example \"{}\"", example));
  }

  double read(
      const std::string& key, const toml::node& node, const Dimension& dimension, bool zero) const {
    const auto value = node.value_exact<std::string>();
    if (!value)
      refuse(key, fmt::format("has no unit; write for example \"{}\"", dimension.example));
    try {
      return quantity(*value, dimension, zero);
    } catch (const InputError& error) {
      refuse(key, fmt::format("is \"{}\", which {}", *value, error.what()));
    }
  }

  const toml::table& table_;
  std::string prefix_;
  const std::string& path_;
  std::set<std::string> known_;
};

Speed read_speed(Table table) {
  Speed speed;
  Table actions = table.table("actions");
  using schedule::Kind;
  for (const Kind kind :
      {Kind::forward, Kind::backward, Kind::backward_input, Kind::backward_weight, Kind::loss})
    if (const std::string key(name_of(kind)); actions.has(key))
      speed.actions[kind] = actions.number(key, compute_rate);
  actions.finish();
  speed.peak = table.number("peak", compute_rate, 0);
  speed.products = table.curve("products");
  speed.attention = table.curve("attention", speed.products);
  speed.attention_backward = table.curve("attention_backward", speed.attention);
  table.finish();
  return speed;
}

/// Keeps what the table does not name.
void read_own(Table& table, Own& own) {
  own.speed = table.factor("speed", own.speed);
  if (table.has("memory"))
    own.memory = static_cast<std::uint64_t>(table.number("memory", amount));
}

void read_devices(Table table, Machine& machine) {
  Device& device = machine.device;
  for (const model::Dtype dtype : {model::Dtype::fp32, model::Dtype::bf16})
    if (table.has(model::name_of(dtype)))
      device.speeds[dtype] = read_speed(table.table(model::name_of(dtype)));
  if (device.speeds.empty())
    table.refuse("bf16", "is missing: a table with the device's rates in a precision");
  device.memory_rate = table.number("memory_rate", data_rate);
  device.overhead = table.number("overhead", time_span, 0);
  Own own;
  read_own(table, own);
  machine.own.assign(machine.ranks(), own);
  if (table.has("processors"))
    machine.processors = table.count("processors");
  machine.pools = std::min(table.count("pools", machine.nodes), machine.nodes);
  machine.moving = table.number("moving", data_rate, 0);
  table.finish();
}

/// Replaces what others have left of the devices of some ranks, and of the adapters that these
/// ranks use.
void read_exception(Table& exception, Machine& machine) {
  if (exception.has("between") && machine.topology != Topology::one_switch)
    exception.refuse("between", "needs adapters at one switch: between.topology = \"switch\"");
  const bool whole = exception.has("nodes");
  const int size = whole ? machine.ranks_per_node : 1;
  for (const int first : exception.numbers(whole ? "nodes" : "ranks", machine.ranks() / size))
    for (int rank = first * size; rank < (first + 1) * size; ++rank) {
      Table device = exception.table("device"), between = exception.table("between");
      read_own(device, machine.own[rank]);
      device.finish();
      double& rate = machine.rates[machine.adapter_of(rank)];
      rate = between.number("rate", data_rate, rate);
      between.finish();
    }
  exception.finish();
  machine.alike = false;
}

void read_inside(Table table, Machine& machine) {
  machine.inside = table.choice<Inside>(
      "kind", {{"switch", Inside::network}, {"pairs", Inside::pairs}, {"memory", Inside::memory}});
  machine.inside_rate = table.number("rate", data_rate);
  machine.inside_latency = table.number("latency", time_span, 0);
  table.finish();
}

void read_between(Table table, Machine& machine) {
  machine.adapters = table.count("adapters", 1);
  machine.rate = table.number("rate", data_rate);
  machine.latency = table.number("latency", time_span, 0);
  machine.topology = table.choice<Topology>("topology",
      {{"switch", Topology::one_switch},
          {"fat tree", Topology::fat_tree},
          {"dragonfly", Topology::dragonfly}});
  machine.messages = table.count("messages", 1);
  machine.eager = table.choice<bool>("protocol", {{"rendezvous", false}, {"eager", true}});
  if (machine.topology == Topology::fat_tree) {
    machine.leaf = table.count("leaf");
    machine.spines = table.count("spines", machine.leaf);
  }
  if (machine.topology == Topology::dragonfly) {
    machine.dragonfly_groups = table.count("groups");
    machine.chassis = table.count("chassis", 1);
    machine.routers = table.count("routers");
    machine.group_links = table.count("group_links", 1);
    machine.chassis_links = table.count("chassis_links", 1);
    machine.router_links = table.count("router_links", 1);
  }
  const auto refuse_unless =
      [&](Topology topology, const char* network, std::initializer_list<const char*> keys) {
        for (const char* key : keys)
          if (machine.topology != topology && table.has(key))
            table.refuse(key, fmt::format("is a key of {}, and not of this topology", network));
      };
  refuse_unless(Topology::fat_tree, "a fat tree", {"leaf", "spines"});
  refuse_unless(Topology::dragonfly,
      "a dragonfly",
      {"groups", "chassis", "routers", "group_links", "chassis_links", "router_links"});
  if (machine.adapters > machine.ranks_per_node)
    table.refuse("adapters",
        fmt::format("are {}, more than the {} of a node; a rank uses one adapter",
            machine.adapters,
            counted(machine.ranks_per_node, "rank")));
  table.finish();
}

/// "between.rate=25 Gbit/s": what is no TOML is a text.
toml::table parse_change(const std::string& change) {
  const std::size_t equals = change.find('=');
  if (equals == std::string::npos)
    throw InputError(fmt::format(
        "--machine-set {}: write key=value, for example between.rate=25 Gbit/s", change));
  try {
    return toml::parse(change);
  } catch (const toml::parse_error&) {
    return toml::parse(fmt::format("{}='{}'", change.substr(0, equals), change.substr(equals + 1)));
  }
}

void merge(toml::table& into, const toml::table& changes) {
  for (const auto& [key, change] : changes)
    if (toml::table* const inner = into[key.str()].as_table();
        inner != nullptr && change.is_table())
      merge(*inner, *change.as_table());
    else
      change.visit([&](const auto& node) { into.insert_or_assign(key.str(), node); });
}
}  // namespace

Machine parse_machine(
    const std::string& text, const std::string& path, const std::vector<std::string>& changes) {
  toml::table root;
  try {
    root = toml::parse(text);
    for (const std::string& change : changes)
      merge(root, parse_change(change));
  } catch (const toml::parse_error& error) {
    throw InputError(
        fmt::format("{}:{}: not TOML: {}", path, error.source().begin.line, error.description()));
  }
  Table table(root, "", path);
  Machine machine;
  machine.path = path;
  machine.name = table.text("name", path);
  machine.nodes = table.count("nodes");
  machine.ranks_per_node = table.count("ranks_per_node");
  read_devices(table.table("device"), machine);
  if (Table inside = table.table("inside"); machine.ranks_per_node > 1 || table.has("inside"))
    read_inside(std::move(inside), machine);
  if (Table between = table.table("between"); machine.nodes > 1 || table.has("between"))
    read_between(std::move(between), machine);
  machine.rates.assign(machine.all_adapters(), machine.rate);
  for (Table& exception : table.tables("exceptions"))
    read_exception(exception, machine);
  table.finish();
  const int routers = machine.dragonfly_groups * machine.chassis * machine.routers;
  if (machine.topology == Topology::dragonfly && routers < 2)
    throw InputError(fmt::format(
        "{}: a dragonfly of one router is a switch; write topology = \"switch\"", path));
  return machine;
}

Machine read_machine(const std::string& path, const std::vector<std::string>& changes) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw InputError(fmt::format("machine file {} cannot be read, or is empty", path));
  return parse_machine(text.str(), path, changes);
}
}  // namespace minitaw::predict
