// SPDX-License-Identifier: Apache-2.0
// Sessions at real gates, in a file, over a time that the test makes, and a model of a GPU that slices its time between all
// sessions with work in flight, as real ones do between contexts.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "testing/check.h"
#include "worker/gate/session_gate.h"

namespace millpond::worker::gate {

inline constexpr int64_t kTick = 20'000;
inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000 * kMs;

constexpr Share guaranteed(uint32_t percent) { return {ServiceClass::kGuaranteed, percent}; }
constexpr Share burstable(uint32_t percent) { return {ServiceClass::kBurstable, percent}; }
constexpr Share bestEffort() { return {ServiceClass::kBestEffort, 1}; }

/// A session that has kernels to run whenever `wants` says so.
struct Tenant {
  using Kernels = std::function<int64_t()>;
  using Wants = std::function<bool(int64_t now)>;
  Tenant(Share itsShare, Kernels kernels, Wants whenever)
      : share(itsShare), kernelNs(std::move(kernels)), wants(std::move(whenever)) {}

  Share share;
  Kernels kernelNs;  ///< cost of the next kernel
  Wants wants;
  uint64_t claim = 0;
  bool isKnown = true;     ///< the cost of its kernels is known in advance
  bool isBrief = false;    ///< a session of its own for each kernel, one after the other
  int64_t waitsNs = 0;     ///< its kernels wait in their streams for this long, and use no GPU time
  int64_t patienceNs = 0;  ///< a session ends with its kernel still running, after this long; 0: it waits for it

  struct Kernel {
    int64_t lengthNs;
    uint64_t batch;
    int64_t doneNs = 0;
    int64_t beganAt = -1;
  };
  std::unique_ptr<SessionGate> gate;
  std::deque<Kernel> flight;
  std::optional<int64_t> next;
  int64_t wantedSince = -1;
  int64_t workedNs = 0;          ///< of the GPU's time, as actually used
  std::vector<int64_t> windows;  ///< the same, for each second
  std::vector<int64_t> waits;    ///< from when a kernel is wanted until it begins
  int64_t longestNs = 0;
};

class Gpu {
 public:
  Gpu() : path_((std::filesystem::temp_directory_path() / ("millpond-gate-" + std::to_string(::getpid()))).string()) {
    remove();
  }
  ~Gpu() {
    tenants_.clear();
    remove();
  }

  /// `claim`: the claim of the session; 0: a claim of its own.
  Tenant& add(
      Share share, Tenant::Kernels kernels, Tenant::Wants wants = [](int64_t) { return true; }, uint64_t claim = 0) {
    tenants_.push_back(std::make_unique<Tenant>(share, std::move(kernels), std::move(wants)));
    Tenant& added = *tenants_.back();
    added.claim = claim ? claim : 1'000'000 + tenants_.size();
    open(added);
    return added;
  }
  void run(int64_t forNs) {
    const int64_t end = now_ + forNs;
    for (; now_ < end; now_ += kTick) step();
  }
  int64_t now() const { return now_; }
  const std::string& path() const { return path_; }
  int64_t busyNs() const { return busyNs_; }

 private:
  void remove() const {
    for (const std::string& path : {path_, path_ + ".lock"}) ::unlink(path.c_str());
  }
  void open(Tenant& tenant) {
    auto file = GateFile::open(path_);
    CHECK(bool(file));
    auto gate = SessionGate::open(std::move(*file), tenant.claim, tenant.share, now_);
    CHECK(bool(gate));
    tenant.gate = std::move(*gate);
  }
  void step() {
    for (auto& each : tenants_) issue(*each);
    work();
    for (auto& each : tenants_) land(*each);
    if ((now_ / kTick) % (kSecond / kTick) != 0 || now_ == 0) return;
    for (auto& each : tenants_) {
      int64_t sum = 0;
      for (const int64_t window : each->windows) sum += window;
      each->windows.push_back(each->workedNs - sum);
    }
  }
  void issue(Tenant& tenant) {
    if ((tenant.isBrief || tenant.patienceNs) && !tenant.flight.empty()) return;
    const bool wants = tenant.next || tenant.wants(now_);
    tenant.gate->look(now_, wants);
    while (tenant.next || tenant.wants(now_)) {
      if (!tenant.next) {
        tenant.next = tenant.kernelNs();
        tenant.wantedSince = now_;
        tenant.longestNs = std::max(tenant.longestNs, *tenant.next);
      }
      const std::optional<int64_t> expected = tenant.isKnown ? tenant.next : std::nullopt;
      if (!tenant.gate->admit(expected, now_)) return;
      if (tenant.gate->isOn()) {
        tenant.gate->issued(expected, now_);
        tenant.flight.push_back({*tenant.next, tenant.gate->close(now_), 0, tenant.waitsNs ? now_ : -1});
      } else {
        // At most as deep as a driver's own queue.
        if (tenant.flight.size() >= 1000) return;
        tenant.flight.push_back({*tenant.next, 0});
      }
      tenant.waits.push_back(now_ - tenant.wantedSince);
      tenant.next.reset();
      if (tenant.isBrief || tenant.patienceNs) return;
    }
  }
  void work() {
    int64_t active = 0;
    for (auto& each : tenants_) active += !each->flight.empty() && each->waitsNs == 0;
    if (active == 0) return;
    busyNs_ += kTick;
    for (auto& each : tenants_) {
      if (each->waitsNs) continue;
      int64_t left = kTick / active;
      each->workedNs += each->flight.empty() ? 0 : left;
      for (Tenant::Kernel& kernel : each->flight) {
        if (left == 0) break;
        if (kernel.beganAt < 0) kernel.beganAt = now_ + kTick - left * active;
        const int64_t now = std::min(left, kernel.lengthNs - kernel.doneNs);
        kernel.doneNs += now;
        left -= now;
      }
    }
  }
  void land(Tenant& tenant) {
    const int64_t at = now_ + kTick;
    if (tenant.patienceNs && !tenant.flight.empty() && tenant.flight.front().beganAt >= 0 &&
        at - tenant.flight.front().beganAt >= tenant.patienceNs) {
      tenant.gate->abandon(tenant.flight.front().batch, at);
      tenant.flight.clear();
      tenant.gate.reset();
      open(tenant);
    }
    while (tenant.waitsNs && !tenant.flight.empty() && at - tenant.flight.front().beganAt >= tenant.waitsNs) {
      tenant.gate->landed(tenant.flight.front().batch, 0, at);
      tenant.flight.pop_front();
    }
    while (!tenant.flight.empty() && tenant.flight.front().doneNs == tenant.flight.front().lengthNs) {
      const Tenant::Kernel kernel = tenant.flight.front();
      tenant.flight.pop_front();
      // Alone the kernel took its own time; beside others the GPU's clock ran on during their slices.
      if (kernel.batch) tenant.gate->landed(kernel.batch, std::max(kernel.lengthNs, at - kernel.beganAt - kTick), at);
      if (!tenant.isBrief || !tenant.flight.empty()) continue;
      tenant.gate.reset();
      open(tenant);
    }
  }

  const std::string path_;
  int64_t now_ = 0;
  int64_t busyNs_ = 0;
  std::vector<std::unique_ptr<Tenant>> tenants_;
};

inline std::function<int64_t()> always(int64_t ns) {
  return [ns] { return ns; };
}
inline double percentOf(const Tenant& tenant, const Gpu& gpu) {
  return 100.0 * static_cast<double>(tenant.workedNs) / static_cast<double>(gpu.now());
}
#define CHECK_WITHIN(value, least, most)                                                              \
  do {                                                                                                \
    const double is = static_cast<double>(value);                                                     \
    if (is < (least) || is > (most))                                                                  \
      ::millpond::testing::fail(__FILE__, __LINE__, std::string(#value " is ") + std::to_string(is)); \
  } while (false)

}  // namespace millpond::worker::gate
