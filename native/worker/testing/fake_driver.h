// SPDX-License-Identifier: Apache-2.0
// A driver for tests of the worker: memory is ordinary memory, work runs when it is issued unless the test holds its
// stream, and an error on which a real driver would crash (a stream, event or file that is gone) fails the test.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/sanitizer_table.h"
#include "worker/device/driver.h"

namespace millpond::worker {

inline constexpr uint64_t kMi = uint64_t{1} << 20;
/// Granularity of the fake driver's physical memory.
inline constexpr uint64_t kGranule = 2 * kMi;

class FakeDriver {
 public:
  struct Launch {
    std::string name;
    std::vector<std::byte> params;
    uint64_t stream;  ///< ordinal of the stream, 0 for a default one
    unsigned attributes;
  };

  /// The driver of this process, reset.
  explicit FakeDriver(unsigned devices = 2, uint64_t memoryBytes = uint64_t{256} << 20);
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  Driver table() const;
  /// From now on it checks programs, and reports their memory to `table`.
  void check(const SanitizerTable& table) { checks_ = &table; }
  /// Its kernels can address pageable memory of the process, as on hosts with HMM or ATS.
  void reachPageableMemory() { reachesPageableMemory_ = true; }
  static std::string uuid(unsigned device);

  // Streams are numbered from 1 in the order of their creation; 0 is the default stream of the first context.

  /// Work issued to the stream from now on waits.
  void hold(uint64_t stream);
  /// Runs the waiting work, and later work immediately.
  void release(uint64_t stream);
  /// Runs the next `n` operations of a held stream.
  void step(uint64_t stream, size_t n);
  /// Operations that wait in the stream.
  size_t waiting(uint64_t stream);
  /// Every call that can fail does so with this code from now on; CUDA_SUCCESS ends that.
  void fail(CUresult code);
  /// The next `times` calls of that name fail.
  void failNext(const std::string& call, CUresult code, unsigned times = 1);

  uint64_t usedBytes();                                        ///< physical memory of all devices
  size_t mappedRuns();                                         ///< of device memory
  size_t reservations();                                       ///< of addresses
  size_t liveContexts();                                       ///< in addition to the primary ones
  size_t primaryContexts() const { return primaryContexts_; }  ///< retained and not released
  size_t liveEvents();
  size_t registeredRuns();
  size_t tiles();  ///< of all arrays
  std::vector<Launch> launches();
  /// Host functions that have returned. They run immediately, on threads of their own, and their streams do not wait
  /// for them.
  unsigned returnedHostFunctions() const { return returnedHostFunctions_.load(); }

 private:
  friend struct FakeCalls;
  friend struct FakeDeviceCalls;
  friend struct FakeMemoryCalls;
  friend struct FakeWorkCalls;
  friend struct FakeModuleCalls;
  struct Op {
    std::function<bool()> ready;  ///< none: always
    std::function<void()> run;
  };
  struct Stream {
    uint64_t number = 0;
    unsigned device = 0;
    bool held = false;
    bool destroyed = false;
    std::deque<Op> queue;
  };
  struct Event {
    unsigned device = 0;
    bool destroyed = false;
    uint64_t recorded = 0;
    uint64_t happened = 0;
  };
  struct Physical {
    unsigned device;
    uint64_t bytes;
    unsigned references;
  };
  struct Mapping {
    uint64_t bytes;
    CUmemGenericAllocationHandle memory;
    bool accessible;
  };
  struct Array {
    unsigned flags;
    std::map<unsigned, CUmemGenericAllocationHandle> tiles;  ///< by their first column
  };
  struct Function {
    std::string name;
    uint32_t parameterBytes;
  };
  struct Module {
    std::string text;
    bool unloaded = false;
    std::list<Function> functions;
  };

  Stream& stream(CUstream handle);
  void issue(Stream& stream, Op op);
  void pump();
  /// Whether all of it is usable device memory.
  bool isDevice(CUdeviceptr address, uint64_t bytes) const;
  bool isRegistered(const void* host, uint64_t bytes) const;
  CUresult failure(const char* call);

  std::mutex mutex_;
  unsigned devices_;
  uint64_t memoryBytes_;
  std::vector<std::unique_ptr<Stream>> defaults_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::map<uint64_t, uint64_t> reservations_;
  std::map<uint64_t, Mapping> mappings_;
  std::map<CUmemGenericAllocationHandle, Physical> physical_;
  uint64_t nextPhysical_ = 1;
  std::vector<uint64_t> used_;
  std::map<CUarray, std::unique_ptr<Array>> arrays_;
  std::map<uint64_t, uint64_t> registered_;
  std::vector<Launch> launches_;
  size_t createdContexts_ = 0;
  size_t primaryContexts_ = 0;
  const SanitizerTable* checks_ = nullptr;
  bool reachesPageableMemory_ = false;
  std::set<CUcontext> destroyedContexts_;
  CUresult always_ = CUDA_SUCCESS;
  struct Failing {
    CUresult code;
    unsigned times;
  };
  std::map<std::string, Failing> next_;
  std::atomic<unsigned> returnedHostFunctions_{0};
  std::vector<std::jthread> hostFunctions_;
};

}  // namespace millpond::worker
