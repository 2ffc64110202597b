// SPDX-License-Identifier: Apache-2.0
#include "worker/testing/fake_driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>

#include "testing/check.h"
#include "worker/testing/fake_calls.h"

namespace millpond::worker {

FakeDriver& FakeCalls::d() {
  CHECK(current != nullptr);
  return *current;
}

FakeDriver::FakeDriver(unsigned devices, uint64_t memoryBytes) : devices_(devices), memoryBytes_(memoryBytes) {
  CHECK(FakeCalls::current == nullptr);
  FakeCalls::current = this;
  used_.resize(devices);
  for (unsigned i = 0; i < devices; ++i) {
    defaults_.push_back(std::make_unique<Stream>());
    defaults_.back()->device = i;
  }
}

FakeDriver::~FakeDriver() {
  for (const auto& [address, bytes] : reservations_) ::munmap(FakeCalls::host(address), bytes);
  FakeCalls::current = nullptr;
}

Driver FakeDriver::table() const {
  Driver table;
  fillDeviceCalls(table);
  fillMemoryCalls(table);
  fillWorkCalls(table);
  fillModuleCalls(table);
  return table;
}

std::string FakeDriver::uuid(unsigned device) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", device + 1);
    text += hex;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

FakeDriver::Stream& FakeDriver::stream(CUstream handle) {
  // A thread's default stream follows the device's.
  if (!handle || handle == CU_STREAM_PER_THREAD) {
    CHECK(FakeCalls::boundDevice != 0);
    return *defaults_[FakeCalls::boundDevice - 1];
  }
  auto& s = *reinterpret_cast<Stream*>(handle);
  CHECK(!s.destroyed);
  return s;
}

void FakeDriver::issue(Stream& stream, Op op) {
  stream.queue.push_back(std::move(op));
  if (!stream.held) pump();
}

void FakeDriver::pump() {
  for (bool some = true; some;) {
    some = false;
    const auto run = [&](Stream& s) {
      while (!s.held && !s.queue.empty() && (!s.queue.front().ready || s.queue.front().ready())) {
        s.queue.front().run();
        s.queue.pop_front();
        some = true;
      }
    };
    for (auto& s : defaults_) run(*s);
    for (auto& s : streams_) run(*s);
  }
}

bool FakeDriver::isDevice(CUdeviceptr address, uint64_t bytes) const {
  // Adjacent runs count as one for a copy.
  while (bytes) {
    auto mapping = mappings_.upper_bound(address);
    if (mapping == mappings_.begin()) return false;
    --mapping;
    const uint64_t offset = address - mapping->first;
    if (offset >= mapping->second.bytes || !mapping->second.accessible) return false;
    const uint64_t here = std::min(bytes, mapping->second.bytes - offset);
    address += here;
    bytes -= here;
  }
  return true;
}

bool FakeDriver::isRegistered(const void* p, uint64_t bytes) const {
  const auto address = reinterpret_cast<uint64_t>(p);
  auto run = registered_.upper_bound(address);
  if (run == registered_.begin()) return false;
  --run;
  return address - run->first < run->second && bytes <= run->second - (address - run->first);
}

CUresult FakeDriver::failure(const char* call) {
  std::lock_guard lock(mutex_);
  if (const auto found = next_.find(call); found != next_.end()) {
    const CUresult code = found->second.code;
    if (--found->second.times == 0) next_.erase(found);
    return code;
  }
  return always_;
}

void FakeDriver::hold(uint64_t number) {
  std::lock_guard lock(mutex_);
  (number ? *streams_.at(number - 1) : *defaults_[0]).held = true;
}

void FakeDriver::release(uint64_t number) {
  std::lock_guard lock(mutex_);
  (number ? *streams_.at(number - 1) : *defaults_[0]).held = false;
  pump();
}

void FakeDriver::step(uint64_t number, size_t n) {
  std::lock_guard lock(mutex_);
  auto& queue = (number ? *streams_.at(number - 1) : *defaults_[0]).queue;
  for (; n && !queue.empty(); --n) {
    queue.front().run();
    queue.pop_front();
  }
  pump();
}

size_t FakeDriver::waiting(uint64_t number) {
  std::lock_guard lock(mutex_);
  if (number > streams_.size()) return 0;
  return (number ? *streams_.at(number - 1) : *defaults_[0]).queue.size();
}

void FakeDriver::fail(CUresult code) {
  std::lock_guard lock(mutex_);
  always_ = code;
}

void FakeDriver::failNext(const std::string& call, CUresult code, unsigned times) {
  std::lock_guard lock(mutex_);
  next_[call] = {code, times};
}

uint64_t FakeDriver::usedBytes() {
  std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const uint64_t each : used_) sum += each;
  return sum;
}

size_t FakeDriver::reservations() {
  std::lock_guard lock(mutex_);
  return reservations_.size();
}
size_t FakeDriver::mappedRuns() {
  std::lock_guard lock(mutex_);
  return mappings_.size();
}

size_t FakeDriver::liveContexts() {
  std::lock_guard lock(mutex_);
  return createdContexts_ - destroyedContexts_.size();
}

size_t FakeDriver::liveEvents() {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(events_.begin(), events_.end(), [](const auto& e) { return !e->destroyed; }));
}

size_t FakeDriver::tiles() {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [handle, array] : arrays_) sum += array->tiles.size();
  return sum;
}

size_t FakeDriver::registeredRuns() {
  std::lock_guard lock(mutex_);
  return registered_.size();
}

std::vector<FakeDriver::Launch> FakeDriver::launches() {
  std::lock_guard lock(mutex_);
  return launches_;
}

}  // namespace millpond::worker
