// SPDX-License-Identifier: Apache-2.0
// A random CUDA program as data: its allocations, and the calls of each of its threads, in the order of their creation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millpond::model {

/// The kind of allocation of a buffer.
enum class Memory : uint8_t {
  device,      // cuMemAlloc
  pool,        // cuMemAllocAsync on stream 0, cuMemFreeAsync at the end
  peer,        // cuMemAlloc on the second device
  managed,     // cuMemAllocManaged
  pinned,      // cuMemHostAlloc
  registered,  // malloc and cuMemHostRegister
  pageable,    // malloc
};
constexpr bool isHost(Memory memory) { return memory >= Memory::managed; }
/// The program's own memory that the driver knows.
constexpr bool isLocal(Memory memory) { return memory == Memory::pinned || memory == Memory::registered; }
constexpr bool isDevice(Memory memory) { return memory != Memory::pageable && memory != Memory::peer; }

/// A buffer is divided into slots of the same size. A slot is the unit that calls read and write, as rows of kRowWords
/// words.
struct Buffer {
  Memory memory = Memory::device;
  uint32_t slots = 1;
  uint32_t words = 16;  ///< in a slot
  /// Whether kernels and fills use it; false only for pinned and registered memory that only copies use.
  bool isForKernels = true;
  /// For such memory: whether the program queries its device address first.
  bool isAsked = true;
};
inline constexpr uint32_t kRowWords = 16;

/// The first two streams are the legacy default stream and the per-thread default stream of the calling thread.
inline constexpr uint8_t kLegacy = 0;
inline constexpr uint8_t kPerThread = 1;
inline constexpr uint8_t kFirstStream = 2;
struct Stream {
  bool isBlocking = true;
};

enum class OpKind : uint8_t {
  launch,        // `count` times: to = 3 to + from + value
  copy,          // to = from
  fill,          // to = value
  record,        // event `object`
  waitEvent,     // the stream waits for event `object`
  syncEvent,     // the thread waits for event `object`
  queryEvent,    // event `object` has happened
  syncStream,    //
  queryStream,   // queries an op that is not ready while a promise holds the stream
  syncContext,   //
  hostFunction,  // sleeps `count` ms, waits for promise `object` unless it is kNone, then to = 5 to + value
  waitValue,     // the stream waits for word `object`
  writeValue,    // the stream sets word `object`
  storeWord,     // the thread sets word `object`
  fulfil,        // the thread fulfils promise `object`
  hostUpdate,    // the thread does to = 5 to + value
  hostCheck,     // the thread compares `from` with the oracle's value
  send,          // the thread raises signal `object`
  receive,       // the thread waits for signal `object`
  graph,         // captures `body` as graph `object`
  launchGraph,   // graph `object`
  updateGraph,   // graph `object` becomes graph `count`
  ask,           // calls that wait for nothing: memory info, elapsed time, an allocation
};

inline constexpr uint8_t kNone = 255;

/// How a launch finds its operands, and which call makes a copy or a fill.
enum class Variant : uint8_t {
  plain,    // pointers as parameters; a copy of one dimension
  table,    // launch: through pointers in device memory
  packed,   // launch: pointers at odd offsets of a parameter passed by value
  rows,     // copy and fill: two dimensions, all words but the last of each row
  unified,  // copy: cuMemcpyAsync, which itself determines where the ends are
  box,      // copy: three dimensions, the words of `rows` in two slices
  pooled,   // copy: through memory that cuMemAllocAsync allocates and cuMemFreeAsync frees, in the same stream
  freed,    // copy: through memory that cuMemFree frees while the copy may be in progress
};
/// Whether the last word of each row stays unchanged.
constexpr bool skipsLast(Variant variant) { return variant == Variant::rows || variant == Variant::box; }
constexpr bool isByWay(Variant variant) { return variant == Variant::pooled || variant == Variant::freed; }

struct Op {
  OpKind kind = OpKind::launch;
  uint8_t thread = 0;
  uint8_t stream = kFirstStream;
  int16_t to = -1;    ///< slot, counted over all buffers
  int16_t from = -1;  ///< slot
  uint32_t value = 0;
  uint32_t count = 1;
  uint8_t object = kNone;
  Variant variant = Variant::plain;
  bool isSynchronous = false;  ///< of copies and fills: the call without a stream
  uint8_t branch = 0;          ///< in a graph: which of the two captured streams
  bool joins = false;          ///< in a graph: both streams wait for each other before it
  std::vector<Op> body{};      ///< of a graph
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Stream> streams;  ///< from kFirstStream on
  uint8_t threads = 1;
  uint8_t events = 0;
  uint8_t words = 0;
  uint8_t promises = 0;
  uint8_t signals = 0;
  uint8_t graphs = 0;
  std::vector<Op> ops;
};

struct SlotPlace {
  size_t buffer = 0;
  uint32_t index = 0;  ///< in the buffer
};
SlotPlace placeOf(const Program& program, int slot);
/// Calls `each` with every op of the program, including those of graphs.
template <typename Each>
void eachOp(const Program& program, Each each) {
  for (const Op& op : program.ops) {
    each(op);
    for (const Op& node : op.body) each(node);
  }
}
/// Whether streams or threads of the program use words.
bool usesWords(const Program& program);
size_t slotCount(const Program& program);
inline const Buffer& bufferOf(const Program& program, int slot) {
  return program.buffers[placeOf(program, slot).buffer];
}

/// The initial contents of a slot.
inline uint32_t initialWord(int slot, uint32_t word) {
  return static_cast<uint32_t>(slot) * 1'000'003U + word * 7U + 1U;
}

/// One line for display.
std::string describe(const Program& program, const Op& op);

}  // namespace millpond::model
