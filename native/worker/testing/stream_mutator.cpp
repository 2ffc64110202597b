// SPDX-License-Identifier: Apache-2.0
// Mutates a command stream for libFuzzer: frame by frame, so that most results are well framed, with values that are
// likely to be meaningful. The input format is that of session_fuzz.cpp.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "protocol/gen/command_layouts.h"
#include "protocol/handle.h"
#include "protocol/wire.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t maxSize);

namespace millpond::worker {
namespace {

constexpr size_t kMostTailBytes = 512;

struct Frame {
  wire::CommandHeader header{};
  std::vector<uint8_t> body;
};

class StreamMutator {
 public:
  StreamMutator(std::span<const uint8_t> input, uint32_t seed) : random_(seed) {
    if (input.empty()) return;
    first_ = input[0];
    input = input.subspan(1);
    while (input.size() >= sizeof(wire::CommandHeader)) {
      Frame frame;
      std::memcpy(&frame.header, input.data(), sizeof(frame.header));
      if (frame.header.bytes < sizeof(frame.header) || frame.header.bytes > input.size()) break;
      frame.body.assign(input.begin() + sizeof(frame.header), input.begin() + frame.header.bytes);
      frames_.push_back(std::move(frame));
      input = input.subspan(frames_.back().header.bytes);
    }
    rest_.assign(input.begin(), input.end());
  }

  void change() {
    switch (below(frames_.empty() ? 1 : 12)) {
      case 0:
      case 1: insert(); break;
      case 2: frames_.erase(anyFrame()); break;
      case 3: {
        const Frame copy = *anyFrame();
        frames_.insert(anyPlace(), copy);
        break;
      }
      case 4: std::iter_swap(anyFrame(), anyFrame()); break;
      case 5:
      case 6:
      case 7: changeField(*anyFrame()); break;
      case 8: changeTail(*anyFrame()); break;
      case 9: copyWord(*anyFrame(), *anyFrame()); break;
      case 10: changeHeader(*anyFrame()); break;
      default:
        if (below(8) == 0) first_ = static_cast<uint8_t>(random_());
        rest_.clear();
        changeBytes(anyFrame()->body, kMostTailBytes);
    }
  }
  size_t write(uint8_t* out, size_t room) const {
    size_t at = 0;
    const auto append = [&](const void* bytes, size_t count) {
      if (count > room - at) return false;
      if (count) std::memcpy(out + at, bytes, count);
      at += count;
      return true;
    };
    append(&first_, 1);
    for (const Frame& frame : frames_)
      if (sizeof(frame.header) + frame.body.size() <= room - at) {
        append(&frame.header, sizeof(frame.header));
        append(frame.body.data(), frame.body.size());
      }
    append(rest_.data(), rest_.size());
    return at;
  }

 private:
  uint32_t below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }
  std::vector<Frame>::iterator anyFrame() { return frames_.begin() + below(frames_.size()); }
  std::vector<Frame>::iterator anyPlace() { return frames_.begin() + below(frames_.size() + 1); }
  static const cmd::CommandLayout* layoutOf(const Frame& frame) {
    if (frame.header.op == 0 || frame.header.op >= cmd::kOpLimit) return nullptr;
    return &cmd::layoutOf(static_cast<cmd::Op>(frame.header.op));
  }

  uint64_t likelyHandle() { return handle::make(static_cast<HandleKind>(below(kHandleKinds)), 1 + below(12), 1); }
  /// Address of the session's memory: see OwnDriver.
  uint64_t likelyAddress() {
    const uint64_t range = 0x2000'0000'0000 + below(4) * (uint64_t{128} << 30);
    const uint64_t inside[] = {0, 512u * below(16), 0x20'0000u * below(4), below(1 << 16)};
    return range + inside[below(4)];
  }
  uint64_t likelyWord() {
    switch (below(12)) {
      case 0: return 0;
      case 1: return ~uint64_t{0} - below(16);
      case 2: return uint64_t{1} << below(64);
      case 3:
      case 4: return likelyHandle();
      case 5:
      case 6: return likelyAddress();
      case 7: return 4096u * below(64);
      case 8: return (uint64_t{random_()} << 32) | random_();
      case 9:
        // Possible address of the client's own memory.
        return 0x3000'0000'0000 + 4096u * below(64);
      case 10: return below(1 << 16);
      default: return below(8);
    }
  }

  void setField(Frame& frame, const cmd::FieldLayout& field, uint64_t value) {
    if (field.offset + size_t{field.bytes} > frame.body.size()) return;
    if (field.bytes <= sizeof(value)) {
      std::memcpy(frame.body.data() + field.offset, &value, field.bytes);
      return;
    }
    // A structure: one of its words.
    const size_t at = field.offset + 4 * size_t{below(field.bytes / 4 - 1)};
    std::memcpy(frame.body.data() + at, &value, below(2) ? 4 : 8);
  }
  void changeField(Frame& frame) {
    const cmd::CommandLayout* layout = layoutOf(frame);
    if (!layout || layout->fields.size() <= layout->tails) return changeHeader(frame);
    const auto& field = layout->fields[below(layout->fields.size() - layout->tails)];
    uint64_t value = likelyWord();
    if (field.use == cmd::FieldUse::kHandle || field.use == cmd::FieldUse::kNewHandle)
      value = handle::make(field.kind, 1 + below(12), 1);
    else if (field.bytes < 8 && below(2))
      value = below(10);
    setField(frame, field, value);
  }

  /// The tails of a body whose lengths are right.
  std::vector<std::vector<uint8_t>> tailsOf(const Frame& frame, const cmd::CommandLayout& layout) {
    std::vector<std::vector<uint8_t>> tails(layout.tails);
    size_t at = layout.fixedBytes;
    for (size_t i = 0; i < tails.size(); ++i) {
      const auto& length = layout.fields[layout.fields.size() - layout.tails + i];
      uint32_t bytes = 0;
      if (frame.body.size() < layout.fixedBytes) break;
      std::memcpy(&bytes, frame.body.data() + length.offset, sizeof(bytes));
      if (at > frame.body.size() || bytes > frame.body.size() - at) break;
      tails[i].assign(frame.body.begin() + static_cast<ptrdiff_t>(at),
                      frame.body.begin() + static_cast<ptrdiff_t>(at + bytes));
      at += cmd::paddedBytes(bytes);
    }
    return tails;
  }
  void setTails(Frame& frame, const cmd::CommandLayout& layout, const std::vector<std::vector<uint8_t>>& tails) {
    frame.body.resize(layout.fixedBytes);
    for (size_t i = 0; i < tails.size(); ++i) {
      const auto& length = layout.fields[layout.fields.size() - layout.tails + i];
      const auto bytes = static_cast<uint32_t>(tails[i].size());
      std::memcpy(frame.body.data() + length.offset, &bytes, sizeof(bytes));
    }
    for (const auto& tail : tails) {
      frame.body.insert(frame.body.end(), tail.begin(), tail.end());
      frame.body.resize(cmd::paddedBytes(frame.body.size()));
    }
    frame.header.bytes = static_cast<uint32_t>(sizeof(frame.header) + frame.body.size());
  }
  void changeTail(Frame& frame) {
    const cmd::CommandLayout* layout = layoutOf(frame);
    if (!layout || layout->tails == 0) return changeField(frame);
    auto tails = tailsOf(frame, *layout);
    auto& tail = tails[below(tails.size())];
    if (below(3) == 0) {
      tail.resize(8 * size_t{below(20)});
    } else if (below(2) && tail.size() >= 8) {
      const uint64_t word = below(3) ? likelyWord() : below(8);
      std::memcpy(tail.data() + 4 * size_t{below(tail.size() / 4 - 1)}, &word, below(2) ? 4 : 8);
    } else {
      changeBytes(tail, tail.size() + kMostTailBytes);
    }
    setTails(frame, *layout, tails);
  }
  void changeBytes(std::vector<uint8_t>& bytes, size_t room) {
    const size_t before = bytes.size();
    bytes.resize(std::max(room, before));
    bytes.resize(LLVMFuzzerMutate(bytes.data(), before, bytes.size()));
  }

  void insert() {
    Frame frame;
    const auto& layout = cmd::kCommandLayouts[below(std::size(cmd::kCommandLayouts))];
    frame.header = {0, static_cast<uint16_t>(layout.op), static_cast<uint16_t>(below(8) ? 1 + below(2) : below(5)),
                    layout.hasReply || below(4) == 0 ? 1 + below(100) : 0, 1};
    std::vector<std::vector<uint8_t>> tails(layout.tails);
    for (auto& tail : tails) tail.resize(below(2) ? 0 : 8 * size_t{below(8)});
    setTails(frame, layout, tails);
    for (size_t i = 0; i + layout.tails < layout.fields.size(); ++i)
      if (below(4)) changeField(frame);
    frames_.insert(anyPlace(), std::move(frame));
  }
  void copyWord(const Frame& from, Frame& to) {
    if (from.body.size() < 8 || to.body.size() < 8) return;
    std::memcpy(to.body.data() + 8 * size_t{below(to.body.size() / 8)},
                from.body.data() + 8 * size_t{below(from.body.size() / 8)}, 8);
  }
  void changeHeader(Frame& frame) {
    switch (below(6)) {
      case 0: frame.header.context = static_cast<uint16_t>(below(5)); break;
      case 1: frame.header.request = below(2) ? 0 : 1 + below(100); break;
      case 2: frame.header.op = below(10) ? static_cast<uint16_t>(1 + below(cmd::kOpLimit)) : wire::kLinkOp; break;
      case 3: frame.header.bytes += 8 * (below(5) - 2); break;
      case 4:
        frame.body.resize(8 * size_t{below(24)});
        frame.header.bytes = static_cast<uint32_t>(sizeof(frame.header) + frame.body.size());
        break;
      default: frame.header.context = static_cast<uint16_t>(random_());
    }
  }

  std::minstd_rand random_;
  uint8_t first_ = 0;
  std::vector<Frame> frames_;
  std::vector<uint8_t> rest_;
};

}  // namespace
}  // namespace millpond::worker

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t maxSize, unsigned seed) {
  // Occasionally an arbitrary value.
  if (seed % 16 == 0) return LLVMFuzzerMutate(data, size, maxSize);
  millpond::worker::StreamMutator mutator({data, size}, seed);
  for (unsigned i = 0; i <= seed % 3; ++i) mutator.change();
  return mutator.write(data, maxSize);
}
