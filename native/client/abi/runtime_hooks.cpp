// SPDX-License-Identifier: Apache-2.0
#include "client/abi/runtime_hooks.h"

#include <array>
#include <atomic>

namespace millpond::client::runtime_hooks {
namespace {

/// 64-bit words, as the runtime counts them; it reads a 32-bit word for each call.
constexpr size_t kWords = 1024;
alignas(8) constinit std::array<std::atomic<uint32_t>, kWords * 2> switches{};
static_assert(sizeof switches == kWords * sizeof(uint64_t));

constinit std::atomic<RuntimeObserver> current{nullptr};

}  // namespace

void getSwitches(void** buffer, size_t* count) {
  *buffer = switches.data();
  *count = kWords;
}

void called(uint32_t number, const Call* call) {
  const RuntimeObserver observer = current.load(std::memory_order_acquire);
  if (!observer || !call || call->bytes < sizeof(Call)) return;
  const bool isExit = call->isExit != 0;
  observer(number, isExit, isExit && call->result ? *call->result : 0);
}

void observe(RuntimeObserver observer) { current.store(observer, std::memory_order_release); }

void setSwitch(uint32_t number, bool isOn) {
  if (number < switches.size()) switches[number].store(isOn ? 1 : 0, std::memory_order_relaxed);
}

}  // namespace millpond::client::runtime_hooks
