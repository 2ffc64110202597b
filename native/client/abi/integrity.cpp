// SPDX-License-Identifier: Apache-2.0
#include "client/abi/integrity.h"

#include <cstring>
#include <vector>

#include "client/abi/md2.h"

namespace millpond::client {

namespace {

constexpr uint8_t kKey[16] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                              0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};

// Answers to the first two methods, which are constants.
constexpr std::array<uint64_t, 2> kFirstMethod = {0x3341'181c'03cb'675c, 0x8ed3'83aa'1f4c'd1e8};
constexpr std::array<uint64_t, 2> kSecondMethod = {0x1841'181c'03cb'675c, 0x8ed3'83aa'1f4c'd1e8};

template <typename T>
void append(std::vector<uint8_t>& message, T value) {
  for (size_t i = 0; i < sizeof value; ++i) {
    message.push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i) & 0xff));
  }
}

uint64_t littleEndianWord(const uint8_t* bytes) {
  uint64_t word = 0;
  for (size_t i = 8; i-- > 0;) word = word << 8 | bytes[i];
  return word;
}

}  // namespace

std::array<uint64_t, 2> integrityAnswer(const IntegrityQuestion& question, std::span<const IntegrityDevice> devices) {
  // Runtimes up to CUDA 11.8 ask for version 11080, later ones for 12042 or 13002.
  switch (question.version % 10) {
    case 0: return kFirstMethod;
    case 1: return kSecondMethod;
    default: break;
  }
  std::vector<uint8_t> message;
  message.reserve(48 + devices.size() * 28);
  append(message, question.driverVersion);
  append(message, question.version);
  append(message, question.pid);
  append(message, question.thread);
  append(message, question.runtimeTable);
  append(message, question.checkTable);
  append(message, question.checkFunction);
  append(message, question.unixSeconds);
  for (const IntegrityDevice& device : devices) {
    message.insert(message.end(), device.uuid.begin(), device.uuid.end());
    append(message, device.pciDomain);
    append(message, device.pciBus);
    append(message, device.pciDevice);
  }
  const Md2Digest digest = hmacMd2(kKey, message);
  return {littleEndianWord(digest.data()), littleEndianWord(digest.data() + 8)};
}

}  // namespace millpond::client
