// SPDX-License-Identifier: Apache-2.0
// Effects of sent commands on the state that the client keeps. The description of the API names the commands that have one.
#pragma once

#include <cstdint>
#include <span>

#include "client/addresses/own_address.h"
#include "client/call/call.h"
#include "protocol/gen/commands.h"

namespace millpond::client::effect {

/// Whether the mirror is notified of the stream's words; it is not for recorded ones.
inline bool handsWords(Call& call, uint64_t stream) noexcept { return call.isDoneNow(stream); }

/// A stream waits for a word (`isWait`), or writes one: the condition is true when the word has that value.
void handWord(Call& call, bool isWait, uint64_t address, uint32_t value, unsigned flags);
void handWord(Call& call, bool isWait, uint64_t address, uint64_t value, unsigned flags);

template <class Command>
void awaitsWord(Call& call, const Command& wait) {
  if (handsWords(call, wait.stream)) [[unlikely]]
    handWord(call, true, OwnAddress::of(wait.addr), wait.value, wait.flags);
}

template <class Command>
void writesWord(Call& call, const Command& write) {
  if (handsWords(call, write.stream)) [[unlikely]]
    handWord(call, false, OwnAddress::of(write.addr), write.value, write.flags);
}

/// Several waits and writes: an array of CUstreamBatchMemOpParams.
void batchesWords(Call& call, const cmd::StreamBatchMemOpV2& batch, std::span<const std::byte> operations);

}  // namespace millpond::client::effect
