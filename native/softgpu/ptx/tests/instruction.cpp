// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/tests/instruction.h"

#include <cmath>
#include <limits>
#include <random>

namespace millpond::softgpu::ptx::testing {

namespace {

template <typename T>
std::vector<uint64_t> interestingIntegers() {
  constexpr int kBits = sizeof(T) * 8;
  std::vector<T> values{T{0}, T{1}, static_cast<T>(-1), T{2}, T{7}, T{31}, T{32}, T{33}, T{100}};
  values.push_back(static_cast<T>(T{1} << (kBits - 1)));
  values.push_back(static_cast<T>((T{1} << (kBits - 1)) - 1));
  values.push_back(static_cast<T>((T{1} << (kBits - 1)) + 1));
  values.push_back(static_cast<T>(0x5a5a5a5a5a5a5a5au));
  values.push_back(static_cast<T>(0xfedcba9876543210u));
  values.push_back(static_cast<T>(T{1} << (kBits / 2)));
  std::mt19937_64 random(17);
  for (int i = 0; i < 8; ++i) values.push_back(static_cast<T>(random()));
  return {values.begin(), values.end()};
}
template <typename T>
std::vector<uint64_t> interestingFloats() {
  using L = std::numeric_limits<T>;
  std::vector<T> values{T(0),
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
    values.push_back(std::ldexp(static_cast<T>(static_cast<int64_t>(random())), static_cast<int>(random() % 40) - 80));
  std::vector<uint64_t> bits;
  for (T value : values) bits.push_back(toBits(value));
  return bits;
}
/// Values at the edges of a type, and some others.
std::vector<uint64_t> interesting(ValueType type) {
  if (type.isFloat) return type.bytes == 4 ? interestingFloats<float>() : interestingFloats<double>();
  switch (type.bytes) {
    case 1: return interestingIntegers<uint8_t>();
    case 2: return interestingIntegers<uint16_t>();
    case 4: return interestingIntegers<uint32_t>();
    default: return interestingIntegers<uint64_t>();
  }
}

bool isNan(ValueType type, uint64_t bits) {
  return type.isFloat && (type.bytes == 4 ? std::isnan(fromBits<float>(bits)) : std::isnan(fromBits<double>(bits)));
}
std::string bitsText(ValueType type, uint64_t bits) {
  char text[64];
  if (type.isFloat) {
    double value = type.bytes == 4 ? fromBits<float>(bits) : fromBits<double>(bits);
    std::snprintf(text, sizeof(text), "0x%llx (%g)", static_cast<unsigned long long>(bits), value);
  } else {
    std::snprintf(text, sizeof(text), "0x%llx (%llu)", static_cast<unsigned long long>(bits),
                  static_cast<unsigned long long>(bits));
  }
  return text;
}
uint64_t lowBytes(uint64_t bits, size_t bytes) { return bytes == 8 ? bits : bits & ((uint64_t{1} << (8 * bytes)) - 1); }

std::string describe(const InstructionCase& test, const Sources& sources, uint64_t got) {
  std::string text;
  for (size_t k = 0; k < test.sources.size(); ++k) text += "\n  source: " + bitsText(test.sources[k], sources[k]);
  return text + "\n  result: " + bitsText(test.result, lowBytes(got, test.result.bytes));
}

}  // namespace

std::vector<Sources> combinationsOf(std::initializer_list<ValueType> types) {
  std::vector<std::vector<uint64_t>> values;
  size_t total = 1;
  for (ValueType type : types) {
    values.push_back(interesting(type));
    total *= values.back().size();
  }
  constexpr size_t kLimit = 2000;
  size_t step = total > kLimit ? total / kLimit | 1 : 1;
  std::vector<Sources> out;
  for (size_t i = 0; i < total; i += step) {
    Sources& sources = out.emplace_back();
    size_t rest = i;
    for (size_t k = 0; k < values.size(); ++k) {
      sources[k] = values[k][rest % values[k].size()];
      rest /= values[k].size();
    }
  }
  return out;
}

bool sameBits(ValueType type, uint64_t a, uint64_t b) {
  if (isNan(type, a) && isNan(type, b)) return true;
  return lowBytes(a, type.bytes) == lowBytes(b, type.bytes);
}

void compareInstruction(const InstructionCase& test, const Expected& expected) {
  judgeInstruction(test, [&](uint64_t got, const Sources& sources) {
    uint64_t want = expected(sources);
    if (sameBits(test.result, got, want)) return true;
    std::fprintf(stderr, "expected: %s\n", bitsText(test.result, want).c_str());
    return false;
  });
}

void judgeInstruction(const InstructionCase& test, const Judge& isGood) {
  constexpr const char* kNames[] = {"%a", "%b", "%c", "%e"};
  constexpr uint64_t kUntouched = 0x0123456789abcdefu;
  size_t count = test.inputs.size();
  auto bits = [](size_t bytes) { return std::to_string(bytes * 8); };
  auto reg = [&](size_t bytes) { return bits(bytes == 1 ? 2 : bytes); };
  std::string body = ".reg .b" + reg(test.result.bytes) + " %d;\n.reg .b32 %mode;\nld.param.u32 %mode, [p2];\n";
  for (size_t k = 0; k < test.sources.size(); ++k)
    body += ".reg .b" + reg(test.sources[k].bytes) + " " + kNames[k] + ";\n";
  body +=
      "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmad.lo.s32 %r3, %r1, %r2, %tid0;\n"
      "setp.ge.u32 %p1, %r3, " +
      std::to_string(count) +
      ";\n@%p1 ret;\n"
      "mul.wide.u32 %rd1, %r3, 8;\nadd.u64 %out, %out, %rd1;\nadd.u64 %in, %in, %rd1;\n";
  for (size_t k = 0; k < test.sources.size(); ++k) {
    body += "ld.global.b" + bits(test.sources[k].bytes) + " " + kNames[k] + ", [%in+" + std::to_string(8 * count * k) +
            "];\n";
  }
  body += "ld.global.b" + bits(test.result.bytes) +
          " %d, [%out];\n"
          "setp.ne.u32 %p3, %mode, 0;\n@%p3 bra SOME;\n" +
          test.text +
          "\nbra.uni DONE;\nSOME:\n"
          "rem.u32 %r4, %r3, 3;\nsetp.eq.u32 %p2, %r4, 1;\n@%p2 bra DONE;\n" +
          test.text + "\nDONE:\nst.global.b" + bits(test.result.bytes) + " [%out], %d;\n";
  Device device(kernelAround(body));
  Array<uint64_t> in(device.memory, std::max<size_t>(test.sources.size() * count, 1));
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < test.sources.size(); ++k) in[count * k + i] = test.inputs[i][k];
  }
  for (uint64_t mode = 0; mode < 2; ++mode) {
    Array<uint64_t> out(device.memory, count, kUntouched);
    device.run("k", {(static_cast<uint32_t>(count) + 63) / 64, 1, 1}, {64, 1, 1}, Parameters(out, in, mode));
    for (size_t i = 0; i < count; ++i) {
      bool isSkipped = mode == 1 && i % 3 == 1;
      if (isSkipped ? out[i] == kUntouched : isGood(out[i], test.inputs[i])) continue;
      ::millpond::testing::fail(
          __FILE__, __LINE__,
          test.text + (isSkipped ? " changed an inactive lane" : "") + describe(test, test.inputs[i], out[i]));
    }
  }
}

}  // namespace millpond::softgpu::ptx::testing
