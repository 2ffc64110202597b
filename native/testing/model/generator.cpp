// SPDX-License-Identifier: Apache-2.0
#include "testing/model/generator.h"

#include <algorithm>
#include <optional>
#include <random>

#include "testing/model/order.h"

namespace millpond::model {
namespace {

constexpr size_t kMostEvents = 120;
constexpr uint8_t kObjects = 4;  // the most words, promises and graphs of a program
/// Every fourth program uses all four kinds of streams alike: legacy, per-thread, blocking and non-blocking.
constexpr uint64_t kMixedEvery = 4;
/// Words of large memory: two such copies are more than the ring between client and worker takes.
constexpr uint32_t kLarge = 1 << 20;

class Generator {
 public:
  Generator(uint64_t seed, uint64_t number, uint32_t attempt, const Features& without)
      : without_(without), isMixed_(number % kMixedEvery == kMixedEvery - 1 && has("legacy") && has("per-thread")) {
    std::vector<uint32_t> all{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                              static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32)};
    if (attempt != 0) all.push_back(attempt);
    std::seed_seq mixed(all.begin(), all.end());
    random_.seed(mixed);
  }

  /// Rejects a program if something that its streams wait for can no longer be set by a thread that does not wait for
  /// them.
  std::optional<Program> make() {
    shape();
    order_.emplace(program_);
    touched_.resize(slotCount(program_));
    const size_t wanted = 8 + below(50);
    if (has("graph") && chance(40)) addGraphs();
    for (size_t tries = 0; program_.ops.size() < wanted && tries < 400; ++tries) addOp();
    if (!finish()) return std::nullopt;
    return std::move(program_);
  }

 private:
  struct Touch {
    uint8_t stream = kNone;  ///< kNone: the call of a thread
    uint8_t thread = 0;
  };

  bool has(std::string_view feature) const { return !without_.contains(feature); }
  uint32_t below(size_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

  void shape() {
    std::vector<Memory> kinds = {Memory::device, Memory::device, Memory::pinned, Memory::pinned};
    if (has("pageable")) kinds.push_back(Memory::pageable);
    if (has("registered")) kinds.push_back(Memory::registered);
    if (has("managed")) kinds.push_back(Memory::managed);
    if (has("pool")) kinds.push_back(Memory::pool);
    if (has("peer") && chance(30)) kinds.push_back(Memory::peer);
    const size_t buffers = 3 + below(5);
    for (size_t i = 0; i < buffers; ++i) {
      Buffer buffer;
      // Some operands for kernels.
      buffer.memory = i == 0 ? Memory::device : pick(kinds);
      if (isLocal(buffer.memory)) buffer.isForKernels = !has("copied") || chance(50);
      buffer.isAsked = buffer.isForKernels && (!has("unasked") || chance(50));
      buffer.slots = 1 + below(3);
      buffer.words = pick(std::vector<uint32_t>{16, 16, 64, 1024, 4096, 65536});
      program_.buffers.push_back(buffer);
    }
    if (has("large") && chance(6))
      for (Buffer& buffer : program_.buffers)
        if (buffer.memory != Memory::managed) buffer.words = kLarge << below(2), buffer.slots = 1;
    const size_t streams = 1 + below(4);
    for (size_t i = 0; i < streams; ++i) program_.streams.push_back({chance(50)});
    if (isMixed_) {
      program_.streams.resize(std::max<size_t>(streams, 2));
      program_.streams[0].isBlocking = true;
      program_.streams[1].isBlocking = false;
    }
    program_.threads = static_cast<uint8_t>(has("threads") && chance(40) ? 2 + below(2) : 1);
    program_.events = kMostEvents;
    program_.signals = kMostEvents;
    program_.words = program_.promises = kObjects;
    program_.graphs = kObjects;
    for (uint8_t i = 0; i < kFirstStream + program_.streams.size(); ++i)
      if ((i != kLegacy || has("legacy")) && (i != kPerThread || has("per-thread"))) usable_.push_back(i);
  }

  // Choices

  uint8_t stream() {
    if (inPile_ > 0 && chance(85)) return pileStream_;
    if (lastStream_ != kNone && chance(50)) return lastStream_;
    if (isMixed_) return pick(usable_);
    return chance(80) ? static_cast<uint8_t>(kFirstStream + below(program_.streams.size())) : pick(usable_);
  }
  uint8_t thread() { return static_cast<uint8_t>(below(program_.threads)); }
  template <typename Suits>
  int slot(Suits suits, int but = -1) {
    if (lastSlot_ >= 0 && lastSlot_ != but && chance(40) && suits(bufferOf(program_, lastSlot_))) return lastSlot_;
    std::vector<int> all;
    for (int i = 0; i < static_cast<int>(slotCount(program_)); ++i)
      if (i != but && suits(bufferOf(program_, i))) all.push_back(i);
    return all.empty() ? -1 : pick(all);
  }
  uint32_t value() { return 1 + below(1000); }
  bool isForKernels(const Buffer& buffer) const {
    return isDevice(buffer.memory) && buffer.isForKernels && (!isHost(buffer.memory) || has("mapped"));
  }
  bool isFillable(const Buffer& buffer) const {
    return isDevice(buffer.memory) && buffer.isForKernels && (!isHost(buffer.memory) || has("fill-host")) &&
           buffer.memory != Memory::managed;
  }

  Op launch() {
    Op op{.kind = OpKind::launch, .thread = thread(), .stream = stream()};
    op.to = static_cast<int16_t>(slot([&](const Buffer& b) { return isForKernels(b); }));
    op.from = static_cast<int16_t>(slot([&](const Buffer& b) { return isForKernels(b); }, op.to));
    op.value = value();
    if (chance(30)) op.variant = chance(50) ? Variant::table : Variant::packed;
    const auto touchesHost = [&](int each) { return each >= 0 && isHost(bufferOf(program_, each).memory); };
    if ((touchesHost(op.to) || touchesHost(op.from)) && !has("indirect")) op.variant = Variant::plain;
    if (op.from < 0 || bufferOf(program_, op.from).words > 64) return op;
    if (has("burst") && chance(inPile_ > 0 ? 15 : 2)) op.count = 1100 + below(1000);
    if (op.count == 1 && inPile_ > 0 && chance(30)) op.count = 2 + below(180);
    return op;
  }
  Op copy() {
    Op op{.kind = OpKind::copy, .thread = thread(), .stream = stream()};
    op.from = static_cast<int16_t>(slot([](const Buffer&) { return true; }));
    op.to = static_cast<int16_t>(slot([](const Buffer&) { return true; }, op.from));
    op.isSynchronous = has("legacy") && chance(20);
    if (has("rows") && chance(20)) op.variant = Variant::rows;
    if (op.variant == Variant::plain && chance(20)) op.variant = Variant::unified;
    if (op.from >= 0 && op.to >= 0) {
      const Memory from = bufferOf(program_, op.from).memory;
      const Memory to = bufferOf(program_, op.to).memory;
      const uint32_t words = std::min(bufferOf(program_, op.to).words, bufferOf(program_, op.from).words);
      if (op.variant == Variant::rows && has("box") && words >= 2 * kRowWords && chance(40)) op.variant = Variant::box;
      const auto isPlace = [](Memory each) { return isDevice(each) && each != Memory::managed; };
      if (op.variant == Variant::plain && !op.isSynchronous && has("temporary") && isPlace(from) && isPlace(to) &&
          chance(15))
        op.variant = has("pool") && chance(70) ? Variant::pooled : Variant::freed;
      // Between devices there is only one call.
      if (from == Memory::peer || to == Memory::peer) op.variant = Variant::plain;
    }
    return op;
  }
  Op fill() {
    Op op{.kind = OpKind::fill, .thread = thread(), .stream = stream()};
    op.to = static_cast<int16_t>(slot([&](const Buffer& b) { return isFillable(b); }));
    op.value = value();
    op.isSynchronous = has("legacy") && chance(20);
    if (has("rows") && chance(30)) op.variant = Variant::rows;
    return op;
  }
  Op hostFunction() {
    Op op{.kind = OpKind::hostFunction, .thread = thread(), .stream = stream()};
    op.count = has("sleep") && chance(20) ? 1 + below(4) : 0;
    if (chance(60))
      op.to =
          static_cast<int16_t>(slot([](const Buffer& b) { return isHost(b.memory) && b.memory != Memory::managed; }));
    op.value = value();
    if (has("promise") && chance(30) && promises_ < kObjects) op.object = promises_;
    return op;
  }

  Op propose() {
    // After a function that holds its stream up comes work, not a call that waits for it.
    const uint32_t which = inPile_ > 0 ? below(66) : below(100);
    if (which < 22) return launch();
    if (which < 50) return copy();
    if (which < 56) return fill();
    if (which < 64) return hostFunction();
    Op op{.thread = thread(), .stream = stream()};
    if (inPile_ > 0) {
      op.kind = OpKind::launchGraph;
      op.object = graphs_ > 0 ? static_cast<uint8_t>(below(graphs_)) : kNone;
    } else if (which < 70) {
      op.kind = OpKind::hostUpdate;
      op.to = static_cast<int16_t>(slot([](const Buffer& b) { return isHost(b.memory); }));
      op.value = value();
    } else if (which < 75) {
      op.kind = OpKind::hostCheck;
      op.from = static_cast<int16_t>(slot([](const Buffer& b) { return isHost(b.memory); }));
    } else if (which < 80) {
      op.kind = OpKind::launchGraph;
      op.object = graphs_ > 0 ? static_cast<uint8_t>(below(graphs_)) : kNone;
    } else if (which < 83) {
      op.kind = OpKind::waitValue;
      op.object = has("value") ? static_cast<uint8_t>(below(kObjects)) : kNone;
    } else if (which < 86) {
      op.kind = chance(50) ? OpKind::writeValue : OpKind::storeWord;
      op.object = has("value") ? static_cast<uint8_t>(below(kObjects)) : kNone;
    } else if (which < 88) {
      op.kind = OpKind::updateGraph;
      op.object = has("update") && graphs_ > 1 ? 0 : kNone;
      op.count = 1;
    } else if (which < 90) {
      op.kind = OpKind::fulfil;
      op.object = promises_ > 0 ? static_cast<uint8_t>(below(promises_)) : kNone;
    } else if (which < 93) {
      op.kind = OpKind::ask;
      op.object = has("ask") ? 0 : kNone;
    } else if (which < 95) {
      op.kind = OpKind::syncStream;
      op.object = 0;
    } else if (which < 96) {
      op.kind = OpKind::syncContext;
      op.object = 0;
    } else if (which < 98) {
      op.kind = OpKind::queryStream;
      op.object = 0;
    } else {
      op.kind = OpKind::queryEvent;
      op.object = events_ > 0 ? static_cast<uint8_t>(below(events_)) : kNone;
    }
    return op;
  }

  /// Whether the op has everything that it needs.
  bool isWhole(const Op& op) const {
    switch (op.kind) {
      case OpKind::launch:
      case OpKind::copy: return op.to >= 0 && op.from >= 0;
      case OpKind::fill:
      case OpKind::hostUpdate: return op.to >= 0;
      case OpKind::hostCheck: return op.from >= 0;
      case OpKind::hostFunction: return has("functions");
      default: return op.object != kNone;
    }
  }

  /// A thread that accesses shared memory while a host function waits for a thread.
  bool isForbidden(const Op& op) const {
    if (has("touch-held") || (op.kind != OpKind::hostUpdate && op.kind != OpKind::hostCheck)) return false;
    const Memory memory = bufferOf(program_, op.to >= 0 ? op.to : op.from).memory;
    return memory != Memory::pageable && !order_->openPromises().empty();
  }

  // Order

  bool append(const std::vector<Op>& ops, Refusal* why) {
    Order next = *order_;
    for (const Op& op : ops) {
      if (isForbidden(op)) {
        *why = Refusal::senseless;
        return false;
      }
      if (*why = next.append(op); *why != Refusal::none) return false;
    }
    order_.emplace(std::move(next));
    for (const Op& op : ops) {
      program_.ops.push_back(op);
      note(op);
    }
    return true;
  }
  void note(const Op& op) {
    if (op.kind == OpKind::record) events_ = std::max<uint8_t>(events_, static_cast<uint8_t>(op.object + 1));
    if (op.kind == OpKind::hostFunction && op.object != kNone) ++promises_;
    const bool isHostOp = op.kind == OpKind::hostUpdate || op.kind == OpKind::hostCheck;
    const Touch touch{isHostOp ? kNone : op.isSynchronous ? kLegacy : op.stream, op.thread};
    const auto touches = [&](const Op& each) {
      if (each.to >= 0) touched_[static_cast<size_t>(each.to)] = touch;
      if (each.from >= 0) touched_[static_cast<size_t>(each.from)] = touch;
    };
    if (op.kind == OpKind::launchGraph) {
      for (const Op& each : bodies_[op.object]) touches(each);
    } else if (op.kind != OpKind::graph) {
      touches(op);
    }
    if (op.to >= 0) lastSlot_ = op.to;
    if (!isHostOp) lastStream_ = op.isSynchronous ? kLegacy : op.stream;
  }

  /// Operations that order `op` after the last ones that accessed its slots.
  std::vector<Op> ordering(const Op& op) {
    std::vector<int> slots;
    const std::vector<Op> own = {op};
    for (const Op& each : op.kind == OpKind::launchGraph ? bodies_[op.object] : own)
      for (const int slot : {each.to, each.from})
        if (slot >= 0) slots.push_back(slot);
    if (slots.empty()) return {};
    const Touch touch = touched_[static_cast<size_t>(pick(slots))];
    std::vector<Op> ops;
    const bool fromHost = touch.stream == kNone;
    const bool toHost = op.kind == OpKind::hostUpdate || op.kind == OpKind::hostCheck || op.isSynchronous || chance(10);
    const uint8_t event = nextEvent_;
    if (!fromHost && nextEvent_ < kMostEvents) {
      ops.push_back({.kind = OpKind::record, .thread = touch.thread, .stream = touch.stream, .object = event});
      ++nextEvent_;
    }
    appendHandover(ops, touch.thread, op.thread);
    if (!fromHost) {
      ops.push_back({.kind = toHost ? OpKind::syncEvent : OpKind::waitEvent,
                     .thread = op.thread,
                     .stream = op.isSynchronous ? kLegacy : op.stream,
                     .object = event});
    }
    return ops;
  }
  void appendHandover(std::vector<Op>& ops, uint8_t from, uint8_t to) {
    if (from == to || nextSignal_ >= kMostEvents) return;
    ops.push_back({.kind = OpKind::send, .thread = from, .object = nextSignal_});
    ops.push_back({.kind = OpKind::receive, .thread = to, .object = nextSignal_});
    ++nextSignal_;
  }
  std::vector<Op> freeing(const Op& op) {
    std::vector<Op> ops;
    for (const uint8_t each : order_->openPromises())
      ops.push_back({.kind = OpKind::fulfil, .thread = chance(70) ? op.thread : thread(), .object = each});
    for (const uint8_t each : order_->openWords())
      ops.push_back({.kind = OpKind::storeWord, .thread = chance(70) ? op.thread : thread(), .object = each});
    return ops;
  }

  void addOp() {
    if (inPile_ > 0) {
      --inPile_;
    } else if (has("pile") && has("functions") && chance(3)) {
      beginPile();
      return;
    }
    const Op op = propose();
    if (isWhole(op)) addOrdered(op);
  }
  /// A stream is held up, and more work than usual follows in it.
  void beginPile() {
    Op op{.kind = OpKind::hostFunction, .thread = thread(), .stream = stream(), .count = 0};
    if (has("promise") && promises_ < kObjects && (!has("sleep") || chance(50))) {
      op.object = promises_;
    } else if (has("sleep")) {
      op.count = 5 + below(60);
    } else {
      return;
    }
    if (!addOrdered(op)) return;
    pileStream_ = op.stream;
    inPile_ = 3 + below(12);
  }
  bool addOrdered(const Op& op) {
    std::vector<Op> before;
    for (int tries = 0; tries < 5; ++tries) {
      std::vector<Op> all = before;
      all.push_back(op);
      Refusal why = Refusal::none;
      if (append(all, &why)) return true;
      std::vector<Op> more;
      if (why == Refusal::race) more = ordering(op);
      if (why == Refusal::unordered) appendHandover(more, thread(), op.thread);
      if (why == Refusal::stuck) more = freeing(op);
      if (more.empty()) return false;
      // These may need ops that were tried before.
      before.insert(why == Refusal::stuck ? before.begin() : before.end(), more.begin(), more.end());
    }
    return false;
  }

  // Graphs

  void addGraphs() {
    const size_t count = 1 + below(2);
    for (size_t i = 0; i < count && graphs_ + 1 < kObjects; ++i) {
      std::vector<Op> body;
      const size_t nodes = 1 + below(6);
      for (size_t n = 0; n < nodes; ++n) {
        if (std::optional<Op> op = node()) body.push_back(std::move(*op));
      }
      if (body.empty()) continue;
      addGraph(body);
      if (i > 0 || !has("update")) continue;
      // The same with other numbers, as an update of the first one.
      for (Op& each : body) each.value = each.kind == OpKind::copy ? 0 : value();
      addGraph(std::move(body));
    }
  }
  std::optional<Op> node() {
    const auto suits = [&](const Buffer& b) { return isDevice(b.memory) && b.memory != Memory::managed; };
    Op op;
    const uint32_t which = below(10);
    if (which < 4) {
      op = launch();
      op.variant = Variant::plain;
      op.count = 1;
      if (op.to >= 0 && op.from >= 0 && !(suits(bufferOf(program_, op.to)) && suits(bufferOf(program_, op.from))))
        return std::nullopt;
    } else if (which < 8 && has("graph-copies")) {
      op.kind = OpKind::copy;
      op.from = static_cast<int16_t>(slot(suits));
      op.to = static_cast<int16_t>(slot(suits, op.from));
      if (op.to >= 0 && op.from >= 0 && isHost(bufferOf(program_, op.to).memory) &&
          isHost(bufferOf(program_, op.from).memory))
        return std::nullopt;
    } else if (which < 9) {
      op = fill();
      if (op.to >= 0 && isHost(bufferOf(program_, op.to).memory)) return std::nullopt;
      op.isSynchronous = false;
      op.variant = Variant::plain;
    } else {
      op = hostFunction();
      op.object = kNone;
    }
    if (!isWhole(op)) return std::nullopt;
    // The next node often uses the result of this one.
    if (op.to >= 0) lastSlot_ = op.to;
    op.thread = 0;
    op.branch = static_cast<uint8_t>(below(2));
    op.joins = chance(50);
    return op;
  }
  void addGraph(std::vector<Op> body) {
    bodies_.resize(static_cast<size_t>(graphs_) + 1);
    bodies_[graphs_] = body;
    Refusal why = Refusal::none;
    Op op{.kind = OpKind::graph, .object = graphs_, .body = std::move(body)};
    for (int tries = 0; tries < 2; ++tries) {
      if (append({op}, &why)) {
        ++graphs_;
        return;
      }
      for (Op& each : op.body) each.joins = true;
      bodies_[graphs_] = op.body;
    }
    bodies_.pop_back();
  }

  bool finish() {
    for (int tries = 0; tries < 200; ++tries) {
      const std::vector<Op> ops = freeing({.thread = thread()});
      if (ops.empty()) return true;
      Refusal why = Refusal::none;
      append({pick(ops)}, &why);
    }
    return false;
  }

  const Features& without_;
  const bool isMixed_;  ///< uses streams of all four kinds alike
  std::mt19937_64 random_;
  Program program_;
  std::optional<Order> order_;
  std::vector<uint8_t> usable_;
  std::vector<Touch> touched_;
  std::vector<std::vector<Op>> bodies_;
  uint8_t lastStream_ = kNone;
  int lastSlot_ = -1;
  uint8_t nextEvent_ = 0;
  uint8_t nextSignal_ = 0;
  uint8_t events_ = 0;
  uint8_t promises_ = 0;
  uint8_t graphs_ = 0;
  uint32_t inPile_ = 0;  ///< ops that have not been generated yet
  uint8_t pileStream_ = kNone;
};

}  // namespace

Program generate(uint64_t seed, uint64_t number, const Features& without) {
  for (uint32_t attempt = 0;; ++attempt)
    if (std::optional<Program> made = Generator(seed, number, attempt, without).make()) return std::move(*made);
}

}  // namespace millpond::model
