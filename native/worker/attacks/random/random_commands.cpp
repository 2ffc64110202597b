// SPDX-License-Identifier: Apache-2.0
#include "worker/attacks/random/random_commands.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/graph_node.h"

namespace millpond::worker {
namespace {

constexpr size_t kMostKnown = 64;
constexpr size_t kMostTail = 4096;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

template <typename T>
std::vector<std::byte> bytesOf(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

RandomCommands::RandomCommands(uint32_t seed, SharedHandle sharedHandle)
    : random_(seed),
      sharedHandle_(std::move(sharedHandle)),
      isGreedy_(seed % 4 == 1),
      wild_(seed % 4 == 0 ? 200
            : isGreedy_   ? 2
                          : 5 + seed % 60) {}

uint64_t RandomCommands::extreme() {
  constexpr uint64_t kEnds[] = {0,
                                1,
                                ~uint64_t{0},
                                0x7fff'ffff,
                                0x8000'0000,
                                0xffff'ffff,
                                uint64_t{1} << 32,
                                uint64_t{1} << 63,
                                (uint64_t{1} << 63) - 1,
                                uint64_t{1} << 47,
                                uint64_t{1} << 31};
  switch (below(8)) {
    case 0:
    case 1:
    case 2: return kEnds[below(std::size(kEnds))];
    // Near the maximum, where rounding up or adding an offset overflows.
    case 3: return ~uint64_t{0} - below(2) * 0x1f'ffff - below(4096);
    case 4: return (uint64_t{1} << below(64)) + below(3) - 1;
    // Factors whose product overflows to a small number.
    case 5: return (uint64_t{1} << (32 + below(32))) | (uint64_t{1} << below(12));
    // Overflows to a small number when an address of the session is added.
    case 6: return memory_.empty() ? ~uint64_t{0} : ~memory_[below(memory_.size())].address + below(8192);
    default: return (uint64_t{random_()} << 32) | random_();
  }
}

uint64_t RandomCommands::size() {
  if (isWild()) return extreme();
  switch (below(5)) {
    case 0: return below(17);
    case 1: return 1u << below(17);
    case 2: return (1 + below(4)) * uint64_t{2} << 20;
    case 3: return memory_.empty() ? 4096 : memory_[below(memory_.size())].bytes - below(2);
    default: return 4096 * (1 + below(64));
  }
}

uint64_t RandomCommands::address() {
  if (isWild()) return extreme();
  if (memory_.empty() || below(24) == 0) {
    // Addresses of this very process, and ranges that no session has.
    static const int inside = 0;
    const uint64_t elsewhere[] = {reinterpret_cast<uint64_t>(&inside), reinterpret_cast<uint64_t>(this),
                                  0x2000'0000'0000 + (uint64_t{below(1 << 14)} << 12),
                                  0x3000'0000'0000 + 4096 * uint64_t{below(64)}};
    return elsewhere[below(4)];
  }
  const Memory& memory = memory_[below(memory_.size())];
  switch (below(6)) {
    case 0: return memory.address + memory.bytes - std::min<uint64_t>(memory.bytes, below(65));
    case 1: return memory.address + memory.bytes + below(4096);
    case 2: return memory.address - below(4096);
    default: return memory.address + 256 * (memory.bytes > 65536 ? below(64) : 0);
  }
}

uint64_t RandomCommands::numbered(const std::vector<uint64_t>& known) {
  if (known.empty() || isWild())
    return below(2) ? extreme() : graph::number(static_cast<graph::Tag>(0xf1 + below(4)), below(40));
  return known[known.size() - 1 - std::min(below(known.size()), below(known.size()))];
}

uint64_t RandomCommands::handleOf(HandleKind kind) {
  if (isWild())
    return handle::make(static_cast<HandleKind>(below(kHandleKinds)), below(40), static_cast<uint16_t>(below(3)));
  const std::vector<uint64_t>& made = made_[static_cast<size_t>(kind)];
  if (made.empty()) return kind == HandleKind::kStream ? 0 : handle::make(kind, 1, 1);
  return made[below(made.size())];
}

uint64_t RandomCommands::newHandle(HandleKind kind) {
  if (isWild()) return handleOf(kind);
  return made_[static_cast<size_t>(kind)].emplace_back(handle::make(kind, ++lastIndex_, 1));
}

uint64_t RandomCommands::word() {
  switch (below(8)) {
    case 0: return address();
    case 1: return size();
    case 2: return handleOf(static_cast<HandleKind>(below(kHandleKinds)));
    case 3: return numbered(nodes_);
    case 4: return numbered(others_);
    case 5: return extreme();
    default: return below(8);
  }
}

/// Fields of hand-written commands have no kind in the description; the name tells it.
uint64_t RandomCommands::plain(const cmd::CommandLayout& layout, const cmd::FieldLayout& field) {
  const std::string_view name = field.name;
  const std::string_view command = cmd::opName(layout.op);
  if (field.bytes < 8) {
    if (name == "context" && !isWild()) {
      if (command == "ContextCreate" || command == "GreenCreate") return ++lastContext_;
      return contexts_[below(contexts_.size())];
    }
    if (!isWild() && (name == "isPrivate" || name == "channels")) return name == "channels" ? 4 : 1;
    if (!isWild() && name == "format") return CU_AD_FORMAT_FLOAT;
    if (has(name, "evice") || has(name, "dev")) return below(2);
    if (isWild()) return extreme();
    return below(3) ? below(3) : below(64);
  }
  const auto fresh = [&](HandleKind kind) { return below(8) ? newHandle(kind) : handleOf(kind); };
  if (command == "HostAlloc" && !isWild())
    return name == "bytes" ? 4096 * (uint64_t{1} << below(13)) : 0x5000'0000'0000 + (uint64_t{++lastIndex_} << 26);
  if (command == "VmCreate" && name == "memory") return 10 + ++lastIndex_;
  if (has(name, "tream")) return below(3) ? handleOf(HandleKind::kStream) : 0;
  if (has(name, "vent")) return handleOf(HandleKind::kEvent);
  if (name == "graph" || name == "clone") return numbered(graphs_);
  if (name == "node") return numbered(nodes_);
  if (name == "exec") return numbered(execs_);
  if (name == "object") return numbered(objects_);
  if (name == "array" || name == "srcArray" || name == "dstArray") return handleOf(HandleKind::kArray);
  if (name == "mipmapped") return handleOf(HandleKind::kMipmappedArray);
  if (name == "function") return handleOf(HandleKind::kFunction);
  if (name == "owner") return handleOf(below(4) ? HandleKind::kModule : HandleKind::kLibrary);
  if (name == "pool" && command == "PoolCreate") return 10 + below(1000);
  if (name == "pool" || name == "memory" || name == "number" || name == "landing" || name == "landed") return below(6);
  if (name == "handle") {
    if (command == "ArrayCreate") return fresh(below(3) ? HandleKind::kArray : HandleKind::kMipmappedArray);
    if (command == "ArrayLevel" || command == "ArrayPlane") return fresh(HandleKind::kArray);
    if (command == "GetFunction") return fresh(HandleKind::kFunction);
    if (command == "ImagePart" || command == "ModuleLoad")
      return fresh(below(4) ? HandleKind::kModule : HandleKind::kLibrary);
    if (command == "GreenStream") return fresh(HandleKind::kStream);
    if (command == "OpenEvent") return fresh(HandleKind::kEvent);
    return handleOf(static_cast<HandleKind>(below(kHandleKinds)));
  }
  if (has(name, "ddress") || has(name, "data") || has(name, "descriptor")) return below(2) ? address() : word();
  if (has(name, "lags")) return below(4);
  return below(8) ? size() : word();
}

uint64_t RandomCommands::value(const cmd::CommandLayout& layout, const cmd::FieldLayout& field) {
  switch (field.use) {
    case cmd::FieldUse::kHandle: return field.kind == HandleKind::kStream && below(3) == 0 ? 0 : handleOf(field.kind);
    case cmd::FieldUse::kNewHandle: return newHandle(field.kind);
    case cmd::FieldUse::kAddress:
    case cmd::FieldUse::kPlace: return layout.op == cmd::Op::kHostAlloc ? plain(layout, field) : address();
    default: return plain(layout, field);
  }
}

void RandomCommands::fillStruct(std::span<std::byte> place) {
  for (size_t at = 0; at + 4 <= place.size(); at += 4) {
    uint64_t value = 0;
    switch (below(8)) {
      case 0: value = below(8); break;
      case 1: value = size(); break;
      case 2: value = isWild() ? extreme() : 1; break;
      case 3: value = at % 8 == 0 ? word() : below(3); break;
      default: break;
    }
    std::memcpy(place.data() + at, &value, at % 8 == 0 && at + 8 <= place.size() && value >> 32 ? 8 : 4);
    if (value >> 32) at += 4;
  }
}

std::vector<std::byte> RandomCommands::node() {
  graph::NodeRecord record{};
  record.type = below(15);
  std::vector<std::byte> rest;
  switch (record.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      record.kernel = {handleOf(HandleKind::kFunction), {1 + below(4), 1, 1}, {1 + below(64), 1, 1}, 0, 0};
      if (isWild()) record.kernel.grid[below(3)] = static_cast<uint32_t>(extreme());
      if (isWild()) record.kernel.sharedBytes = static_cast<uint32_t>(extreme());
      for (int i = 0; i < 3; ++i) {
        const uint64_t each = i ? below(64) : address();
        const auto bytes = bytesOf(each);
        rest.insert(rest.end(), bytes.begin(), bytes.begin() + (i ? 4 : 8));
      }
      record.count = static_cast<uint32_t>(rest.size());
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      CUDA_MEMCPY3D copy{};
      const auto type = [&] { return static_cast<CUmemorytype>(below(3) ? 2 : below(5)); };
      copy.srcMemoryType = type();
      copy.dstMemoryType = type();
      copy.srcDevice = address();
      copy.dstDevice = address();
      copy.srcHost = reinterpret_cast<const void*>(address());
      copy.dstHost = reinterpret_cast<void*>(address());
      copy.srcArray = reinterpret_cast<CUarray>(handleOf(HandleKind::kArray));
      copy.dstArray = reinterpret_cast<CUarray>(handleOf(HandleKind::kArray));
      size_t* const numbers[] = {&copy.WidthInBytes, &copy.Height,    &copy.Depth,     &copy.srcPitch,
                                 &copy.dstPitch,     &copy.srcHeight, &copy.dstHeight, &copy.srcXInBytes,
                                 &copy.dstXInBytes,  &copy.srcY,      &copy.dstY,      &copy.srcZ,
                                 &copy.dstZ,         &copy.srcLOD,    &copy.dstLOD};
      for (size_t i = 0; i < std::size(numbers); ++i)
        *numbers[i] = isWild() ? extreme() : i < 3 ? 1 + below(64) : i < 7 ? 256 : below(4) ? 0 : below(512);
      record.copy = copy;
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      record.fill =
          CUDA_MEMSET_NODE_PARAMS{address(),      below(2) ? size() : 256,           below(256),
                                  1u << below(3), below(4) ? 1 + below(64) : size(), below(4) ? 1 + below(4) : size()};
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH: record.child = {numbered(graphs_), below(3), 0}; break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: record.event = handleOf(HandleKind::kEvent); break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUmemPoolProps pool{};
      pool.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      pool.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      pool.location.id = static_cast<int>(below(3));
      if (isWild()) pool.maxSize = extreme();
      record.allocation.pool = pool;
      record.allocation.bytes = size();
      record.allocation.address = address();
      break;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: record.address = address(); break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: record.conditional = {numbered(others_), below(4), below(4)}; break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      record.count = 1 + below(3);
      for (uint32_t i = 0; i < record.count; ++i) {
        CUstreamBatchMemOpParams word{};
        // Writes of values, and waits that are satisfied immediately.
        word.operation = below(2) ? CU_STREAM_MEM_OP_WRITE_VALUE_32 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
        if (isWild()) word.operation = static_cast<CUstreamBatchMemOpType>(below(12));
        word.writeValue.address = address();
        word.writeValue.alias = isWild() ? address() : 0;
        const auto bytes = bytesOf(word);
        rest.insert(rest.end(), bytes.begin(), bytes.end());
      }
      break;
    default: break;
  }
  if (isWild()) record.count = static_cast<uint32_t>(extreme());
  if (isWild()) fillStruct(std::as_writable_bytes(std::span(&record, 1)).subspan(8));
  std::vector<std::byte> all = bytesOf(record);
  all.insert(all.end(), rest.begin(), rest.end());
  if (isWild()) all.resize(below(all.size() + 64));
  return all;
}

std::vector<std::byte> RandomCommands::tail(const cmd::CommandLayout& layout, const cmd::FieldLayout& length,
                                            cmd::TailUse use) {
  const std::string_view command = cmd::opName(layout.op), name = length.name;
  const auto text = [](std::string_view from) {
    const auto bytes = std::as_bytes(std::span(from.data(), from.size()));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  if (use == cmd::TailUse::kNode) return node();
  if (command == "ImagePart" && !isWild()) return text(kRandomModule);
  if (name == "nameBytes" && !isWild()) return text(below(3) ? "fill" : below(4) ? "g" : "spin");
  if (command == "Launch" && name == "paramsBytes" && !isWild()) {
    std::vector<std::byte> parameters(16);
    const uint64_t place = address();
    std::memcpy(parameters.data(), &place, sizeof(place));
    return parameters;
  }
  if ((command == "Launch" || name == "affinityBytes") && !isWild()) return {};
  if (below(3) == 0) return {};
  std::vector<std::byte> bytes(std::min<size_t>(kMostTail, 8 * (isWild() ? below(500) : 1 + below(12))));
  if (name == "nodesBytes") {
    for (size_t at = 0; at < bytes.size(); at += 8) {
      const uint64_t each = numbered(nodes_);
      std::memcpy(bytes.data() + at, &each, 8);
    }
  } else {
    fillStruct(bytes);
  }
  return bytes;
}

std::vector<std::byte> RandomCommands::frame(const cmd::CommandLayout& layout, std::vector<std::byte> fixed,
                                             const Tails& tails) {
  Asked& asked = asked_[++request_ % asked_.size()];
  asked = {layout.op, 0};
  for (const cmd::FieldLayout& field : layout.fields)
    if ((std::string_view(field.name) == "bytes" || std::string_view(field.name) == "size") && field.bytes == 8)
      std::memcpy(&asked.bytes, fixed.data() + field.offset, 8);
  if (layout.op == cmd::Op::kContextCreate || layout.op == cmd::Op::kGreenCreate) asked.bytes = lastContext_;
  wire::CommandHeader header{};
  header.op = static_cast<uint16_t>(layout.op);
  header.context = static_cast<uint16_t>(below(4) ? 1 : contexts_[below(contexts_.size())]);
  if (isWild()) header.context = static_cast<uint16_t>(below(2) ? extreme() : 2 + below(8));
  header.request = layout.hasReply || below(10) == 0 ? request_ : 0;
  header.thread = 1 + below(3);
  for (size_t i = 0; i < tails.size(); ++i) {
    auto bytes = static_cast<uint32_t>(tails[i].size());
    if (isWild()) bytes = static_cast<uint32_t>(below(2) ? extreme() : bytes + below(17) - 8);
    std::memcpy(fixed.data() + layout.fields[layout.fields.size() - layout.tails + i].offset, &bytes, sizeof(bytes));
  }
  for (const auto& each : tails) {
    fixed.insert(fixed.end(), each.begin(), each.end());
    fixed.resize(cmd::paddedBytes(fixed.size()));
  }
  if (wild_ > 100 && below(200) == 0) fixed.resize(8 * below(64));
  header.bytes = static_cast<uint32_t>(sizeof(header) + fixed.size());
  std::vector<std::byte> all = bytesOf(header);
  all.insert(all.end(), fixed.begin(), fixed.end());
  return all;
}

/// Chooses a command, mostly one whose handles the session has; commands that end most sessions are rare.
const cmd::CommandLayout& RandomCommands::choose() {
  constexpr cmd::Op kEnding[] = {cmd::Op::kSessionRestored, cmd::Op::kProfileEnd,  cmd::Op::kProfileRead,
                                 cmd::Op::kHostKeep,        cmd::Op::kHostMirror,  cmd::Op::kHostContents,
                                 cmd::Op::kResourceSplit,   cmd::Op::kGreenStream, cmd::Op::kResourceDescribe};
  // The claim limits these.
  constexpr cmd::Op kTaking[] = {cmd::Op::kStreamCreate,   cmd::Op::kStreamCreateWithPriority,
                                 cmd::Op::kEventCreate,    cmd::Op::kContextCreate,
                                 cmd::Op::kMemAlloc,       cmd::Op::kPoolAlloc,
                                 cmd::Op::kVmCreate,       cmd::Op::kArrayCreate,
                                 cmd::Op::kGraphAddNode,   cmd::Op::kGraphClone,
                                 cmd::Op::kHostAlloc,      cmd::Op::kGraphInstantiate,
                                 cmd::Op::kContextSetLimit};
  if (isGreedy_ && below(64)) return cmd::layoutOf(kTaking[below(std::size(kTaking))]);
  for (;;) {
    const cmd::CommandLayout& layout = cmd::kCommandLayouts[below(std::size(cmd::kCommandLayouts))];
    if (below(12) == 0) return layout;
    const bool isMissing = std::any_of(layout.fields.begin(), layout.fields.end(), [&](const cmd::FieldLayout& field) {
      return field.use == cmd::FieldUse::kHandle && field.kind != HandleKind::kStream &&
             made_[static_cast<size_t>(field.kind)].empty();
    });
    if (!isMissing && std::find(std::begin(kEnding), std::end(kEnding), layout.op) == std::end(kEnding)) return layout;
  }
}

std::vector<std::byte> RandomCommands::next() {
  const cmd::CommandLayout& layout = choose();
  std::vector<std::byte> fixed(layout.fixedBytes);
  for (const cmd::FieldLayout& field : layout.fields) {
    if (field.use == cmd::FieldUse::kTailBytes || field.offset + size_t{field.bytes} > fixed.size()) continue;
    if (field.bytes > 8) {
      const auto place = std::span(fixed).subspan(field.offset, field.bytes);
      if (std::string_view(field.name) == "handle" && below(4))
        sharedHandle_(place);
      else
        fillStruct(place);
      continue;
    }
    const uint64_t number = value(layout, field);
    std::memcpy(fixed.data() + field.offset, &number, field.bytes);
  }
  Tails tails;
  for (size_t i = 0; i < layout.tails; ++i)
    tails.push_back(tail(layout, layout.fields[layout.fields.size() - layout.tails + i], layout.tailUses[i]));
  return frame(layout, std::move(fixed), tails);
}

template <typename C, typename... Parts>
std::vector<std::byte> RandomCommands::certain(const C& command, const Parts&... tails) {
  std::vector<std::byte> body(cmd::encodedSize<C>(tails...));
  cmd::encode(body.data(), command, tails...);
  Asked& asked = asked_[++request_ % asked_.size()];
  asked = {C::kOp, 0};
  if constexpr (requires { command.bytes; }) asked.bytes = command.bytes;
  const wire::CommandHeader header{static_cast<uint32_t>(sizeof(wire::CommandHeader) + body.size()),
                                   static_cast<uint16_t>(C::kOp), 1, C::kHasReply ? request_ : 0, 1};
  std::vector<std::byte> all = bytesOf(header);
  all.insert(all.end(), body.begin(), body.end());
  return all;
}

std::vector<std::vector<std::byte>> RandomCommands::beginning() {
  std::vector<std::vector<std::byte>> all;
  const auto fresh = [&](HandleKind kind) {
    return made_[static_cast<size_t>(kind)].emplace_back(handle::make(kind, ++lastIndex_, 1));
  };
  for (int i = 0; i < 3; ++i) {
    cmd::StreamCreate stream{};
    stream.phStream = fresh(HandleKind::kStream);
    all.push_back(certain(stream));
    cmd::EventCreate event{};
    event.phEvent = fresh(HandleKind::kEvent);
    all.push_back(certain(event));
    cmd::MemAlloc memory{};
    memory.bytes = uint64_t{4096} << (4 * i);
    all.push_back(certain(memory));
    all.push_back(certain(cmd::GraphCreate{}));
    cmd::PoolCreate pool{};
    pool.pool = 1 + static_cast<uint64_t>(i);
    pool.device = i % 2;
    all.push_back(certain(pool));
    cmd::ArrayCreate array{};
    const HandleKind kind = i == 2 ? HandleKind::kMipmappedArray : HandleKind::kArray;
    array.handle = fresh(kind);
    array.width = array.height = 64;
    array.format = CU_AD_FORMAT_FLOAT;
    array.channels = 4;
    array.levels = i == 2 ? 4 : 0;
    all.push_back(certain(array));
  }
  const std::span<const std::byte> none;
  cmd::ImagePart part{};
  part.handle = fresh(HandleKind::kModule);
  part.total = kRandomModule.size();
  all.push_back(certain(part, std::as_bytes(std::span(kRandomModule.data(), kRandomModule.size()))));
  cmd::ModuleLoad load{};
  load.handle = part.handle;
  all.push_back(certain(load, none, none));
  cmd::TexRefCreate reference{};
  reference.pTexRef = fresh(HandleKind::kTextureReference);
  all.push_back(certain(reference));
  constexpr std::string_view name = "fill";
  cmd::GetFunction get{};
  get.owner = part.handle;
  get.handle = fresh(HandleKind::kFunction);
  all.push_back(certain(get, std::as_bytes(std::span(name.data(), name.size()))));
  return all;
}

void RandomCommands::learn(uint32_t request, int32_t result, std::span<const std::byte> body) {
  const Asked& asked = asked_[request % asked_.size()];
  if (result == 0 && (asked.op == cmd::Op::kContextCreate || asked.op == cmd::Op::kGreenCreate))
    contexts_.push_back(asked.bytes);
  if (result != 0 || body.size() < 8) return;
  uint64_t first = 0;
  std::memcpy(&first, body.data(), sizeof(first));
  if (asked.op == cmd::Op::kMemAlloc || asked.op == cmd::Op::kPoolAlloc || asked.op == cmd::Op::kVmReserve ||
      asked.op == cmd::Op::kGetGlobal)
    memory_.push_back({first, asked.bytes ? asked.bytes : 65536});
  if (memory_.size() > kMostKnown) memory_.erase(memory_.begin());
  for (size_t at = 0; at + 8 <= std::min<size_t>(body.size(), 64); at += 8) {
    uint64_t each = 0;
    std::memcpy(&each, body.data() + at, sizeof(each));
    std::vector<uint64_t>& known = graph::is(graph::Tag::kGraph, each)        ? graphs_
                                   : graph::is(graph::Tag::kNode, each)       ? nodes_
                                   : graph::is(graph::Tag::kExec, each)       ? execs_
                                   : graph::is(graph::Tag::kUserObject, each) ? objects_
                                                                              : others_;
    known.push_back(each);
    if (known.size() > kMostKnown) known.erase(known.begin());
  }
}

}  // namespace millpond::worker
