// SPDX-License-Identifier: Apache-2.0
// What a program computes: its ops one after the other, in the order in which they were made. That any other order that the
// driver may choose computes the same is what Order has proved.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "testing/model/program.h"

namespace millpond::model {

struct Outcome {
  std::vector<std::vector<uint32_t>> slots;        ///< in the end
  std::map<size_t, std::vector<uint32_t>> checks;  ///< by the place of a hostCheck: what it finds
};

Outcome evaluate(const Program& program);

/// What host code does to a slot.
inline uint32_t updated(uint32_t word, uint32_t value) { return word * 5 + value; }

}  // namespace millpond::model
