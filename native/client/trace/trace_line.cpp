// SPDX-License-Identifier: Apache-2.0
#include "client/trace/trace_line.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "client/state/handle_table.h"
#include "client/trace/trace_tables.h"
#include "cuda/known_error.h"

namespace millpond::client::trace {
namespace {

constexpr size_t kTextBytes = 120;     // of a text, what is shown
constexpr size_t kMostArguments = 16;  // of a kernel, what is shown
constexpr size_t kWidest = 8;          // and how wide
constexpr uint64_t kPage = 4096;

std::string_view word(uint16_t at) { return &kWords[at]; }

/// Returns a value of `bytes` bytes without sign extension.
uint64_t loadWord(const std::byte* from, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  return value;
}

size_t bytesOf(Kind kind) {
  switch (kind) {
    case Kind::kI8:
    case Kind::kU8: return 1;
    case Kind::kI16:
    case Kind::kU16: return 2;
    case Kind::kI32:
    case Kind::kU32:
    case Kind::kF32:
    case Kind::kBits32:
    case Kind::kEnum:
    case Kind::kResult: return 4;
    case Kind::kUuid: return 16;
    default: return 8;
  }
}

/// Copies the pieces, one after the other; returns how many bytes could be read.
size_t gather(std::span<const iovec> pieces, void* to, size_t bytes) noexcept {
  const iovec local{to, bytes};
  const ssize_t got = bytes == 0 ? 0 : ::process_vm_readv(::getpid(), &local, 1, pieces.data(), pieces.size(), 0);
  return got < 0 ? 0 : static_cast<size_t>(got);
}

/// Writes the arguments of one call.
class Arguments {
 public:
  Arguments(Line& line, const TracedCall& call, FunctionLookup lookup) : line_(line), call_(call), lookup_(lookup) {}

  void put(const Item& item, uint64_t value) {
    line_.put(word(item.name));
    line_.put('=');
    if (item.shape == Shape::kValue && item.kind == Kind::kKernelParameters && !call_.isBrief) {
      putKernelParameters(value);
    } else if (item.shape == Shape::kValue) {
      putValue(item, value);
    } else if (value == 0) {
      line_.put("null");
    } else if (call_.isBrief) {
      line_.putHex(value);
    } else if (item.shape == Shape::kWritten && call_.result != CUDA_SUCCESS) {
      line_.putHex(value);
    } else {
      putTarget(item, value);
    }
  }

 private:
  /// The memory at an address.
  void putTarget(const Item& item, uint64_t address) {
    const bool isPointer = item.shape != Shape::kInPlace;
    if (item.kind == Kind::kText) return putText(address);
    if (item.kind == Kind::kStruct) return putStruct(item, address);
    std::array<std::byte, 16> bytes;
    const size_t size = bytesOf(item.kind);
    if (readSafely(address, bytes.data(), size) != size) return line_.putHex(address);
    if (isPointer) line_.put('&');
    if (item.kind == Kind::kUuid) return putUuid(bytes.data());
    const uint64_t value = loadWord(bytes.data(), size);
    if (item.kind == Kind::kTextPointer && value != 0) return putText(value);
    putValue(item, value);
  }

  void putValue(const Item& item, uint64_t value) {
    switch (item.kind) {
      case Kind::kI8: return line_.putSigned(static_cast<int8_t>(value));
      case Kind::kI16: return line_.putSigned(static_cast<int16_t>(value));
      case Kind::kI32: return line_.putSigned(static_cast<int32_t>(value));
      case Kind::kI64: return line_.putSigned(static_cast<int64_t>(value));
      case Kind::kU8: return line_.putUnsigned(static_cast<uint8_t>(value));
      case Kind::kU16: return line_.putUnsigned(static_cast<uint16_t>(value));
      case Kind::kU32: return line_.putUnsigned(static_cast<uint32_t>(value));
      case Kind::kU64: return line_.putUnsigned(value);
      case Kind::kF32: return line_.putFloat(std::bit_cast<float>(static_cast<uint32_t>(value)));
      case Kind::kF64: return line_.putFloat(std::bit_cast<double>(value));
      case Kind::kBits32: return line_.putHex(static_cast<uint32_t>(value));
      case Kind::kBits64: return line_.putHex(value);
      case Kind::kEnum: return putEnum(kEnums[item.of], static_cast<int32_t>(value));
      case Kind::kResult: return putResult(static_cast<CUresult>(static_cast<int32_t>(value)));
      case Kind::kStream:
        if (value > 2) return line_.putHex(value);
        return line_.put(value == 0 ? "default" : value == 1 ? "legacy" : "perThread");
      case Kind::kFunction: return putFunction(value);
      case Kind::kOpaque: return line_.put("{}");
      default: return value == 0 ? line_.put("null") : line_.putHex(value);
    }
  }

  void putEnum(const Enum& type, int32_t value) {
    const std::span values(&kEnumValues[type.first], type.count);
    const auto found = std::ranges::find(values, value, &EnumValue::value);
    if (found == values.end()) return line_.putSigned(value);
    line_.put(word(type.prefix));
    line_.put(word(found->rest));
  }

  void putResult(CUresult result) {
    if (const KnownError* known = findKnownError(result)) return line_.put(known->name);
    line_.putSigned(result);
  }

  void putFunction(uint64_t handle) {
    if (handle == 0) return line_.put("null");
    line_.putHex(handle);
    const FunctionInfo* info = lookup_(handle);
    if (!info) return;
    line_.put(' ');
    line_.putQuoted(std::string_view(info->name).substr(0, kTextBytes), info->name.size() <= kTextBytes);
  }

  void putText(uint64_t address) {
    std::array<char, kTextBytes + 1> text;
    const size_t got = readSafely(address, text.data(), text.size());
    if (got == 0) return line_.putHex(address);
    const size_t length = ::strnlen(text.data(), got);
    line_.putQuoted({text.data(), std::min(length, kTextBytes)}, length < got);
  }

  void putUuid(const std::byte* bytes) {
    for (size_t i = 0; i < 16; ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) line_.put('-');
      line_.put("0123456789abcdef"[std::to_integer<unsigned>(bytes[i]) >> 4]);
      line_.put("0123456789abcdef"[std::to_integer<unsigned>(bytes[i]) & 15]);
    }
  }

  void putStruct(const Item& item, uint64_t address) {
    const std::span fields(&kFields[kStructs[item.of].first], kStructs[item.of].count);
    const Item& last = fields.back();
    std::array<std::byte, 512> bytes;
    const size_t size = last.offset + bytesOf(last.kind);
    if (size > bytes.size() || readSafely(address, bytes.data(), size) != size) return line_.putHex(address);
    line_.put(item.shape == Shape::kInPlace ? "{" : "&{");
    for (const Item& field : fields) {
      if (&field != fields.data()) line_.put(", ");
      line_.put(word(field.name));
      line_.put('=');
      if (field.kind == Kind::kUuid)
        putUuid(&bytes[field.offset]);
      else
        putValue(field, loadWord(&bytes[field.offset], bytesOf(field.kind)));
    }
    line_.put('}');
  }

  /// Prints the kernel's parameters, only after a successful launch: the client has read them then.
  void putKernelParameters(uint64_t address) {
    const FunctionInfo* info = launched();
    if (address == 0) return line_.put("null");
    if (!info || call_.result != CUDA_SUCCESS) return line_.putHex(address);
    // All of them at once, because each read is a system call.
    const size_t count = std::min(info->parameters.size(), kMostArguments);
    std::array<uint64_t, kMostArguments> places;
    if (readSafely(address, places.data(), count * sizeof places[0]) != count * sizeof places[0])
      return line_.putHex(address);
    std::array<std::byte, kMostArguments * kWidest> values;
    std::array<iovec, kMostArguments> remote;
    size_t narrow = 0, bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t size = info->parameters[i].size;
      if (size > kWidest) continue;
      remote[narrow++] = {reinterpret_cast<void*>(places[i]), size};
      bytes += size;
    }
    if (gather({remote.data(), narrow}, values.data(), bytes) != bytes) return line_.putHex(address);
    line_.put('[');
    const std::byte* next = values.data();
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) line_.put(", ");
      const size_t size = info->parameters[i].size;
      if (size > kWidest) {
        line_.put('{');
        line_.putUnsigned(size);
        line_.put(" bytes}");
        continue;
      }
      line_.putHex(loadWord(next, size));
      next += size;
    }
    if (count < info->parameters.size()) line_.put(", ...");
    line_.put(']');
  }

  /// The function among the call's arguments.
  const FunctionInfo* launched() const {
    const Symbol& symbol = kSymbols[call_.symbol];
    for (size_t i = 0; i < symbol.count; ++i) {
      const Item& item = kParameters[symbol.first + i];
      if (item.kind == Kind::kFunction && item.shape == Shape::kValue) return lookup_(call_.words[i]);
    }
    return nullptr;
  }

  Line& line_;
  const TracedCall& call_;
  const FunctionLookup lookup_;
};

}  // namespace

size_t readSafely(uint64_t from, void* to, size_t bytes) noexcept {
  // A read that crosses into unmapped memory fails as a whole, so it is split at page borders.
  const size_t inFirst = std::min<uint64_t>(bytes, kPage - from % kPage);
  const std::array<iovec, 2> remote = {iovec{reinterpret_cast<void*>(from), inFirst},
                                       iovec{reinterpret_cast<void*>(from + inFirst), bytes - inFirst}};
  return gather({remote.data(), inFirst < bytes ? size_t{2} : size_t{1}}, to, bytes);
}

void Line::putUnsigned(uint64_t value) noexcept {
  std::array<char, 20> digits;
  size_t at = digits.size();
  do {
    digits[--at] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  put(std::string_view(&digits[at], digits.size() - at));
}

void Line::putSigned(int64_t value) noexcept {
  if (value < 0) put('-');
  putUnsigned(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value));
}

void Line::putHex(uint64_t value) noexcept {
  put("0x");
  const int highest = value == 0 ? 0 : (63 - std::countl_zero(value)) / 4;
  for (int nibble = highest; nibble >= 0; --nibble) put("0123456789abcdef"[value >> (4 * nibble) & 15]);
}

void Line::putFloat(double value) noexcept {
  char text[32];
  const int length = std::snprintf(text, sizeof text, "%.9g", value);
  put(std::string_view(text, static_cast<size_t>(length)));
}

void Line::putMicroseconds(int64_t nanoseconds, size_t width) noexcept {
  const size_t start = used_;
  putUnsigned(static_cast<uint64_t>(nanoseconds) / 1000);
  put('.');
  const auto rest = static_cast<unsigned>(nanoseconds % 1000);
  put(static_cast<char>('0' + rest / 100));
  put(static_cast<char>('0' + rest / 10 % 10));
  put(static_cast<char>('0' + rest % 10));
  const size_t length = used_ - start;
  if (length >= width || start + width > limit_) return;
  std::memmove(&text_[start + width - length], &text_[start], length);
  std::memset(&text_[start], ' ', width - length);
  used_ = start + width;
}

void Line::putQuoted(std::string_view text, bool isWhole) noexcept {
  put('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      put('\\');
      put(c);
    } else if (byte < 0x20 || byte == 0x7f) {
      put("\\u00");
      put("0123456789abcdef"[byte >> 4]);
      put("0123456789abcdef"[byte & 15]);
    } else {
      put(c);
    }
  }
  put(isWhole ? "\"" : "\"...");
}

void Line::putCall(const TracedCall& call, FunctionLookup lookup) noexcept {
  const Symbol& symbol = kSymbols[call.symbol];
  put(word(symbol.name));
  put('(');
  Arguments arguments(*this, call, lookup);
  for (size_t i = 0; i < symbol.count; ++i) {
    const size_t before = used_;
    if (i > 0) put(", ");
    arguments.put(kParameters[symbol.first + i], call.words[i]);
    if (!full_) continue;
    used_ = before;
    limit_ = kRoom;
    put(i > 0 ? ", ..." : "...");
    break;
  }
  limit_ = kRoom;
  put(") = ");
  if (const KnownError* known = findKnownError(call.result))
    put(known->name);
  else
    putSigned(call.result);
}

std::string_view Line::end(std::string_view tail) noexcept {
  const size_t length = std::min(tail.size(), kTail - 1);
  std::memcpy(&text_[used_], tail.data(), length);
  used_ += length;
  text_[used_++] = '\n';
  return {text_.data(), used_};
}

}  // namespace millpond::client::trace
