#include "record/seal.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.hpp"

namespace minitaw::record {

namespace {

constexpr std::string_view words = "miniTaw result, schema ";

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::uint32_t crc32_of(Bytes bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<z_size_t>(bytes.size())));
}

std::string seal_text(std::int64_t schema, std::uint64_t length, std::uint32_t crc) {
  const std::string line = fmt::format("{}{}, {} bytes, crc32 {:08x}\n", words, schema, length, crc);
  return fmt::format("{:<{}}\n", line, seal_size - 1);
}

/// Takes a number, and the words that follow it, off the front of the text; nothing if they are not there.
template <class T>
std::optional<T> take(std::string_view& text, std::string_view after, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.starts_with(after)) return std::nullopt;
  text.remove_prefix(after.size());
  return value;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw InputError(fmt::format("{} is damaged or was changed after it was written: {}", path, what));
}

}  // namespace

std::string make_seal(std::int64_t schema, Bytes image) {
  return seal_text(schema, image.size(), crc32_of(image));
}

bool has_seal(Bytes file) { return text_of(file).starts_with(words); }

std::string too_new(const std::string& path, std::int64_t schema, std::int64_t newest) {
  return fmt::format("{} has schema version {}, this program reads up to {}; use a newer minitaw", path,
                     schema, newest);
}

Unsealed unseal(Bytes file, std::int64_t newest, const std::string& path) {
  const std::string_view seal = text_of(file.first(std::min(seal_size, file.size())));
  std::string_view left = seal.substr(words.size());
  const auto schema = take<std::int64_t>(left, "");
  if (schema && *schema > newest) throw InputError(too_new(path, *schema, newest));  // whatever follows
  left.remove_prefix(std::min<std::size_t>(2, left.size()));
  const auto length = take<std::uint64_t>(left, " bytes, crc32 ");
  const auto crc = take<std::uint32_t>(left, "\n", 16);
  // Made again, it has to be the same to the last space.
  if (!schema || *schema < first_sealed_schema || !length || !crc ||
      seal_text(*schema, *length, *crc) != seal)
    refuse(path, fmt::format("its seal, the first {} bytes, cannot be understood", seal_size));
  const Bytes image = file.subspan(seal_size);
  if (image.size() != *length)
    refuse(path,
           fmt::format("{}, {} of {} bytes", image.size() < *length ? "truncated" : "longer than it was",
                       file.size(), *length + seal_size));
  if (crc32_of(image) != *crc) refuse(path, "its checksum differs from the one in its seal");
  return {*schema, image};
}

}  // namespace minitaw::record
