// SPDX-License-Identifier: Apache-2.0
// The trace of a program's calls: one line for each, written when it returns, into the file that MILLPOND_LOG names.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "cuda/activity_table.h"
#include "cuda/gen/cuda_api.h"

namespace millpond::client::trace {

enum class State : uint8_t { kUnread, kOpening, kOff, kOn };
[[gnu::visibility("hidden")]] inline std::atomic<State> state{State::kUnread};

/// Whether calls are not traced; then this check is the whole cost of a call. Unknown before the first call.
inline bool isOff() noexcept { return state.load(std::memory_order_relaxed) == State::kOff; }

/// Facts that are logged with a call in addition to its result.
struct Notes {
  uint32_t waits = 0;             ///< how often it waited for the worker
  bool isEarlierFailure = false;  ///< its result is the failure of an earlier call
  bool hasWorked = false;         ///< it has sent the worker a command, or queried it
  uint64_t streamBegin = 0;  ///< with stacks, or observed: offset in the session's stream behind everything before it
};
/// Returns the notes of the calling thread's current call.
Notes& notes() noexcept;

/// Passes calls with work, and waits, to `called` when they return, on their threads; null: none. The file continues.
using Observer = void (*)(const ObservedCall*);
void observe(Observer called) noexcept;

/// Writes delayed lines. If the process is profiled, calls that need only the client are omitted, memory that arguments
/// point to is not read, and lines are written in batches: a step of a framework makes many times more such calls than
/// launches.
void flush() noexcept;
/// The same, and from now on each line immediately, because the process is ending.
void finish() noexcept;

/// The time at which a call begins, -1 when it is neither traced nor observed. Opens the file with the first call.
int64_t begin() noexcept;

/// Writes a call, or reports it to the observer. `symbol`: its number in kSymbols. `words`: its arguments in order, as
/// created by `toWord`.
void write(int64_t start, uint32_t symbol, CUresult result, std::span<const uint64_t> words) noexcept;

/// An argument as one word: its value, or its address.
template <typename T>
uint64_t toWord(const T& argument) noexcept {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<uint64_t>(argument);
  else if constexpr (std::is_class_v<T> || std::is_union_v<T>)
    return reinterpret_cast<uint64_t>(&argument);
  else if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(argument);
  else
    return static_cast<uint64_t>(argument);
}
template <typename T>
T fromWord(uint64_t word) noexcept {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<T>(word);
  else if constexpr (std::is_class_v<T> || std::is_union_v<T>)
    return *reinterpret_cast<const T*>(word);
  else if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(word));
  else
    return static_cast<T>(word);
}

template <size_t>
using Word = uint64_t;

/// Code that depends only on the number of arguments is compiled once for each number, not for hundreds of function types.
template <typename Indices>
struct Caller;
template <size_t... indices>
struct Caller<std::index_sequence<indices...>> {
  using Target = CUresult (*)(Word<indices>...) noexcept;
  // The arguments come first, because they are already in those registers.
  [[gnu::noinline]] static CUresult call(Word<indices>... words, Target target, uint32_t symbol) noexcept {
    const std::array<uint64_t, sizeof...(indices)> all = {words...};
    const int64_t begun = begin();
    const CUresult result = target(words...);
    write(begun, symbol, result, all);
    return result;
  }
  template <auto function, auto... flavour>
  struct Typed {
    template <typename... Types>
    static CUresult target(Word<indices>... words) noexcept {
      return function(flavour..., fromWord<Types>(words)...);
    }
  };
};

/// Calls a function of `api`, for its `symbol`, and records the call.
template <auto function, auto... flavour, typename... Types>
[[gnu::always_inline]] inline CUresult call(uint32_t symbol, const Types&... arguments) noexcept {
  using Own = Caller<std::index_sequence_for<Types...>>;
  return Own::call(toWord(arguments)..., &Own::template Typed<function, flavour...>::template target<Types...>, symbol);
}

}  // namespace millpond::client::trace
