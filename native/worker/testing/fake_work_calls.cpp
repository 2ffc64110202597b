// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "testing/check.h"
#include "worker/testing/fake_calls.h"
#include "worker/testing/fake_driver.h"

namespace millpond::worker {

/// Copies, streams and events.
struct FakeWorkCalls : FakeCalls {
  static CUresult copyToDevice(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    if (const CUresult rc = d().failure("cuMemcpyHtoDAsync_v2")) return rc;
    Lock lock(d().mutex_);
    if (!d().isDevice(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    auto& s = d().stream(stream);
    // A real device reads registered memory when it reaches the copy; other memory is read immediately.
    if (d().isRegistered(from, bytes)) {
      d().issue(s, {{}, [=] { std::copy_n(static_cast<const std::byte*>(from), bytes, host(to)); }});
    } else {
      CHECK(bytes <= (size_t{64} << 10));
      const auto* begin = static_cast<const std::byte*>(from);
      std::vector<std::byte> taken(begin, begin + bytes);
      d().issue(s, {{}, [to, taken = std::move(taken)] { std::copy(taken.begin(), taken.end(), host(to)); }});
    }
    return CUDA_SUCCESS;
  }
  static CUresult copyFromDevice(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (const CUresult rc = d().failure("cuMemcpyDtoHAsync_v2")) return rc;
    Lock lock(d().mutex_);
    if (!d().isDevice(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    d().issue(d().stream(stream), {{}, [=] { std::copy_n(host(from), bytes, static_cast<std::byte*>(to)); }});
    return CUDA_SUCCESS;
  }
  static CUresult copyOnDevice(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (const CUresult rc = d().failure("cuMemcpyDtoDAsync_v2")) return rc;
    Lock lock(d().mutex_);
    if (!d().isDevice(to, bytes) || !d().isDevice(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    d().issue(d().stream(stream), {{}, [=] {
                                     if (bytes) std::memmove(host(to), host(from), bytes);
                                   }});
    return CUDA_SUCCESS;
  }
  static CUresult memset8(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    if (const CUresult rc = d().failure("cuMemsetD8Async")) return rc;
    Lock lock(d().mutex_);
    if (!d().isDevice(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    d().issue(d().stream(stream), {{}, [=] { std::fill_n(host(to), bytes, std::byte{value}); }});
    return CUDA_SUCCESS;
  }
  static CUresult streamCreate(CUstream* out, unsigned) {
    if (const CUresult rc = d().failure("cuStreamCreate")) return rc;
    Lock lock(d().mutex_);
    CHECK(boundDevice != 0);
    d().streams_.push_back(std::make_unique<FakeDriver::Stream>());
    d().streams_.back()->number = d().streams_.size();
    d().streams_.back()->device = boundDevice - 1;
    *out = reinterpret_cast<CUstream>(d().streams_.back().get());
    return CUDA_SUCCESS;
  }
  static CUresult streamDestroy(CUstream stream) {
    Lock lock(d().mutex_);
    CHECK(stream != nullptr);
    d().stream(stream).destroyed = true;  // what was issued to it still runs
    return CUDA_SUCCESS;
  }
  static CUresult launchHostFunc(CUstream, CUhostFn function, void* data) {
    d().hostFunctions_.emplace_back([driver = &d(), function, data] {
      function(data);
      ++driver->returnedHostFunctions_;
    });
    return CUDA_SUCCESS;
  }
  static CUresult streamQuery(CUstream stream) {
    if (const CUresult rc = d().failure("cuStreamQuery")) return rc;
    Lock lock(d().mutex_);
    return d().stream(stream).queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  static CUresult streamWaitEvent(CUstream stream, CUevent event, unsigned) {
    if (const CUresult rc = d().failure("cuStreamWaitEvent")) return rc;
    Lock lock(d().mutex_);
    auto& e = live(event);
    const uint64_t awaited = e.recorded;
    d().issue(d().stream(stream), {[&e, awaited] { return e.happened >= awaited; }, [] {}});
    return CUDA_SUCCESS;
  }
  static FakeDriver::Event& live(CUevent event) {
    auto& e = *reinterpret_cast<FakeDriver::Event*>(event);
    CHECK(!e.destroyed);
    return e;
  }
  static CUresult eventCreate(CUevent* out, unsigned) {
    if (const CUresult rc = d().failure("cuEventCreate")) return rc;
    Lock lock(d().mutex_);
    CHECK(boundDevice != 0);
    d().events_.push_back(std::make_unique<FakeDriver::Event>());
    d().events_.back()->device = boundDevice - 1;
    *out = reinterpret_cast<CUevent>(d().events_.back().get());
    return CUDA_SUCCESS;
  }
  static CUresult eventDestroy(CUevent event) {
    Lock lock(d().mutex_);
    live(event).destroyed = true;
    return CUDA_SUCCESS;
  }
  static CUresult eventRecord(CUevent event, CUstream stream) {
    if (const CUresult rc = d().failure("cuEventRecord")) return rc;
    Lock lock(d().mutex_);
    auto& e = live(event);
    auto& s = d().stream(stream);
    if (e.device != s.device) return CUDA_ERROR_INVALID_HANDLE;
    const uint64_t place = ++e.recorded;
    d().issue(s, {{}, [&e, place] { e.happened = std::max(e.happened, place); }});
    return CUDA_SUCCESS;
  }
  static CUresult eventQuery(CUevent event) {
    if (const CUresult rc = d().failure("cuEventQuery")) return rc;
    Lock lock(d().mutex_);
    const auto& e = live(event);
    return e.happened == e.recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
};

void fillWorkCalls(Driver& t) {
  using C = FakeWorkCalls;
  t.cuMemcpyHtoDAsync_v2 = &C::copyToDevice;
  t.cuMemcpyDtoHAsync_v2 = &C::copyFromDevice;
  t.cuMemcpyDtoDAsync_v2 = &C::copyOnDevice;
  t.cuMemsetD8Async = &C::memset8;
  t.cuStreamCreate = &C::streamCreate;
  t.cuStreamDestroy_v2 = &C::streamDestroy;
  t.cuLaunchHostFunc = &C::launchHostFunc;
  t.cuStreamQuery = &C::streamQuery;
  t.cuStreamWaitEvent = &C::streamWaitEvent;
  t.cuEventCreate = &C::eventCreate;
  t.cuEventDestroy_v2 = &C::eventDestroy;
  t.cuEventRecord = &C::eventRecord;
  t.cuEventQuery = &C::eventQuery;
}

}  // namespace millpond::worker
