// SPDX-License-Identifier: Apache-2.0
#include "cupti/work.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.h"

namespace millpond::profiler {
namespace {

constexpr size_t kMostFields = 17;
/// The minimum number of commands that are remembered for later records.
constexpr size_t kMostCommands = size_t{1} << 19;

struct Fields {
  std::array<std::string_view, kMostFields> texts;
  size_t count = 0;

  explicit Fields(std::string_view line) {
    while (count < kMostFields) {
      const size_t tab = std::min(line.find('\t'), line.size());
      texts[count++] = line.substr(0, tab);
      if (tab == line.size()) return;
      line.remove_prefix(tab + 1);
    }
    // More fields than any line has.
    count = 0;
  }

  bool number(size_t index, uint64_t& out) const {
    const std::string_view text = texts[index];
    const auto done = std::from_chars(text.data(), text.data() + text.size(), out);
    return done.ec == std::errc() && done.ptr == text.data() + text.size();
  }
};

}  // namespace

void WorkReader::add(std::string_view lines) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    addLine(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

void WorkReader::addName(std::string_view number, std::string_view name) {
  uint64_t key = 0;
  const auto done = std::from_chars(number.data(), number.data() + number.size(), key);
  const auto text = Json::parse(name);
  if (done.ec != std::errc() || !text || !text->string()) return;
  numberedNames_[key] = names_.insert(*text->string()).first->c_str();
}

void WorkReader::addLine(std::string_view line) {
  const Fields fields(line);
  const std::string_view kind = fields.count > 0 ? fields.texts[0] : std::string_view();
  if (kind == "name" && fields.count == 4) return addName(fields.texts[1], fields.texts[3]);
  std::array<uint64_t, kMostFields> numbers{};
  for (size_t i = 1; i < fields.count; ++i)
    if (!fields.number(i, numbers[i])) return;
  if (kind == "t" && fields.count == 4) {
    if (commands_.size() >= kMostCommands) earlierCommands_ = std::exchange(commands_, {});
    commands_[static_cast<uint32_t>(numbers[1])] = {static_cast<uint32_t>(numbers[2]), numbers[3]};
    return;
  }
  Work work;
  if (kind == "k" && fields.count == 17)
    work.kind = kConcurrentKernel;
  else if (kind == "c" && fields.count == 11)
    work.kind = kCopy;
  else if (kind == "f" && fields.count == 9)
    work.kind = kFill;
  else
    return;
  work.start = static_cast<int64_t>(numbers[1]);
  work.end = static_cast<int64_t>(numbers[2]);
  work.device = static_cast<uint32_t>(numbers[3]);
  work.context = static_cast<uint32_t>(numbers[4]);
  work.stream = static_cast<uint32_t>(numbers[5]);
  work.correlation = static_cast<uint32_t>(numbers[6]);
  std::copy(numbers.begin() + 7, numbers.end(), work.numbers.begin());
  if (work.kind == kConcurrentKernel) {
    const auto name = numberedNames_.find(work.numbers[0]);
    if (name == numberedNames_.end()) return;
    work.name = name->second;
  }
  if (work.end >= work.start) work_.push_back(work);
}

std::vector<Work> WorkReader::take() { return std::exchange(work_, {}); }

const CommandPlace* WorkReader::commandOf(uint32_t correlation) const {
  if (const auto found = commands_.find(correlation); found != commands_.end()) return &found->second;
  const auto earlier = earlierCommands_.find(correlation);
  return earlier == earlierCommands_.end() ? nullptr : &earlier->second;
}

}  // namespace millpond::profiler
