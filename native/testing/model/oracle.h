// SPDX-License-Identifier: Apache-2.0
// The result of a program: its operations executed sequentially, in the order of their creation. Order has proved that
// every other permitted order gives the same.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "testing/model/program.h"

namespace millpond::model {

struct Outcome {
  std::vector<std::vector<uint32_t>> slots;        ///< in the end
  std::map<size_t, std::vector<uint32_t>> checks;  ///< the expected value, by the position of a hostCheck
};

Outcome evaluate(const Program& program);

/// The effect of host code on a slot.
inline uint32_t updated(uint32_t word, uint32_t value) { return word * 5 + value; }

}  // namespace millpond::model
