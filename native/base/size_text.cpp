// SPDX-License-Identifier: Apache-2.0
#include "base/size_text.h"

namespace millpond {
namespace {

struct Unit {
  const char* name;
  int bits;
};

constexpr Unit unitOf(uint64_t bytes) {
  for (const Unit unit : {Unit{"TiB", 40}, Unit{"GiB", 30}, Unit{"MiB", 20}})
    if (bytes >> unit.bits != 0) return unit;
  return bytes == 0 ? Unit{"MiB", 20} : Unit{"B", 0};
}

}  // namespace

std::string sizeText(uint64_t bytes, Rounding rounding) {
  const auto [name, bits] = unitOf(bytes);
  const uint64_t unit = uint64_t{1} << bits;
  const uint64_t part = bytes % unit * 10;
  const uint64_t tenths = bytes / unit * 10 + part / unit + (rounding == Rounding::kUp && part % unit != 0 ? 1 : 0);
  const std::string decimal = tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10);
  return std::to_string(tenths / 10) + decimal + " " + name;
}

}  // namespace millpond
