// SPDX-License-Identifier: Apache-2.0
#include "client/memory/named_places.h"

#include <cstring>

#include "cuda/graph_node.h"

namespace millpond::client {
namespace {

uint64_t wordIn(std::span<const std::byte> bytes, size_t at) {
  uint64_t word;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

/// Records the parts of the range that only this process has.
class Collector {
 public:
  explicit Collector(const MemoryMap& memory) : memory_(memory) {}

  void address(uint64_t at) {
    if (memory_.mayBeLocal(at)) places_.push_back(at);
  }
  /// An address may be at any offset. Words at the same distance are compared several at a time.
  void words(std::span<const std::byte> bytes) {
    for (size_t first = 0; first < sizeof(uint64_t) && first < bytes.size(); ++first)
      memory_.eachLocalAddress(0, bytes.subspan(first), [&](uint64_t word) { addPlaces(places_, word); });
  }
  void node(std::span<const std::byte> bytes) {
    for (const uint64_t each : graph::devicePlaces(bytes)) address(each);
    words(graph::partWithAddresses(bytes));
  }
  std::vector<uint64_t> take() { return std::move(places_); }

 private:
  const MemoryMap& memory_;
  std::vector<uint64_t> places_;
};

}  // namespace

std::vector<uint64_t> namedPlaces(const MemoryMap& memory, const cmd::CommandLayout& layout,
                                  std::span<const std::byte> fixed, std::span<const std::span<const std::byte>> tails) {
  Collector found(memory);
  for (const cmd::FieldLayout& field : layout.fields) {
    if (field.use == cmd::FieldUse::kAddress) found.address(wordIn(fixed, field.offset));
    if (field.use == cmd::FieldUse::kStruct) found.words(fixed.subspan(field.offset, field.bytes));
  }
  for (size_t i = 0; i < tails.size(); ++i) {
    if (layout.tailUses[i] == cmd::TailUse::kWords) found.words(tails[i]);
    if (layout.tailUses[i] == cmd::TailUse::kNode) found.node(tails[i]);
  }
  return found.take();
}

}  // namespace millpond::client
