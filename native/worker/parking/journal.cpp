// SPDX-License-Identifier: Apache-2.0
#include "worker/parking/journal.h"

#include <algorithm>

#include "protocol/wire.h"

namespace millpond::worker {
namespace {

void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

void Journal::note(cmd::Op op, uint16_t context, std::span<const std::byte> body) {
  // Copied first, because the client could change it in the meantime.
  Entry entry{op, context, {}, {}, {body.begin(), body.end()}};
  const auto of = subjectOf(op, context, entry.body);
  if (!of) return;
  entry.subject = of->subject;
  if (!of->hasContext) entry.context = 0;
  const uint64_t number = ++last_;
  if (of->valueBytes == 0) {
    if (const auto before = made_.find(of->subject); before != made_.end()) erase(before->second);
    made_[of->subject] = number;
  } else {
    const uint32_t which[] = {static_cast<uint32_t>(op), entry.context};
    append(entry.key, std::as_bytes(std::span(which)));
    append(entry.key, entry.body);
    std::fill_n(entry.key.begin() + static_cast<ptrdiff_t>(sizeof(which) + of->value), of->valueBytes, std::byte{});
    if (const auto before = settings_.find(entry.key); before != settings_.end()) erase(before->second);
    settings_[entry.key] = number;
  }
  entries_.emplace(number, std::move(entry));
}

void Journal::erase(uint64_t number) {
  const auto entry = entries_.find(number);
  if (entry->second.key.empty())
    made_.erase(entry->second.subject);
  else
    settings_.erase(entry->second.key);
  entries_.erase(entry);
}

void Journal::forgetSettings(uint16_t context) {
  prune([context](const Subject& subject) { return subject != Subject{Subject::Kind::kContext, context}; });
}

void Journal::prune(const IsThere& isThere) {
  std::vector<uint64_t> gone;
  for (const auto& [number, entry] : entries_)
    if (!isThere(entry.subject)) gone.push_back(number);
  for (const uint64_t number : gone) erase(number);
  pruned_ = entries_.size();
}

std::vector<std::byte> Journal::frames() const {
  std::vector<std::byte> out;
  for (const auto& [number, entry] : entries_) {
    const wire::CommandHeader header{static_cast<uint32_t>(sizeof(header) + entry.body.size()),
                                     static_cast<uint16_t>(entry.op), entry.context, 0, 0};
    append(out, std::as_bytes(std::span(&header, 1)));
    append(out, entry.body);
  }
  return out;
}

}  // namespace millpond::worker
