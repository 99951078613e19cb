#include "transport/url.h"

#include <algorithm>
#include <charconv>

namespace ina::client {
namespace {

std::string quoted(std::string_view text) {
  return '"' + std::string(text) + '"';
}

tl::unexpected<Error> invalid(std::string_view url, const std::string& what) {
  return fail(INA_ERR_INVALID, "URL " + quoted(url) + ": " + what);
}

/// Whole text as a decimal number; false if it is none or too large.
bool to_number(std::string_view text, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  Url url{.text = std::string(text), .scheme = {}, .path = {}, .query = {}};
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0)
    return invalid(text, "there is no scheme before the path, such as shm: or memif:.");
  url.scheme = text.substr(0, colon);
  if (!std::ranges::all_of(url.scheme, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
      }))
    return invalid(text, "the scheme " + quoted(url.scheme) + " is not made of a-z, 0-9, _ and -.");
  const size_t question = std::min(text.find('?', colon), text.size());
  url.path = text.substr(colon + 1, question - colon - 1);
  if (url.path.empty()) return invalid(text, "there is no path behind " + quoted(url.scheme + ":"));

  for (size_t begin = question + 1; begin < text.size();) {
    const size_t end = std::min(text.find('&', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return invalid(text, quoted(part) + " is not of the form key=value.");
    const std::string key(part.substr(0, equals));
    if (!url.query.emplace(key, part.substr(equals + 1)).second)
      return invalid(text, quoted(key) + " is given twice.");
    begin = end + 1;
  }
  return url;
}

std::string Url::get(std::string_view key, std::string_view otherwise) const {
  const auto found = query.find(key);
  return found == query.end() ? std::string(otherwise) : found->second;
}

Result<uint64_t> Url::number(std::string_view key, uint64_t otherwise, uint64_t minimum,
                             uint64_t maximum) const {
  const auto found = query.find(key);
  if (found == query.end()) return otherwise;
  uint64_t number = 0;
  if (!to_number(found->second, number) || number < minimum || number > maximum)
    return invalid(text, std::string(key) + '=' + found->second + " is not a number within " +
                             std::to_string(minimum) + ".." + std::to_string(maximum) + '.');
  return number;
}

Result<uint32_t> Url::ipv4(std::string_view key) const {
  const auto found = query.find(key);
  if (found == query.end())
    return invalid(text, quoted(key) + " is missing: the worker's own IPv4 address.");
  const auto address = parse_ipv4(found->second);
  if (!address) return invalid(text, std::string(key) + ": " + address.error().text);
  return *address;
}

Result<void> Url::check_keys(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : query) {
    if (std::ranges::find(known, key) != known.end()) continue;
    std::string list;
    for (const std::string_view name : known) {
      if (!list.empty()) list += ", ";
      list += name;
    }
    return invalid(text, quoted(key) + " is not known to " + scheme + "; it takes " + list + '.');
  }
  return {};
}

Result<uint32_t> parse_ipv4(std::string_view text) {
  uint32_t address = 0;
  size_t begin = 0;
  for (int part = 0; part < 4; ++part) {
    const size_t end = part == 3 ? text.size() : text.find('.', begin);
    uint64_t number = 0;
    if (end == std::string_view::npos || !to_number(text.substr(begin, end - begin), number) ||
        number > 255)
      return fail(INA_ERR_INVALID, quoted(text) + " is not an IPv4 address such as 10.0.0.2.");
    address = address << 8 | static_cast<uint32_t>(number);
    begin = end + 1;
  }
  return address;
}

}  // namespace ina::client
