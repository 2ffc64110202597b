// SPDX-License-Identifier: Apache-2.0
#include "client/attach/visible_devices.h"

#include <strings.h>

#include <algorithm>
#include <charconv>

namespace millpond::client {

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<uint16_t> byUuid(std::span<const DeviceSnapshot> devices, std::string_view text) {
  std::optional<uint16_t> found;
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::string uuid = uuidText(devices[i].uuid);
    if (text.size() > uuid.size() || ::strncasecmp(uuid.data(), text.data(), text.size()) != 0) continue;
    if (found) return std::nullopt;  // not unique
    found = static_cast<uint16_t>(i);
  }
  return found;
}

std::optional<uint16_t> byOrdinal(size_t count, std::string_view text) {
  uint16_t ordinal = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), ordinal);
  if (text.empty() || error != std::errc() || stop != text.data() + text.size() || ordinal >= count)
    return std::nullopt;
  return ordinal;
}

}  // namespace

std::string uuidText(std::span<const uint8_t, 16> uuid) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text.push_back('-');
    text.push_back(kHex[uuid[i] >> 4]);
    text.push_back(kHex[uuid[i] & 15]);
  }
  return text;
}

std::optional<std::vector<uint16_t>> visibleDevices(std::span<const DeviceSnapshot> devices,
                                                    std::optional<std::string_view> variable) {
  std::vector<uint16_t> visible;
  if (!variable) {
    for (size_t i = 0; i < devices.size(); ++i) visible.push_back(static_cast<uint16_t>(i));
    return visible;
  }
  std::string_view rest = *variable;
  for (;;) {
    const size_t comma = rest.find(',');
    const std::string_view item = trimmed(rest.substr(0, comma));
    const auto device = item.starts_with("GPU-") ? byUuid(devices, item) : byOrdinal(devices.size(), item);
    if (!device) return visible;
    if (std::find(visible.begin(), visible.end(), *device) != visible.end()) return std::nullopt;
    visible.push_back(*device);
    if (comma == std::string_view::npos) return visible;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace millpond::client
