// SPDX-License-Identifier: Apache-2.0
// Every command of the table, with an address of pinned memory wherever it has room for one.
#include "client/memory/named_places.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/graph_node.h"
#include "testing/check.h"

namespace millpond::client {
namespace {

constexpr uint64_t kPinned = 0x7000'0000'0000;
constexpr uint64_t kBytes = 0x1000;
constexpr uint64_t kInside = kPinned + 0x128;

struct WithPinned : MemoryMap {
  WithPinned() {
    MemoryRun run;
    run.address = kPinned;
    run.bytes = kBytes;
    run.kind = MemoryKind::kPinnedLocal;
    add(run);
  }
};

using Bytes = std::vector<std::byte>;

/// Whether a command with that fixed part and these tails refers to the pinned memory.
bool leadsThere(const MemoryMap& memory, const cmd::CommandLayout& layout, const Bytes& fixed,
                const std::vector<Bytes>& tails) {
  const std::vector<std::span<const std::byte>> all(tails.begin(), tails.end());
  const std::vector<uint64_t> places = namedPlaces(memory, layout, fixed, all);
  return std::any_of(places.begin(), places.end(), [&](uint64_t place) { return memory.find(place).has_value(); });
}

void put(Bytes& bytes, size_t at, uint64_t word) { std::memcpy(bytes.data() + at, &word, sizeof(word)); }

std::string nameOf(const cmd::CommandLayout& layout, const char* field) {
  return std::string(cmd::opName(layout.op)) + "." + field;
}

TEST("every address of every command leads to its memory, and nothing else does") {
  const WithPinned memory;
  size_t addresses = 0, structs = 0;
  for (const cmd::CommandLayout& layout : cmd::kCommandLayouts) {
    const std::vector<Bytes> tails(layout.tails);
    for (const cmd::FieldLayout& field : layout.fields) {
      if (field.use == cmd::FieldUse::kTailBytes) continue;
      const bool isAddress = field.use == cmd::FieldUse::kAddress;
      const bool isStruct = field.use == cmd::FieldUse::kStruct;
      addresses += isAddress;
      structs += isStruct;
      for (size_t at = 0; at + sizeof(uint64_t) <= field.bytes; at += sizeof(uint64_t)) {
        Bytes fixed(layout.fixedBytes);
        put(fixed, field.offset + at, kInside);
        const bool leads = leadsThere(memory, layout, fixed, tails);
        if (leads != (isAddress || isStruct)) testing::fail(__FILE__, __LINE__, nameOf(layout, field.name));
        if (leads && !layout.namesMemory()) testing::fail(__FILE__, __LINE__, nameOf(layout, "namesMemory"));
      }
    }
  }
  CHECK(addresses > 40);
  CHECK(structs >= 3);
}

TEST("every tail in which addresses may be leads there from any offset, also by the address behind the end") {
  const WithPinned memory;
  size_t tails = 0;
  for (const cmd::CommandLayout& layout : cmd::kCommandLayouts)
    for (size_t i = 0; i < layout.tails; ++i) {
      if (layout.tailUses[i] == cmd::TailUse::kNode) continue;
      const bool isLooked = layout.tailUses[i] == cmd::TailUse::kWords;
      tails += isLooked;
      for (const uint64_t address : {kInside, kPinned + kBytes})
        for (size_t at = 0; at <= 32; ++at) {
          std::vector<Bytes> all(layout.tails, Bytes(40));
          put(all[i], at, address);
          if (leadsThere(memory, layout, Bytes(layout.fixedBytes), all) != isLooked)
            testing::fail(__FILE__, __LINE__, nameOf(layout, "tail"));
        }
    }
  CHECK(tails >= 4);
}

TEST("nodes of graphs lead to memory of the device, and not to what their copies read and write of the program's") {
  const WithPinned memory;
  const auto leads = [&](const graph::NodeRecord& record, size_t rest = 0) {
    Bytes node(sizeof(record) + rest);
    std::memcpy(node.data(), &record, sizeof(record));
    if (rest != 0) put(node, node.size() - sizeof(uint64_t), kInside);
    bool all = true, any = false;
    for (const cmd::CommandLayout& layout : cmd::kCommandLayouts)
      for (size_t i = 0; i < layout.tails; ++i) {
        if (layout.tailUses[i] != cmd::TailUse::kNode) continue;
        std::vector<Bytes> tails(layout.tails);
        tails[i] = node;
        const bool found = leadsThere(memory, layout, Bytes(layout.fixedBytes), tails);
        all = all && found;
        any = any || found;
      }
    CHECK_EQ(all, any);
    return all;
  };
  graph::NodeRecord node{};
  node.type = CU_GRAPH_NODE_TYPE_KERNEL;
  CHECK(leads(node, 24));
  node.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  CHECK(leads(node, 48));
  node.type = CU_GRAPH_NODE_TYPE_HOST;
  node.host = {kInside, kInside, 0, 0};
  CHECK(!leads(node));
  node.type = CU_GRAPH_NODE_TYPE_MEMSET;
  node.fill = CUDA_MEMSET_NODE_PARAMS{kInside, 0, 0, 1, 1, 1};
  CHECK(leads(node));
  node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  for (const CUmemorytype type : {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST}) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = type;
    copy.srcDevice = kInside;
    copy.srcHost = reinterpret_cast<const void*>(kInside);
    node.copy = copy;
    CHECK_EQ(leads(node), type == CU_MEMORYTYPE_DEVICE);
    copy = {};
    copy.srcMemoryType = copy.dstMemoryType = type;
    copy.dstDevice = kInside;
    copy.dstHost = reinterpret_cast<void*>(kInside);
    node.copy = copy;
    CHECK_EQ(leads(node), type == CU_MEMORYTYPE_DEVICE);
  }
}

}  // namespace
}  // namespace millpond::client
