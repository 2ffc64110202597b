// SPDX-License-Identifier: Apache-2.0
// Writes results into the memory of the calling program.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "nvml/types.h"

namespace millpond::nvml {

/// Writes a text with its NUL, or nothing if there is no room for it.
inline Return put(const std::string& text, char* to, unsigned room) {
  if (text.size() + 1 > room) return kInsufficientSize;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kSuccess;
}

/// Writes all items, or only their number if there is no room.
template <typename T>
Return put(const std::vector<T>& items, unsigned* count, T* to) {
  const unsigned room = *count;
  *count = static_cast<unsigned>(items.size());
  if (items.size() > room) return kInsufficientSize;
  if (!items.empty()) std::memcpy(to, items.data(), items.size() * sizeof(T));
  return kSuccess;
}

template <typename T, typename U>
Return known(const std::optional<T>& value, U& to) {
  if (!value) return kNotSupported;
  to = *value;
  return kSuccess;
}

}  // namespace millpond::nvml
