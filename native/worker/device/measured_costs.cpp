// SPDX-License-Identifier: Apache-2.0
#include "worker/device/measured_costs.h"

namespace millpond::worker {
namespace {

constexpr int kMostTries = 5;

/// Kernels that call functions of the device's runtime, for any card: PTX of the oldest target that drivers still
/// accept.
constexpr char kPrinting[] = R"(
.version 6.3
.target sm_52
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.visible .entry probe(.param .u64 text) {
  .reg .pred %p<2>;
  .reg .b64 %n<2>;
  ld.param.u64 %n1, [text];
  setp.eq.u64 %p1, %n1, 0;
  @%p1 bra done;
  {
    .param .b64 f;
    .param .b64 a;
    .param .b32 r;
    st.param.b64 [f], %n1;
    st.param.b64 [a], %n1;
    call.uni (r), vprintf, (f, a);
  }
done:
  ret;
}
)";
constexpr uint64_t kNoText = 0;

constexpr char kAllocating[] = R"(
.version 6.3
.target sm_52
.address_size 64
.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.visible .entry probe(.param .u64 bytes) {
  .reg .b64 %n<3>;
  ld.param.u64 %n1, [bytes];
  {
    .param .b64 n;
    .param .b64 r;
    st.param.b64 [n], %n1;
    call.uni (r), malloc, (n);
    ld.param.b64 %n2, [r];
  }
  {
    .param .b64 p;
    st.param.b64 [p], %n2;
    call.uni free, (p);
  }
  ret;
}
)";
constexpr uint64_t kSomeBytes = 16;

uint64_t difference(uint64_t more, uint64_t less) { return more > less ? more - less : 0; }

class Trial {
 public:
  Trial(const Driver& driver, CUdevice device) : driver_(driver), device_(device) {}
  ~Trial() {
    driver_.cuCtxSetCurrent(nullptr);
    if (hasContext_) driver_.cuDevicePrimaryCtxRelease_v2(device_);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool begin() {
    CUcontext context = nullptr;
    hasContext_ = driver_.cuDevicePrimaryCtxRetain(&context, device_) == CUDA_SUCCESS;
    return hasContext_ && driver_.cuCtxSetCurrent(context) == CUDA_SUCCESS;
  }
  std::optional<uint64_t> freeBytes() const {
    size_t bytes = 0, total = 0;
    if (driver_.cuMemGetInfo_v2(&bytes, &total) != CUDA_SUCCESS) return std::nullopt;
    return bytes;
  }
  /// Measures another context, in addition to the existing one.
  std::optional<uint64_t> ofContext() const {
    const auto before = freeBytes();
    CUcontext context = nullptr;
    if (!before || driver_.cuCtxCreate_v2(&context, 0, device_) != CUDA_SUCCESS) return std::nullopt;
    const auto after = freeBytes();
    driver_.cuCtxDestroy_v2(context);
    if (!after) return std::nullopt;
    return difference(*before, *after);
  }
  /// Measures a module and a launch of its kernel; none if this driver does not run it.
  std::optional<uint64_t> ofKernel(const char* ptx, uint64_t argument) const {
    const auto before = freeBytes();
    CUmodule module = nullptr;
    if (!before || driver_.cuModuleLoadDataEx(&module, ptx, 0, nullptr, nullptr) != CUDA_SUCCESS) return std::nullopt;
    CUfunction kernel = nullptr;
    void* arguments[] = {&argument};
    const bool hasRun =
        driver_.cuModuleGetFunction(&kernel, module, "probe") == CUDA_SUCCESS &&
        driver_.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) == CUDA_SUCCESS &&
        driver_.cuCtxSynchronize() == CUDA_SUCCESS;
    const auto after = freeBytes();
    driver_.cuModuleUnload(module);
    if (!hasRun || !after) return std::nullopt;
    return difference(*before, *after);
  }

 private:
  const Driver& driver_;
  const CUdevice device_;
  bool hasContext_ = false;
};

std::optional<MeasuredCosts> measureOnce(const Driver& driver, CUdevice device, const std::string& uuid,
                                         const Nvml& nvml) {
  const auto before = nvml.usedBytes(uuid);
  Trial trial(driver, device);
  if (!trial.begin()) return std::nullopt;
  const auto after = nvml.usedBytes(uuid);
  // Without a management library a second context must do, which is smaller than the first by some MiB at most.
  const auto context = before && after ? std::optional(difference(*after, *before)) : trial.ofContext();
  if (!context) return std::nullopt;
  return MeasuredCosts{*context, trial.ofKernel(kPrinting, kNoText).value_or(0),
                       trial.ofKernel(kAllocating, kSomeBytes).value_or(0)};
}

}  // namespace

std::optional<MeasuredCosts> measureCosts(const Driver& driver, CUdevice device, const std::string& uuid,
                                          const Nvml& nvml) {
  std::optional<MeasuredCosts> last;
  for (int i = 0; i < kMostTries; ++i) {
    const auto costs = measureOnce(driver, device, uuid, nvml);
    if (!costs) return std::nullopt;
    if (costs == last) return costs;
    last = costs;
  }
  return std::nullopt;
}

}  // namespace millpond::worker
