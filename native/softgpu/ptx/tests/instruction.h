// SPDX-License-Identifier: Apache-2.0
// One instruction at a time, against a function on the CPU.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <random>
#include <tuple>
#include <utility>

#include "softgpu/ptx/tests/fixture.h"

namespace millpond::softgpu::ptx::testing {

/// Values at the edges of a type, and some others.
template <typename T>
std::vector<T> interestingIntegers() {
  using U = std::make_unsigned_t<T>;
  std::vector<T> out{T{0}, T{1}, static_cast<T>(-1), T{2}, T{7}, T{31}, T{32}, T{33}, T{100}};
  constexpr int kBits = sizeof(T) * 8;
  out.push_back(static_cast<T>(U{1} << (kBits - 1)));
  out.push_back(static_cast<T>((U{1} << (kBits - 1)) - 1));
  out.push_back(static_cast<T>((U{1} << (kBits - 1)) + 1));
  out.push_back(static_cast<T>(0x5a5a5a5a5a5a5a5au));
  out.push_back(static_cast<T>(0xfedcba9876543210u));
  out.push_back(static_cast<T>(U{1} << (kBits / 2)));
  std::mt19937_64 random(17);
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<T>(random()));
  return out;
}
template <typename T>
std::vector<T> interestingFloats() {
  using L = std::numeric_limits<T>;
  std::vector<T> out{T(0),
                     T(-0.0),
                     T(1),
                     T(-1),
                     T(0.5),
                     T(1.5),
                     T(2.5),
                     T(-2.5),
                     T(3.7),
                     T(-3.2),
                     T(0.1),
                     T(1) / 3,
                     T(100.25),
                     L::min(),
                     -L::min(),
                     L::denorm_min(),
                     -L::denorm_min() * 5,
                     L::max(),
                     L::lowest(),
                     L::infinity(),
                     -L::infinity(),
                     L::quiet_NaN(),
                     L::epsilon(),
                     T(1) + L::epsilon(),
                     T(2147483648.0),
                     T(4294967295.0),
                     T(-2147483904.0)};
  std::mt19937_64 random(23);
  for (int i = 0; i < 8; ++i)
    out.push_back(
        std::ldexp(static_cast<T>(static_cast<int64_t>(random())), static_cast<int>(random() % 40) - 80));
  return out;
}
template <typename T>
std::vector<T> interesting() {
  if constexpr (std::is_integral_v<T>)
    return interestingIntegers<T>();
  else
    return interestingFloats<T>();
}

/// All combinations of the interesting values, thinned out where there would be too many.
template <typename... S>
std::vector<std::tuple<S...>> combinations() {
  std::tuple<std::vector<S>...> values{interesting<S>()...};
  size_t total = 1;
  std::apply([&](const auto&... v) { ((total *= v.size()), ...); }, values);
  constexpr size_t kLimit = 2000;
  size_t step = total > kLimit ? total / kLimit | 1 : 1;
  std::vector<std::tuple<S...>> out;
  for (size_t i = 0; i < total; i += step) {
    size_t rest = i;
    auto pick = [&](const auto& v) {
      auto value = v[rest % v.size()];
      rest /= v.size();
      return value;
    };
    out.push_back(std::apply([&](const auto&... v) { return std::tuple<S...>{pick(v)...}; }, values));
  }
  return out;
}

template <typename T>
std::string bitsText(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  char text[64];
  std::snprintf(text, sizeof(text), "0x%llx (%g)", static_cast<unsigned long long>(bits),
                static_cast<double>(value));
  return text;
}

template <typename T>
bool sameBits(T a, T b) {
  // Which NaN it is matters to the tests that look at patterns only.
  if (a != a && b != b) return true;
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// One set of sources, each in the low bits of its element.
using Sources = std::array<uint64_t, 4>;

/// An instruction to test, without the types of its operands.
struct InstructionCase {
  std::string text;  // computes %d from %a, %b, %c, %e
  size_t resultBytes = 4;
  std::vector<size_t> sourceBytes;
  std::vector<Sources> inputs;
  std::function<bool(uint64_t got, const Sources&)> isGood;
  std::function<std::string(uint64_t got, const Sources&)> describe;
};

/// Runs the instruction for each set of sources: once by all lanes and once by some of them, where the others
/// must keep what %d was.
void runInstruction(const InstructionCase& test);

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

/// `isGood(got, sources...)` judges each result.
template <typename D, typename... S, typename Judge>
void checkInstructionWith(const std::string& instruction, const std::vector<std::tuple<S...>>& inputs,
                          Judge isGood) {
  InstructionCase test;
  test.text = instruction;
  test.resultBytes = sizeof(D);
  test.sourceBytes = {sizeof(S)...};
  for (const std::tuple<S...>& input : inputs) {
    Sources sources{};
    size_t k = 0;
    std::apply([&](const auto&... values) { ((sources[k++] = toBits(values)), ...); }, input);
    test.inputs.push_back(sources);
  }
  auto apply = [](const Sources& sources, const auto& f) {
    return [&]<size_t... k>(std::index_sequence<k...>) {
      return f(fromBits<S>(sources[k])...);
    }(std::index_sequence_for<S...>{});
  };
  test.isGood = [=](uint64_t got, const Sources& sources) {
    return apply(sources, [&](auto... values) { return isGood(fromBits<D>(got), values...); });
  };
  test.describe = [=](uint64_t got, const Sources& sources) {
    std::string text;
    apply(sources, [&](auto... values) { return ((text += "\n  source: " + bitsText(values)), ..., 0); });
    text += "\n  result: " + bitsText(fromBits<D>(got));
    if constexpr (requires { isGood.expected; }) {
      text += "\n  expected: " + bitsText(static_cast<D>(apply(
                                     sources, [&](auto... values) { return isGood.expected(values...); })));
    }
    return text;
  };
  runInstruction(test);
}

template <typename D, typename F>
struct Exactly {
  F expected;
  template <typename... S>
  bool operator()(D got, S... sources) const {
    return sameBits(got, static_cast<D>(expected(sources...)));
  }
};

/// The result must have exactly the bits that `expected(sources...)` has.
template <typename D, typename... S, typename F>
void checkInstruction(const std::string& instruction, F expected) {
  checkInstructionWith<D, S...>(instruction, combinations<S...>(), Exactly<D, F>{expected});
}

}  // namespace millpond::softgpu::ptx::testing
