// SPDX-License-Identifier: Apache-2.0
#include "protocol/handshake/snapshot.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace millpond {
namespace {

class Writer {
 public:
  template <typename T>
  void value(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(&v, sizeof(v));
  }
  void text(const std::string& s) {
    value(static_cast<uint32_t>(s.size()));
    bytes(s.data(), s.size());
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  void bytes(const void* from, size_t n) {
    const auto* p = static_cast<const std::byte*>(from);
    out_.insert(out_.end(), p, p + n);
  }
  std::vector<std::byte> out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  template <typename T>
  bool value(T& v) {
    if (in_.size() < sizeof(T)) return false;
    std::memcpy(&v, in_.data(), sizeof(T));
    in_ = in_.subspan(sizeof(T));
    return true;
  }
  bool text(std::string& s) {
    uint32_t n = 0;
    if (!value(n) || n > in_.size() || n > 4096) return false;
    s.assign(reinterpret_cast<const char*>(in_.data()), n);
    in_ = in_.subspan(n);
    return true;
  }
  bool done() const { return in_.empty(); }

 private:
  std::span<const std::byte> in_;
};

}  // namespace

std::vector<std::byte> Snapshot::encode() const {
  Writer out;
  out.value(driverVersion);
  out.value(static_cast<uint32_t>(devices.size()));
  for (const DeviceSnapshot& d : devices) {
    out.text(d.name);
    out.value(d.uuid);
    out.value(d.memoryBytes);
    out.value(d.computePercent);
    out.value(d.attributes);
    out.value(d.leastStreamPriority);
    out.value(d.greatestStreamPriority);
  }
  out.value(static_cast<uint32_t>(errors.size()));
  for (const ErrorText& e : errors) {
    out.value(e.code);
    out.text(e.name);
    out.text(e.text);
  }
  return out.take();
}

Result<Snapshot> Snapshot::decode(std::span<const std::byte> bytes) {
  Reader in(bytes);
  Snapshot s;
  const Error broken{"the worker's description of its devices is broken"};
  uint32_t devices = 0;
  if (!in.value(s.driverVersion) || !in.value(devices) || devices > 1024) return broken;
  for (uint32_t i = 0; i < devices; ++i) {
    DeviceSnapshot d;
    if (!in.text(d.name) || !in.value(d.uuid) || !in.value(d.memoryBytes) || !in.value(d.computePercent) ||
        !in.value(d.attributes) || !in.value(d.leastStreamPriority) || !in.value(d.greatestStreamPriority))
      return broken;
    s.devices.push_back(std::move(d));
  }
  uint32_t errors = 0;
  if (!in.value(errors) || errors > 4096) return broken;
  for (uint32_t i = 0; i < errors; ++i) {
    ErrorText e;
    if (!in.value(e.code) || !in.text(e.name) || !in.text(e.text)) return broken;
    s.errors.push_back(std::move(e));
  }
  if (!in.done()) return broken;
  return s;
}

namespace {

/// The attributes that identify the device and its machine, not its kind: its place on the bus, the board, NUMA nodes,
/// and settings of the host.
constexpr int kOfPlace[] = {33, 34, 50, 85, 130, 131, 133, 134, 141, 142, 143};

std::string differenceOfKind(const DeviceSnapshot& own, const DeviceSnapshot& other) {
  if (own.name != other.name) return "it is a " + other.name + ", not a " + own.name;
  for (int id = 1; id < kDeviceAttributeLimit; ++id) {
    const auto at = static_cast<size_t>(id);
    if (own.attributes[at] == other.attributes[at] ||
        std::find(std::begin(kOfPlace), std::end(kOfPlace), id) != std::end(kOfPlace))
      continue;
    return "attribute " + std::to_string(id) + " of its device is " + std::to_string(other.attributes[at]) + ", not " +
           std::to_string(own.attributes[at]);
  }
  return own.leastStreamPriority == other.leastStreamPriority &&
                 own.greatestStreamPriority == other.greatestStreamPriority
             ? ""
             : "its streams have other priorities";
}

}  // namespace

std::string differenceOfKind(const Snapshot& own, const Snapshot& other) {
  if (own.devices.size() != other.devices.size())
    return "the claim has " + std::to_string(other.devices.size()) + " vGPUs now, and had " +
           std::to_string(own.devices.size());
  if (own.driverVersion != other.driverVersion)
    return "its driver has the version " + std::to_string(other.driverVersion) + ", not " +
           std::to_string(own.driverVersion);
  for (size_t i = 0; i < own.devices.size(); ++i)
    if (std::string difference = differenceOfKind(own.devices[i], other.devices[i]); !difference.empty())
      return difference;
  return "";
}

}  // namespace millpond
