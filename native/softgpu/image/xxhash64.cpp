// SPDX-License-Identifier: Apache-2.0
#include "softgpu/image/xxhash64.h"

#include <array>
#include <bit>
#include <cstring>

namespace millpond::softgpu {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;

template <typename T>
T take(std::span<const std::byte>& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

uint64_t round(uint64_t lane, uint64_t input) { return std::rotl(lane + input * kPrime2, 31) * kPrime1; }

}  // namespace

uint64_t xxhash64(std::span<const std::byte> bytes, uint64_t seed) {
  const uint64_t length = bytes.size();
  uint64_t hash = seed + kPrime5;
  if (bytes.size() >= 32) {
    std::array<uint64_t, 4> lanes = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
    while (bytes.size() >= 32) {
      for (uint64_t& lane : lanes) lane = round(lane, take<uint64_t>(bytes));
    }
    hash =
        std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
  }
  hash += length;
  while (bytes.size() >= 8) hash = std::rotl(hash ^ round(0, take<uint64_t>(bytes)), 27) * kPrime1 + kPrime4;
  if (bytes.size() >= 4) hash = std::rotl(hash ^ (take<uint32_t>(bytes) * kPrime1), 23) * kPrime2 + kPrime3;
  while (!bytes.empty()) hash = std::rotl(hash ^ (take<uint8_t>(bytes) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace millpond::softgpu
