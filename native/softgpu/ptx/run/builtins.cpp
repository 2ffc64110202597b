// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/run/builtins.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <string>

#include "softgpu/ptx/call_site.h"
#include "softgpu/ptx/run/block.h"

namespace millpond::softgpu::ptx {
namespace {

constexpr uint32_t kPrintParameters[] = {8, 8};
constexpr uint32_t kAssertParameters[] = {8, 8, 4, 8, 8};
constexpr uint32_t kOneWord[] = {8};
constexpr uint32_t kConditionParameters[] = {8, 4};
constexpr BuiltinFunction kBuiltins[] = {
    {"vprintf", Builtin::kPrint, kPrintParameters, 4},
    {"__assertfail", Builtin::kAssertFail, kAssertParameters, 0},
    {"malloc", Builtin::kAllocate, kOneWord, 8},
    {"free", Builtin::kRelease, kOneWord, 0},
    {"cudaGraphSetConditional", Builtin::kSetCondition, kConditionParameters, 0},
};

constexpr size_t kMaxText = 64 * 1024;
constexpr int kMaxField = 4096;  // width or precision of one conversion
constexpr uint64_t kOffsetMask = (uint64_t{1} << kWindowShift) - 1;

/// One lane's view of memory through generic addresses. Records the first invalid address.
class LaneMemory {
 public:
  LaneMemory(Context& context, uint32_t lane) : context_(context), lane_(lane) {}

  template <typename T>
  T read(uint64_t address) {
    T value{};
    if (const std::byte* at = locate(address, sizeof(T))) std::memcpy(&value, at, sizeof(T));
    return value;
  }
  std::string string(uint64_t address) {
    std::string out;
    while (out.size() < kMaxText) {
      char c = read<char>(address + out.size());
      if (isBad_ || c == '\0') break;
      out += c;
    }
    return out;
  }
  bool isMapped(uint64_t address, uint32_t bytes) { return locate(address, bytes) != nullptr; }
  bool isBad() const { return isBad_; }
  uint64_t badAddress() const { return badAddress_; }

 private:
  const std::byte* locate(uint64_t address, uint32_t bytes) {
    uint64_t window = address & ~kOffsetMask;
    uint64_t offset = address & kOffsetMask;
    if (window == kSharedWindow && offset <= context_.sharedBytes && context_.sharedBytes - offset >= bytes)
      return context_.shared + offset;
    if (window == kLocalWindow && offset <= context_.localBytes && context_.localBytes - offset >= bytes) {
      return context_.local + size_t{lane_} * context_.localBytes + offset;
    }
    if (window == kGlobalWindow && findRange(context_, address, bytes, false))
      return reinterpret_cast<const std::byte*>(address);
    if (!isBad_) badAddress_ = address;
    isBad_ = true;
    return nullptr;
  }

  Context& context_;
  uint32_t lane_;
  bool isBad_ = false;
  uint64_t badAddress_ = 0;
};

/// The text of one printf. Arguments are stored consecutively, each aligned to its size, as for varargs.
class Formatter {
 public:
  Formatter(LaneMemory& memory, std::string format, uint64_t arguments)
      : memory_(memory), format_(std::move(format)), next_(arguments) {}

  std::string run() {
    while (at_ < format_.size() && out_.size() < kMaxText && !memory_.isBad()) {
      char c = format_[at_++];
      if (c != '%') {
        out_ += c;
      } else if (peek() == '%') {
        out_ += '%';
        ++at_;
      } else {
        conversion();
      }
    }
    return std::move(out_);
  }
  int32_t argumentCount() const { return count_; }

 private:
  char peek() const { return at_ < format_.size() ? format_[at_] : '\0'; }

  template <typename T>
  T argument() {
    next_ = (next_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value = memory_.read<T>(next_);
    next_ += sizeof(T);
    ++count_;
    return value;
  }

  /// A width or precision; none if it is absent.
  std::optional<int> number() {
    if (peek() == '*') {
      ++at_;
      return argument<int32_t>();
    }
    if (peek() < '0' || peek() > '9') return std::nullopt;
    int value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = std::min(value * 10 + (peek() - '0'), kMaxField);
      ++at_;
    }
    return value;
  }

  void conversion() {
    size_t start = at_ - 1;
    std::string spec = "%";
    while (peek() != '\0' && std::strchr("-+ #0", peek())) spec += format_[at_++];
    if (std::optional<int> width = number()) {
      if (*width < 0) spec += '-';
      spec += std::to_string(std::min(std::abs(std::max(*width, -kMaxField)), kMaxField));
    }
    if (peek() == '.') {
      ++at_;
      std::optional<int> precision = number();
      if (!precision || *precision >= 0) spec += "." + std::to_string(std::min(precision.value_or(0), kMaxField));
    }
    int longs = 0;
    for (; peek() != '\0' && std::strchr("hljztL", peek()); ++at_)
      longs += peek() == 'l' || peek() == 'j' || peek() == 'z' || peek() == 't';
    char kind = peek();
    if (kind != '\0') ++at_;
    switch (kind) {
      case 'd':
      case 'i':
        return longs ? print(spec + "lld", static_cast<long long>(argument<int64_t>()))
                     : print(spec + "d", argument<int32_t>());
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return longs ? print(spec + "ll" + kind, static_cast<unsigned long long>(argument<uint64_t>()))
                     : print(spec + kind, argument<uint32_t>());
      case 'c': return print(spec + 'c', argument<int32_t>());
      case 'p': return print(spec + 'p', reinterpret_cast<void*>(argument<uint64_t>()));
      case 's': {
        const auto text = argument<uint64_t>();
        return print(spec + 's', text != 0 ? memory_.string(text).c_str() : "(null)");
      }
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
      case 'a':
      case 'A': return print(spec + kind, argument<double>());
      default: out_ += format_.substr(start, at_ - start);  // not a conversion: printed unchanged
    }
  }

  template <typename T>
  void print(const std::string& spec, T value) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    int length = std::snprintf(nullptr, 0, spec.c_str(), value);
    if (length < 0) return;
    std::string text(static_cast<size_t>(length) + 1, '\0');
    std::snprintf(text.data(), text.size(), spec.c_str(), value);
#pragma GCC diagnostic pop
    text.pop_back();
    out_ += text;
  }

  LaneMemory& memory_;
  std::string format_;
  size_t at_ = 0;
  uint64_t next_;
  int32_t count_ = 0;
  std::string out_;
};

template <typename T>
T argumentOf(const Context& context, const CallSite& site, uint32_t lane, uint32_t index) {
  T value;
  std::memcpy(&value,
              context.local + size_t{lane} * context.localBytes + context.localBase + site.values[index].callerOffset,
              sizeof(T));
  return value;
}

std::string triple(const uint32_t* v) {
  return "[" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + "]";
}

/// A return value of one lane.
template <typename T>
void setResult(const Context& context, const CallSite& site, uint32_t lane, T value) {
  const CallValue& place = site.values[site.argumentCount];
  std::memcpy(context.local + size_t{lane} * context.localBytes + context.localBase + place.callerOffset, &value,
              sizeof(T));
}

/// False after a fault.
bool print(const Instruction* at, Context& context, const CallSite& site, uint32_t lane) {
  LaneMemory memory(context, lane);
  Formatter formatter(memory, memory.string(argumentOf<uint64_t>(context, site, lane, 0)),
                      argumentOf<uint64_t>(context, site, lane, 1));
  std::string text = formatter.run();
  if (memory.isBad()) {
    raiseFault(at, context, FaultKind::kIllegalAddress, {lane, memory.badAddress(), 1, false});
    return false;
  }
  context.block->grid().print(text);
  setResult(context, site, lane, formatter.argumentCount());
  return true;
}

void failAssertion(const Instruction* at, Context& context, const CallSite& site, uint32_t lane) {
  LaneMemory memory(context, lane);
  std::string message = memory.string(argumentOf<uint64_t>(context, site, lane, 0));
  std::string file = memory.string(argumentOf<uint64_t>(context, site, lane, 1));
  std::string function = memory.string(argumentOf<uint64_t>(context, site, lane, 3));
  std::string line = std::to_string(argumentOf<uint32_t>(context, site, lane, 2));
  uint32_t thread[3] = {context.threadIndex[0][lane], context.threadIndex[1][lane], context.threadIndex[2][lane]};
  context.warp->fault(at, FaultKind::kAssert, {lane, 0, 0, false},
                      file + ":" + line + ": " + function + ": block: " + triple(context.blockIndex) +
                          ", thread: " + triple(thread) + " Assertion `" + message + "` failed.");
}

/// False after a fault.
bool release(const Instruction* at, Context& context, const CallSite& site, uint32_t lane) {
  uint64_t address = argumentOf<uint64_t>(context, site, lane, 0);
  DeviceHeap* heap = context.block->grid().launch.heap;
  if (address == 0 || (heap && heap->release(address))) return true;
  // A card's free() reads what malloc() stored beside the memory, and traps if that is missing.
  bool isKnown = LaneMemory(context, lane).isMapped(address, 1);
  raiseFault(at, context, isKnown ? FaultKind::kTrap : FaultKind::kIllegalAddress, {lane, address, 1, true});
  return false;
}

}  // namespace

const BuiltinFunction* findBuiltin(std::string_view name) {
  for (const BuiltinFunction& builtin : kBuiltins) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

/// Instruction::immediate: the Builtin.
const Instruction* callBuiltin(const Instruction* at, Context& context) {
  const CallSite& site = *static_cast<const CallSite*>(at->table);
  DeviceHeap* heap = context.block->grid().launch.heap;
  Conditions* conditions = context.block->grid().launch.conditions;
  for (uint32_t rest = context.mask; rest; rest &= rest - 1) {
    uint32_t lane = static_cast<uint32_t>(std::countr_zero(rest));
    switch (static_cast<Builtin>(at->immediate)) {
      case Builtin::kPrint:
        if (!print(at, context, site, lane)) return nullptr;
        break;
      case Builtin::kAssertFail: failAssertion(at, context, site, lane); return nullptr;
      case Builtin::kAllocate: {
        uint64_t bytes = argumentOf<uint64_t>(context, site, lane, 0);
        setResult(context, site, lane, heap && bytes ? heap->allocate(bytes) : uint64_t{0});
        break;
      }
      case Builtin::kRelease:
        if (!release(at, context, site, lane)) return nullptr;
        break;
      case Builtin::kSetCondition:
        if (conditions)
          conditions->set(argumentOf<uint64_t>(context, site, lane, 0), argumentOf<uint32_t>(context, site, lane, 1));
        break;
    }
  }
  return at + 1;
}

}  // namespace millpond::softgpu::ptx
