// SPDX-License-Identifier: Apache-2.0
#include "worker/profile/profile_lines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "names/readable_name.h"

namespace millpond::worker {
namespace {

/// Longer names are truncated: those of templates can have megabytes.
constexpr size_t kMostName = kMostReadable;
/// Names that differ only behind this length are one name.
constexpr size_t kMostMangled = 4096;
/// Further names are shown as unknown.
constexpr size_t kMostNames = 16384;

/// Tab-separated fields, in a buffer on the stack.
class Line {
 public:
  explicit Line(char kind) { buffer_[length_++] = kind; }
  template <typename T>
  Line& field(T value) {
    buffer_[length_++] = '\t';
    const auto done = std::to_chars(buffer_.data() + length_, buffer_.data() + buffer_.size() - 1, value);
    length_ = static_cast<size_t>(done.ptr - buffer_.data());
    return *this;
  }
  std::string_view end() {
    buffer_[length_++] = '\n';
    return {buffer_.data(), length_};
  }

 private:
  std::array<char, 512> buffer_;
  size_t length_ = 0;
};

}  // namespace

uint32_t ProfileLines::numberOf(const char* name) {
  std::string mangled = name ? std::string(name, ::strnlen(name, kMostMangled)) : "?";
  if (names_.size() >= kMostNames && !names_.contains(mangled)) mangled = "?";
  if (const auto known = names_.find(mangled); known != names_.end()) return known->second;
  const auto number = static_cast<uint32_t>(names_.size() + 1);
  names_.emplace(mangled, number);
  append("name\t" + std::to_string(number) + "\t" + Json(readableName(mangled).substr(0, kMostName)).dump() + "\t" +
         Json(mangled.substr(0, kMostName)).dump() + "\n");
  return number;
}

void ProfileLines::nameDevices(std::vector<int> devices) {
  const std::lock_guard lock(mutex_);
  devices_ = std::move(devices);
}

uint32_t ProfileLines::placeOf(uint32_t device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), static_cast<int>(device));
  return found == devices_.end() ? device : static_cast<uint32_t>(found - devices_.begin());
}

void ProfileLines::append(std::string_view line) { lines_ += line; }

void ProfileLines::add(const cupti::KernelRecord& kernel) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() - taken_ > kMostBytes) {
    ++lost_;
    return;
  }
  const uint32_t name = numberOf(kernel.name);
  Line line('k');
  line.field(kernel.start).field(kernel.end).field(placeOf(kernel.device)).field(kernel.context).field(kernel.stream);
  line.field(kernel.correlation).field(name);
  for (const int32_t each :
       {kernel.grid[0], kernel.grid[1], kernel.grid[2], kernel.block[0], kernel.block[1], kernel.block[2]})
    line.field(each);
  line.field(uint32_t{kernel.registersPerThread}).field(kernel.staticSharedBytes).field(kernel.dynamicSharedBytes);
  append(line.end());
}

void ProfileLines::add(const cupti::CopyRecord& copy) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() - taken_ > kMostBytes) {
    ++lost_;
    return;
  }
  Line line('c');
  line.field(copy.start)
      .field(copy.end)
      .field(placeOf(copy.device))
      .field(copy.context)
      .field(copy.stream)
      .field(copy.correlation);
  line.field(static_cast<unsigned>(copy.copy))
      .field(static_cast<unsigned>(copy.from))
      .field(static_cast<unsigned>(copy.to));
  append(line.field(copy.bytes).end());
}

void ProfileLines::add(const cupti::PeerCopyRecord& copy) {
  add(cupti::CopyRecord{cupti::Kind::kCopy, cupti::CopyKind::kPeerToPeer, copy.from, copy.to, copy.flags, copy.bytes,
                        copy.start, copy.end, copy.device, copy.context, copy.stream, copy.correlation});
}

void ProfileLines::add(const cupti::FillRecord& fill) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() - taken_ > kMostBytes) {
    ++lost_;
    return;
  }
  Line line('f');
  line.field(fill.start)
      .field(fill.end)
      .field(placeOf(fill.device))
      .field(fill.context)
      .field(fill.stream)
      .field(fill.correlation);
  append(line.field(fill.value).field(fill.bytes).end());
}

void ProfileLines::addCommand(uint32_t correlation, uint32_t thread, uint64_t position) {
  const std::lock_guard lock(mutex_);
  // The record that would refer to the name is dropped as well.
  if (lines_.size() - taken_ > kMostBytes) return;
  append(Line('t').field(correlation).field(thread).field(position).end());
}

void ProfileLines::lose(uint64_t records) {
  const std::lock_guard lock(mutex_);
  lost_ += records;
}

ProfileLines::Page ProfileLines::take(size_t mostBytes) {
  const std::lock_guard lock(mutex_);
  Page page;
  page.lost = lost_;
  const size_t left = lines_.size() - taken_;
  size_t bytes = left;
  if (left > mostBytes) {
    const size_t newline = lines_.rfind('\n', taken_ + mostBytes - 1);
    bytes = newline == std::string::npos || newline < taken_ ? 0 : newline + 1 - taken_;
  }
  page.lines.assign(lines_, taken_, bytes);
  taken_ += bytes;
  page.hasMore = taken_ < lines_.size();
  // A client may take less than is added, and never the last line.
  if (!page.hasMore || taken_ >= kMostBytes) {
    lines_.erase(0, taken_);
    taken_ = 0;
  }
  return page;
}

}  // namespace millpond::worker
