// SPDX-License-Identifier: Apache-2.0
#include "testing/model/program.h"

namespace millpond::model {

SlotPlace placeOf(const Program& program, int slot) {
  SlotPlace place;
  auto left = static_cast<uint32_t>(slot);
  for (const Buffer& buffer : program.buffers) {
    if (left < buffer.slots) break;
    left -= buffer.slots;
    ++place.buffer;
  }
  place.index = left;
  return place;
}

size_t slotCount(const Program& program) {
  size_t count = 0;
  for (const Buffer& buffer : program.buffers) count += buffer.slots;
  return count;
}

bool usesWords(const Program& program) {
  bool uses = false;
  eachOp(program, [&](const Op& op) {
    uses = uses || op.kind == OpKind::waitValue || op.kind == OpKind::writeValue || op.kind == OpKind::storeWord;
  });
  return uses;
}

namespace {

const char* nameOf(Memory memory) {
  switch (memory) {
    case Memory::device: return "device";
    case Memory::pool: return "pool";
    case Memory::peer: return "peer";
    case Memory::managed: return "managed";
    case Memory::pinned: return "pinned";
    case Memory::registered: return "registered";
    case Memory::pageable: return "pageable";
  }
  return "?";
}

const char* nameOf(OpKind kind) {
  switch (kind) {
    case OpKind::launch: return "launch";
    case OpKind::copy: return "copy";
    case OpKind::fill: return "fill";
    case OpKind::record: return "record";
    case OpKind::waitEvent: return "waitEvent";
    case OpKind::syncEvent: return "syncEvent";
    case OpKind::queryEvent: return "queryEvent";
    case OpKind::syncStream: return "syncStream";
    case OpKind::queryStream: return "queryStream";
    case OpKind::syncContext: return "syncContext";
    case OpKind::hostFunction: return "hostFunction";
    case OpKind::waitValue: return "waitValue";
    case OpKind::writeValue: return "writeValue";
    case OpKind::storeWord: return "storeWord";
    case OpKind::fulfil: return "fulfil";
    case OpKind::hostUpdate: return "hostUpdate";
    case OpKind::hostCheck: return "hostCheck";
    case OpKind::send: return "send";
    case OpKind::receive: return "receive";
    case OpKind::graph: return "graph";
    case OpKind::launchGraph: return "launchGraph";
    case OpKind::updateGraph: return "updateGraph";
    case OpKind::ask: return "ask";
  }
  return "?";
}

std::string slotText(const Program& program, int slot) {
  const SlotPlace place = placeOf(program, slot);
  const Buffer& buffer = program.buffers[place.buffer];
  return std::string(nameOf(buffer.memory)) + std::to_string(place.buffer) + "[" + std::to_string(place.index) +
         " of " + std::to_string(buffer.words) + " words]";
}

}  // namespace

std::string describe(const Program& program, const Op& op) {
  constexpr const char* kVariants[] = {"", " table", " packed", " rows", " unified", " box", " pooled", " freed"};
  std::string text =
      "thread " + std::to_string(op.thread) + ": " + nameOf(op.kind) + kVariants[static_cast<size_t>(op.variant)];
  text += op.isSynchronous ? " synchronous" : " stream " + std::to_string(op.stream);
  if (op.to >= 0) text += " to " + slotText(program, op.to);
  if (op.from >= 0) text += " from " + slotText(program, op.from);
  if (op.object != kNone) text += " object " + std::to_string(op.object);
  if (op.count != 1) text += " count " + std::to_string(op.count);
  if (op.value != 0) text += " value " + std::to_string(op.value);
  for (const Op& each : op.body)
    text += "\n      branch " + std::to_string(each.branch) + (each.joins ? " joined" : "") + ": " +
            describe(program, each);
  return text;
}

}  // namespace millpond::model
