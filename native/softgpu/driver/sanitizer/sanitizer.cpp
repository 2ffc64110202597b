// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/sanitizer/sanitizer.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "softgpu/driver/host/log.h"
#include "softgpu/driver/memory/address_space.h"

namespace millpond::softgpu {
namespace {

/// Set before the driver is ready, and never changed.
Sanitizer* theOne = nullptr;

/// The largest distance at which a finding names an allocation as near its address.
constexpr uint64_t kNearby = uint64_t{64} << 20;

std::string demangled(std::string_view name) {
  const std::string text(name);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> out(abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status),
                                                        &std::free);
  return status == 0 && out ? out.get() : text;
}

std::string hex(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Json place(const uint32_t (&at)[3]) { return Json::Array{at[0], at[1], at[2]}; }
Json place(const ptx::Dim3& at) { return Json::Array{at.x, at.y, at.z}; }

Json::Object describe(const ptx::AccessPlace& access) {
  const char* how = access.isAtomic ? "atomic" : access.isWrite ? "write" : "read";
  Json::Object out{{"access", how},
                   {"thread", place(access.thread)},
                   {"function", demangled(access.function)},
                   {"line", access.line}};
  if (!access.file.empty()) {
    out.push_back({"file", access.file});
    out.push_back({"fileLine", access.fileLine});
  }
  return out;
}

Allocation asAllocation(const Region& region) {
  static constexpr const char* kNames[] = {"the driver",     "a module's variable", "cuMemMap",
                                           "cuMemHostAlloc", "cuMemHostRegister",   "malloc() in kernels"};
  return {region.base, region.bytes, 0, 0, 0, kNames[static_cast<size_t>(region.kind)], "", {}, nullptr};
}

/// The allocation at the address or nearest to it.
std::optional<Allocation> neighbourOf(uint64_t address, const Allocations& allocations, const AddressSpace& space) {
  if (const auto known = allocations.nearest(address, kNearby)) return known;
  const RegionPtr region = space.nearest(address, kNearby);
  if (!region || allocations.isManaged(region->base)) return std::nullopt;
  return asAllocation(*region);
}

const char* kindName(const ptx::Finding& finding) {
  if (finding.isRace()) return "race";
  switch (finding.kind) {
    case ptx::Finding::Kind::kAccess: return "access";
    case ptx::Finding::Kind::kUninitialised: return "uninitialised";
    default: return "barrier";
  }
}

std::string whatName(const ptx::Finding& finding) {
  switch (finding.kind) {
    case ptx::Finding::Kind::kAccess: return std::string(ptx::faultName(finding.fault));
    case ptx::Finding::Kind::kReadAfterWrite: return "read after write";
    case ptx::Finding::Kind::kWriteAfterRead: return "write after read";
    case ptx::Finding::Kind::kWriteAfterWrite: return "write after write";
    case ptx::Finding::Kind::kUninitialised: return "uninitialised memory";
    case ptx::Finding::Kind::kDivergentBarrier: return "threads wait at the same barrier at different instructions";
    case ptx::Finding::Kind::kMissedBarrier: return "threads of the block have exited without reaching the barrier";
    case ptx::Finding::Kind::kNotAMember: return "a thread synchronises lanes of its warp without being one of them";
  }
  return "";
}

}  // namespace

Sanitizer* Sanitizer::instance() { return theOne; }

void Sanitizer::start(const Configuration& configuration) {
  if (!configuration.checks.any()) return;
  const int file = ::open(configuration.findings.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0)
    log(LogLevel::error, "cannot write findings to " + configuration.findings + ": " + std::strerror(errno));
  theOne = std::make_unique<Sanitizer>(configuration.checks, file).release();
}

Sanitizer::~Sanitizer() {
  if (file_ >= 0) ::close(file_);
}

void Sanitizer::client(uint32_t pid) { client_.store(pid, std::memory_order_relaxed); }

void Sanitizer::command(Call call) {
  std::lock_guard lock(callMutex_);
  call_ = call;
}

Call Sanitizer::currentCall() const {
  std::lock_guard lock(callMutex_);
  return call_;
}

void Sanitizer::allocated(uint64_t address, uint64_t bytes, const char* by) {
  // It is unknown what other processes have written, and mirrored memory is initially zero.
  const std::string_view call(by);
  const bool isOwn = call == "cuMemAlloc" || call == "cuMemAllocAsync";
  allocations_.allocated(address, bytes, by, currentCall(), isOwn && checks_.initialisation);
}

Json::Object Sanitizer::describe(Call call) const {
  return {{"process", client_.load(std::memory_order_relaxed)}, {"thread", call.thread}, {"offset", call.offset}};
}

Json::Object Sanitizer::describe(const Allocation& allocation) const {
  Json::Object out{{"address", hex(allocation.base)}, {"bytes", allocation.bytes}, {"number", allocation.number}};
  if (*allocation.by) out.push_back({"by", allocation.by});
  if (allocation.until != 0) out.push_back({"freedBy", allocation.freedBy});
  if (allocation.number != 0) out.push_back({"call", describe(allocation.call)});
  return out;
}

// One write, so that lines of several processes do not mix.
void Sanitizer::write(Json::Object line) {
  const std::string text = Json(std::move(line)).dump() + "\n";
  if (file_ >= 0 && ::write(file_, text.data(), text.size()) == static_cast<ssize_t>(text.size())) return;
  if (file_ >= 0) log(LogLevel::error, std::string("cannot write a finding: ") + std::strerror(errno));
}

template <typename Describe>
void Sanitizer::count(const Key& key, Describe describe) {
  std::lock_guard lock(mutex_);
  const auto [place, isNew] = entries_.try_emplace(key);
  Entry& entry = place->second;
  ++entry.count;
  if (isNew) {
    entry.id = std::to_string(::getpid()) + "-" + std::to_string(entries_.size());
    Json::Object line = describe();
    line.insert(line.begin(), {"id", entry.id});
    write(std::move(line));
    entry.written = 1;
  } else if (std::has_single_bit(entry.count)) {
    // A killed worker has reported at least half of the number.
    write({{"id", entry.id}, {"count", entry.count}});
    entry.written = entry.count;
  }
}

bool Sanitizer::isChecked(const ptx::Finding& finding) const {
  switch (finding.kind) {
    case ptx::Finding::Kind::kAccess: return checks_.memory;
    case ptx::Finding::Kind::kReadAfterWrite:
    case ptx::Finding::Kind::kWriteAfterRead:
    case ptx::Finding::Kind::kWriteAfterWrite: return checks_.races;
    case ptx::Finding::Kind::kUninitialised: return checks_.initialisation;
    default: return checks_.barriers;
  }
}

void Sanitizer::found(const ptx::Finding& finding, const AddressSpace& space, Call launch) {
  if (!isChecked(finding)) return;
  const bool isAccess = finding.kind == ptx::Finding::Kind::kAccess;
  const auto kind = static_cast<uint32_t>(finding.kind) * 64 + (isAccess ? static_cast<uint32_t>(finding.fault) : 0);
  const Key key{finding.kernel, finding.access.function, finding.access.line,
                kind,           finding.other.function,  finding.other.line};
  count(key, [&] {
    Json::Object line{{"kind", kindName(finding)},           {"what", whatName(finding)},
                      {"kernel", demangled(finding.kernel)}, {"block", place(finding.block)},
                      {"launch", describe(launch)},          {"by", softgpu::describe(finding.access)}};
    if (finding.kind == ptx::Finding::Kind::kMissedBarrier) line.push_back({"threads", finding.threads});
    if (finding.isRace() || finding.kind == ptx::Finding::Kind::kDivergentBarrier)
      line.push_back({"against", softgpu::describe(finding.other)});
    const bool isOfMemory = isAccess || finding.isRace() || finding.kind == ptx::Finding::Kind::kUninitialised;
    if (!isOfMemory) return line;
    line.push_back({"address", hex(finding.address)});
    line.push_back({"bytes", finding.bytes});
    line.push_back({"space", finding.space});
    if (!finding.variable.empty()) {
      line.push_back({"variable", demangled(finding.variable)});
      line.push_back({"offset", finding.variableOffset});
    }
    if (finding.isRace()) return line;
    line.push_back({"isFatal", finding.isFatal});
    const bool isOfDevice = finding.space == ptx::kGlobalName || finding.space == ptx::kConstName;
    if (const auto near = isOfDevice ? neighbourOf(finding.address, allocations_, space) : std::nullopt)
      line.push_back({"nearest", describe(*near)});
    return line;
  });
}

void Sanitizer::faulted(std::string_view kernel, const ptx::Fault& fault, Call launch) {
  const bool isOfBarrier = fault.kind == ptx::FaultKind::kDeadlock;
  if (!checks_.memory && !(isOfBarrier && checks_.barriers)) return;
  const Key key{kernel, fault.function, fault.line, 32 + static_cast<uint32_t>(fault.kind), "", 0};
  count(key, [&] {
    return Json::Object{
        {"kind", "fault"},
        {"what", ptx::faultName(fault.kind)},
        {"kernel", demangled(kernel)},
        {"block", place(fault.block)},
        {"launch", describe(launch)},
        {"by",
         Json::Object{{"thread", place(fault.thread)}, {"function", demangled(fault.function)}, {"line", fault.line}}},
        {"detail", fault.detail}};
  });
}

void Sanitizer::checkTransfer(uint64_t address, uint64_t bytes, bool isWrite) {
  // The driver itself checks memory that is not divided into allocations.
  if (!checks_.memory || bytes == 0 || !allocations_.isManaged(address)) return;
  const auto found = allocations_.find(address, allocations_.now());
  if (found && found->end() - address >= bytes) return;
  const auto near = allocations_.nearest(address, kNearby);
  const uint64_t number = near ? near->number : 0;
  count(Key{std::to_string(number), "", isWrite, 1027, "", 0}, [&] {
    Json::Object line{{"kind", "transfer"},
                      {"what", "illegal address"},
                      {"access", isWrite ? "write" : "read"},
                      {"address", hex(address)},
                      {"bytes", bytes},
                      {"space", ptx::kGlobalName},
                      {"call", describe(currentCall())}};
    if (near) line.push_back({"nearest", describe(*near)});
    return line;
  });
}

void Sanitizer::failed(const char* name, int32_t result) {
  if (!checks_.memory) return;
  const Call call = currentCall();
  count(Key{name, "", static_cast<uint32_t>(result), 1026, "", 0}, [&] {
    return Json::Object{{"kind", "call"}, {"what", name}, {"result", result}, {"call", describe(call)}};
  });
}

void Sanitizer::launched(std::string_view kernel) {
  count(Key{kernel, "", 0, 1024, "", 0}, [&] {
    return Json::Object{{"kind", "launch"}, {"what", "checked"}, {"kernel", demangled(kernel)}};
  });
}

void Sanitizer::refused(std::string_view why) {
  count(Key{why, "", 0, 1025, "", 0}, [&] {
    return Json::Object{{"kind", "unchecked"},
                        {"what", "an image could not be loaded, so its kernels were not checked"},
                        {"detail", why}};
  });
}

void Sanitizer::end() {
  std::lock_guard lock(mutex_);
  if (std::exchange(hasEnded_, true)) return;
  for (auto& [key, entry] : entries_) {
    if (entry.count == entry.written) continue;
    write({{"id", entry.id}, {"count", entry.count}});
    entry.written = entry.count;
  }
  for (const Allocation& allocation : allocations_.left()) writeLeak(allocation);
}

void Sanitizer::left(uint64_t address) {
  const std::optional<Allocation> found = allocations_.nearest(address, 0);
  if (!found || found->until != 0) return;
  allocations_.freed(address, "the end of its context");
  writeLeak(*found);
}

void Sanitizer::writeLeak(const Allocation& allocation) {
  if (!checks_.memory) return;
  write({{"id", std::to_string(::getpid()) + "-leak-" + std::to_string(allocation.number)},
         {"kind", "leak"},
         {"what", "device memory was not freed"},
         {"nearest", describe(allocation)}});
}

ptx::Inspector::Range LaunchInspector::find(uint64_t address) const {
  if (const auto found = sanitizer_.allocations().find(address, time_)) {
    if (found->written) {
      std::lock_guard lock(mutex_);
      if (std::find(held_.begin(), held_.end(), found->written) == held_.end()) held_.push_back(found->written);
    }
    return {found->base, found->end(), true, found->written.get()};
  }
  if (sanitizer_.allocations().isManaged(address)) return {};
  const ptx::MemoryMap::Range range = space_.findExactly(address, device_);
  return {range.begin, range.end, range.writable};
}

}  // namespace millpond::softgpu
