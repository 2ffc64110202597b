// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/pages/compared_bytes.h"

#include <algorithm>
#include <cstring>

// The program's other threads may write meanwhile: unfinished writes are seen at the next comparison.
#if defined(__SANITIZE_THREAD__)
#define MILLPOND_RACY [[gnu::no_sanitize("thread"), gnu::noinline]]
#else
#define MILLPOND_RACY
#endif

namespace millpond::client {
namespace {

constexpr size_t kWord = 8;
/// Compared as a whole if nothing differs.
constexpr size_t kBlock = 256;

MILLPOND_RACY uint64_t wordAt(const std::byte* from) {
  uint64_t word;
  __builtin_memcpy(&word, from, kWord);
  return word;
}

MILLPOND_RACY bool differs(const std::byte* a, const std::byte* b, size_t bytes) {
  size_t at = 0;
  for (; at + kWord <= bytes; at += kWord)
    if (wordAt(a + at) != wordAt(b + at)) return true;
  for (; at < bytes; ++at)
    if (a[at] != b[at]) return true;
  return false;
}

MILLPOND_RACY void copyRacy(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
}

}  // namespace

MILLPOND_RACY ComparedBytes::Run ComparedBytes::nextChange(size_t from) const {
  const std::byte* now = here();
  const std::byte* last = last_.data();
  const auto differ = [&](size_t at, size_t most) {
    return differs(now + at, last + at, std::min(most, bytes() - at));
  };
  while (from < bytes() && !differ(from, kBlock)) from = std::min(bytes(), from + kBlock);
  while (from < bytes() && now[from] == last[from]) ++from;
  // Word by word, because numbers are written as words, some of whose bytes stay the same; up to the last byte that
  // differs.
  size_t end = from;
  for (size_t word = from; word < bytes() && differ(word, kWord); word += kWord) end = std::min(bytes(), word + kWord);
  while (end > from && now[end - 1] == last[end - 1]) --end;
  return {from, end - from};
}

void ComparedBytes::keep(Run run) { copyRacy(last_.data() + run.offset, here() + run.offset, run.bytes); }

MILLPOND_RACY std::optional<ComparedBytes::Word> ComparedBytes::onlyChange() const {
  const Run first = nextChange(0);
  if (first.bytes == 0) return Word{};
  const size_t before = (address_ + first.offset) % kWord;
  const size_t begin = first.offset - std::min(first.offset, before);
  const size_t end = std::min(bytes(), first.offset - before + kWord);
  if (first.offset + first.bytes > end || nextChange(end).bytes != 0) return std::nullopt;
  std::byte now[kWord] = {};
  // Read in one access, as the program writes it, except if it shares its word with memory that is not compared.
  if (end - begin == kWord)
    __builtin_memcpy(now, here() + begin, kWord);
  else
    for (size_t at = begin; at < end; ++at) now[at - begin] = here()[at];
  Word word;
  for (size_t at = begin; at < end; ++at) {
    if (now[at - begin] == last_[at]) continue;
    if (word.bytes == 0) word.offset = at;
    word.bytes = at + 1 - word.offset;
  }
  std::copy_n(now + (word.offset - begin), word.bytes, word.now.begin());
  return word;
}

void ComparedBytes::keep(const Word& word) {
  std::copy_n(word.now.begin(), word.bytes, last_.begin() + static_cast<ptrdiff_t>(word.offset));
}

MILLPOND_RACY std::optional<uint64_t> ComparedBytes::changed(uint64_t address, size_t bytes) const {
  const size_t offset = address - address_;
  const bool isWord = bytes == sizeof(uint32_t) || bytes == sizeof(uint64_t);
  if (!isWord || offset > last_.size() || bytes > last_.size() - offset) return std::nullopt;
  uint64_t now = 0, last = 0;
  // Read in one access, as the program writes it, so that no half-written word is seen.
  if (bytes == sizeof(uint32_t))
    __builtin_memcpy(&now, here() + offset, sizeof(uint32_t));
  else
    __builtin_memcpy(&now, here() + offset, sizeof(uint64_t));
  std::memcpy(&last, last_.data() + offset, bytes);
  return now == last ? std::nullopt : std::optional(now);
}

void ComparedBytes::merge(size_t offset, std::span<const std::byte> now) {
  std::byte* last = last_.data() + offset;
  for (size_t block = 0; block < now.size(); block += kBlock) {
    const size_t bytes = std::min(kBlock, now.size() - block);
    if (std::memcmp(last + block, now.data() + block, bytes) == 0) continue;
    eachDifference(std::span<const std::byte>(last + block, bytes), now.subspan(block, bytes),
                   [&](size_t at, size_t length) {
                     copyRacy(here() + offset + block + at, now.data() + block + at, length);
                     std::memcpy(last + block + at, now.data() + block + at, length);
                   });
  }
}

}  // namespace millpond::client
