// SPDX-License-Identifier: Apache-2.0
// Effects of sent commands on the state that the client keeps. The description of the API names the commands that have one.
#pragma once

#include <cstdint>
#include <span>

#include "client/addresses/own_address.h"
#include "client/call/call.h"
#include "client/memory/mirror/mirror.h"
#include "protocol/gen/commands.h"

namespace millpond::client::consequence {

/// Whether the mirror is notified of the stream's words: not of recorded ones.
inline bool handsWords(Call& call, uint64_t stream) noexcept { return call.isDoneNow(stream); }

/// A stream waits for a word (`isWait`), or writes one: the condition holds when it has that value.
template <typename T>
void handWord(Mirror& mirror, bool isWait, uint64_t address, T value, unsigned flags) {
  using By = AwaitedWord::By;
  mirror.await({isWait ? By::kStream : By::kProgram, address, sizeof(T), value,
                isWait ? flags : unsigned{CU_STREAM_WAIT_VALUE_EQ}});
}

template <class Command>
void awaitsWord(Call& call, const Command& wait) {
  if (handsWords(call, wait.stream)) [[unlikely]]
    handWord(call.remote().mirror, true, OwnAddress::of(wait.addr), wait.value, wait.flags);
}

template <class Command>
void writesWord(Call& call, const Command& write) {
  if (handsWords(call, write.stream)) [[unlikely]]
    handWord(call.remote().mirror, false, OwnAddress::of(write.addr), write.value, write.flags);
}

/// Some of both: CUstreamBatchMemOpParams each.
void batchesWords(Call& call, const cmd::StreamBatchMemOpV2& batch, std::span<const std::byte> operations);

}  // namespace millpond::client::consequence
