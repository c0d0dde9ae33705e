#include "deck/expand.hpp"
#include "deck/keys.hpp"
#include "deck/source.hpp"

namespace minitaw::deck {

Deck read_deck(const std::string& path, const std::vector<std::string>& overrides, const Job& job) {
  return make_deck(read_text(path), path, overrides, job);
}

Deck make_deck(const std::string& text, const std::string& path, const std::vector<std::string>& overrides,
               const Job& job) {
  Deck deck{path, text, overrides, {}, {}};
  Settings settings;
  for (Setting& setting : parse_toml(text, path)) {
    const std::string name = require_key(setting.key, setting.where)->name;
    settings[name] = std::move(setting);
  }
  for (const std::string& override : overrides) {
    const Key* key = require_key(override_key(override), "--set");
    settings[key->name] = parse_override(override, key->axis || key->list);
  }
  expand(settings, job, deck);
  return deck;
}

}  // namespace minitaw::deck
