// SPDX-License-Identifier: Apache-2.0
// One instruction at a time, against a function on the CPU.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <utility>

#include "softgpu/ptx/tests/fixture.h"

namespace millpond::softgpu::ptx::testing {

/// The type of a register's value. Types are values here: a template over an instruction's result and sources would
/// be instantiated for every combination of them.
struct ValueType {
  bool isFloat;
  size_t bytes;
};
template <typename T>
constexpr ValueType valueType() {
  return {std::is_floating_point_v<T>, sizeof(T)};
}

template <typename T>
uint64_t toBits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <typename T>
T fromBits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

/// One set of sources, each in the low bits of its element.
using Sources = std::array<uint64_t, 4>;

/// All combinations of values at the edges of the types, and some others; thinned out if there would be too many.
std::vector<Sources> combinationsOf(std::initializer_list<ValueType> types);
template <typename... S>
std::vector<Sources> combinations() {
  return combinationsOf({valueType<S>()...});
}

/// The same bits. Only tests of patterns distinguish NaNs.
bool sameBits(ValueType type, uint64_t a, uint64_t b);

/// Calls `f` with the values of the sources.
template <typename... S, typename F>
auto withSources(const F& f, const Sources& sources) {
  return [&]<size_t... k>(std::index_sequence<k...>) { return f(fromBits<S>(sources[k])...); }
  (std::index_sequence_for<S...>{});
}

/// An instruction to test.
struct InstructionCase {
  std::string text;  // computes %d from %a, %b, %c, %e
  ValueType result{};
  std::vector<ValueType> sources;
  std::vector<Sources> inputs;
};
using Judge = std::function<bool(uint64_t got, const Sources&)>;
using Expected = std::function<uint64_t(const Sources&)>;

/// Runs the instruction for each set of sources: once in all lanes and once in some of them, while the others must keep
/// the value of %d.
void judgeInstruction(const InstructionCase& test, const Judge& isGood);
/// The same, where the result must have the bits that are expected.
void compareInstruction(const InstructionCase& test, const Expected& expected);

/// `isGood(got, sources...)` judges each result.
template <typename D, typename... S, typename F>
void checkInstructionWith(const std::string& instruction, const std::vector<Sources>& inputs, F isGood) {
  judgeInstruction({instruction, valueType<D>(), {valueType<S>()...}, inputs},
                   [=](uint64_t got, const Sources& sources) {
                     auto judge = [&](auto... values) { return isGood(fromBits<D>(got), values...); };
                     return withSources<S...>(judge, sources);
                   });
}

/// The result must have exactly the bits that `expected(sources...)` has.
template <typename D, typename... S, typename F>
void checkInstruction(const std::string& instruction, F expected) {
  compareInstruction(
      {instruction, valueType<D>(), {valueType<S>()...}, combinations<S...>()},
      [=](const Sources& sources) { return toBits(static_cast<D>(withSources<S...>(expected, sources))); });
}

}  // namespace millpond::softgpu::ptx::testing
