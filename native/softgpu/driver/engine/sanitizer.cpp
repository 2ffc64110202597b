// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/engine/sanitizer.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "softgpu/driver/memory/address_space.h"
#include "softgpu/driver/model/log.h"

namespace millpond::softgpu {
namespace {

/// Farthest allocation that a finding names as near its address.
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
  Json::Object out{{"access", how}, {"thread", place(access.thread)}, {"function", demangled(access.function)},
                   {"line", access.line}};
  if (!access.file.empty()) {
    out.push_back({"file", access.file});
    out.push_back({"fileLine", access.fileLine});
  }
  return out;
}

Json::Object describe(const Allocation& allocation) {
  Json::Object out{{"address", hex(allocation.base)}, {"bytes", allocation.bytes}, {"number", allocation.number}};
  if (*allocation.by) out.push_back({"by", allocation.by});
  if (allocation.until != 0) out.push_back({"freedBy", allocation.freedBy});
  return out;
}

Allocation asAllocation(const Region& region) {
  static constexpr const char* kNames[] = {"the driver", "a module's variable", "cuMemMap", "cuMemHostAlloc",
                                           "cuMemHostRegister", "malloc() in kernels"};
  return {region.base, region.bytes, 0, 0, 0, kNames[static_cast<size_t>(region.kind)], ""};
}

/// What lies at the address or nearest to it.
std::optional<Allocation> neighbourOf(uint64_t address, const Allocations& allocations, const AddressSpace& space) {
  if (const auto known = allocations.nearest(address, kNearby)) return known;
  const RegionPtr region = space.nearest(address, kNearby);
  if (!region || allocations.isManaged(region->base)) return std::nullopt;
  return asAllocation(*region);
}

const char* raceName(ptx::Finding::Kind kind) {
  switch (kind) {
    case ptx::Finding::Kind::kReadAfterWrite:
      return "read after write";
    case ptx::Finding::Kind::kWriteAfterRead:
      return "write after read";
    default:
      return "write after write";
  }
}

}  // namespace

std::unique_ptr<Sanitizer> Sanitizer::make(const Configuration& configuration) {
  if (!configuration.checks.memory && !configuration.checks.races) return nullptr;
  const int file = ::open(configuration.findings.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0)
    log(LogLevel::error, "cannot write findings to " + configuration.findings + ": " + std::strerror(errno));
  return std::make_unique<Sanitizer>(configuration.checks, file);
}

Sanitizer::~Sanitizer() {
  if (file_ >= 0) ::close(file_);
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
    // A worker that is killed has told the number to within its half.
    write({{"id", entry.id}, {"count", entry.count}});
    entry.written = entry.count;
  }
}

void Sanitizer::found(const ptx::Finding& finding, const AddressSpace& space) {
  const bool isRace = finding.kind != ptx::Finding::Kind::kAccess;
  if (isRace ? !checks_.races : !checks_.memory) return;
  const auto kind = static_cast<uint32_t>(finding.kind) * 64 + (isRace ? 0 : static_cast<uint32_t>(finding.fault));
  const Key key{finding.kernel, finding.access.function, finding.access.line, kind, finding.other.function,
                finding.other.line};
  count(key, [&] {
    Json::Object line{{"kind", isRace ? "race" : "access"},
                      {"kernel", demangled(finding.kernel)},
                      {"block", place(finding.block)},
                      {"address", hex(finding.address)},
                      {"bytes", finding.bytes},
                      {"by", describe(finding.access)}};
    if (isRace) {
      line.push_back({"what", raceName(finding.kind)});
      line.push_back({"space", "shared"});
      line.push_back({"against", describe(finding.other)});
      if (!finding.variable.empty()) {
        line.push_back({"variable", demangled(finding.variable)});
        line.push_back({"offset", finding.variableOffset});
      }
      return line;
    }
    line.push_back({"what", ptx::faultName(finding.fault)});
    line.push_back({"space", finding.space});
    line.push_back({"isFatal", finding.isFatal});
    const bool isOfDevice = finding.space == ptx::kGlobalName || finding.space == ptx::kConstName;
    if (const auto near = isOfDevice ? neighbourOf(finding.address, allocations_, space) : std::nullopt)
      line.push_back({"nearest", describe(*near)});
    return line;
  });
}

void Sanitizer::faulted(std::string_view kernel, const ptx::Fault& fault) {
  if (!checks_.memory) return;
  const Key key{kernel, fault.function, fault.line, 32 + static_cast<uint32_t>(fault.kind), "", 0};
  count(key, [&] {
    return Json::Object{{"kind", "fault"},
                        {"what", ptx::faultName(fault.kind)},
                        {"kernel", demangled(kernel)},
                        {"block", place(fault.block)},
                        {"by", Json::Object{{"thread", place(fault.thread)},
                                            {"function", demangled(fault.function)},
                                            {"line", fault.line}}},
                        {"detail", fault.detail}};
  });
}

void Sanitizer::launched(std::string_view kernel) {
  count(Key{kernel, "", 0, 1024, "", 0}, [&] {
    return Json::Object{{"kind", "launch"}, {"what", "checked"}, {"kernel", demangled(kernel)}};
  });
}

void Sanitizer::refused(std::string_view why) {
  count(Key{why, "", 0, 1025, "", 0}, [&] {
    return Json::Object{{"kind", "unchecked"}, {"what", "an image could not be loaded, so its kernels were not checked"},
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
  if (const auto found = sanitizer_.allocations().find(address, time_)) return {found->base, found->end(), true};
  if (sanitizer_.allocations().isManaged(address)) return {};
  const ptx::MemoryMap::Range range = space_.findExactly(address, device_);
  return {range.begin, range.end, range.writable};
}

}  // namespace millpond::softgpu
