// SPDX-License-Identifier: Apache-2.0
// Classifies commands: turns of the device at mirrored memory, and waits that end a turn.
#pragma once

#include <algorithm>
#include <cstdint>

#include "client/addresses/own_address.h"
#include "client/memory/mirror/mirror.h"
#include "protocol/gen/commands.h"

namespace millpond::client {

/// Whether a command lets the device read or write memory that the program names.
constexpr bool isTurn(cmd::Op op) noexcept {
  switch (op) {
    case cmd::Op::kCopyToDevice:
    case cmd::Op::kStreamWriteValue32V2:
    case cmd::Op::kStreamWriteValue64V2:
    case cmd::Op::kStreamBatchMemOpV2: return true;
    default: return cmd::isWork(op);
  }
}

/// Whether success means that the device has completed work.
constexpr bool endsTurn(cmd::Op op) noexcept {
  switch (op) {
    case cmd::Op::kStreamSync:
    case cmd::Op::kStreamQuery:
    case cmd::Op::kEventSync:
    case cmd::Op::kEventQuery:
    case cmd::Op::kContextSync:
    case cmd::Op::kCopyFromDevice:
    case cmd::Op::kCopyHostShared: return true;
    default: return false;
  }
}

/// Whether such a wait is answered immediately, whether or not the work is done.
constexpr bool isAnsweredAtOnce(cmd::Op op) noexcept {
  return op == cmd::Op::kStreamQuery || op == cmd::Op::kEventQuery;
}

/// Whether mirrored memory could be accessed during the turn. That includes commands that do not name their memory.
template <typename C>
bool touchesMirror(const Mirror& mirror, const C& fixed) {
  // The longest unit of a fill.
  constexpr uint64_t kUnit = 4;
  if constexpr (requires {
                  fixed.total;
                  fixed.address;
                }) {
    return mirror.overlaps(OwnAddress::of(fixed.address), fixed.total);
  } else if constexpr (requires {
                         fixed.stream;
                         fixed.address;
                         fixed.bytes;
                       }) {
    return mirror.overlaps(OwnAddress::of(fixed.address), fixed.bytes);
  } else if constexpr (requires {
                         fixed.dstDevice;
                         fixed.srcDevice;
                         fixed.ByteCount;
                       }) {
    return mirror.overlaps(OwnAddress::of(fixed.dstDevice), fixed.ByteCount) ||
           mirror.overlaps(OwnAddress::of(fixed.srcDevice), fixed.ByteCount);
  } else if constexpr (requires {
                         fixed.dstDevice;
                         fixed.N;
                       }) {
    return mirror.overlaps(OwnAddress::of(fixed.dstDevice), std::min(fixed.N, UINT64_MAX / kUnit) * kUnit);
  } else {
    return true;
  }
}

}  // namespace millpond::client
