// SPDX-License-Identifier: Apache-2.0
#include "names/readable_name.h"

#include <random>

#include "testing/check.h"

namespace millpond {
namespace {

/// Each type is a pair of the one before it: the name doubles with every level.
std::string doubling(int levels) {
  constexpr char kDigits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string name = "_Z1f1aIiiE";
  for (int level = 0; level < levels; ++level) {
    std::string digits;
    for (int n = level; n != 0 || digits.empty(); n /= 36) digits.insert(digits.begin(), kDigits[n % 36]);
    const std::string before = "S" + digits + "_";
    name += "S_I" + before + before + "E";
  }
  return name;
}

TEST("names of C++ are as in the source, and others as they are") {
  CHECK_EQ(readableName("_Z3addPKfS0_Pfm"), std::string("add(float const*, float const*, float*, unsigned long)"));
  CHECK_EQ(readableName(doubling(1)), std::string("f(a<int, int>, a<a<int, int>, a<int, int> >)"));
  for (const char* each : {"", "fill", "_Z", "_Zx", "_Z3ad", "_Z999999999999999999999a", "__Z3addi", "i"})
    CHECK_EQ(readableName(each), std::string(each));
}

TEST("a name that stands for one that no memory holds is truncated") {
  for (const int levels : {12, 20, 34, 80}) {
    const std::string readable = readableName(doubling(levels));
    CHECK_EQ(readable.size(), kMostReadable);
    CHECK(readable.starts_with("f(a<int, int>, a<a<int, int>, a<int, int> >, "));
  }
}

TEST("no name of random pieces takes long") {
  constexpr const char* kPieces[] = {"S_",   "S0_", "S1_", "S2_", "I", "E",  "1a", "1b", "N",  "J",  "i",
                                     "P",    "K",   "T_",  "F",   "v", "Dp", "L",  "X",  "cl", "sZ", "M",
                                     "DpT_", "St",  "Sa",  "C1",  "_", "0",  "U",  "fp", "dt"};
  std::minstd_rand random(13);
  for (int round = 0; round < 20'000; ++round) {
    std::string name = "_Z1f";
    for (size_t left = random() % 200; left > 0; --left) name += kPieces[random() % std::size(kPieces)];
    CHECK(readableName(name).size() <= std::max(name.size(), kMostReadable));
  }
}

}  // namespace
}  // namespace millpond
