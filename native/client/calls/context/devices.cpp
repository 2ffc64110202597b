// SPDX-License-Identifier: Apache-2.0
// Devices: answered from the snapshot.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client {

namespace {

// The device that a call refers to, or the reason why there is none.
struct DeviceSubject {
  explicit DeviceSubject(CUdevice ordinal) : result(Client::check()) {
    if (result != CUDA_SUCCESS) return;
    device = Client::instance().device(ordinal);
    if (!device) result = CUDA_ERROR_INVALID_DEVICE;
  }
  int32_t attribute(CUdevice_attribute id) const { return device->attributes[static_cast<size_t>(id)]; }
  CUresult result;
  const DeviceSnapshot* device = nullptr;
};

struct PciAddress {
  int32_t domain = 0;
  int32_t bus = 0;
  int32_t device = 0;
  bool operator==(const PciAddress&) const = default;
};

PciAddress pciAddress(const DeviceSnapshot& device) {
  return {device.attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID], device.attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID],
          device.attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]};
}

std::optional<int32_t> takeHex(std::string_view& text, char end) {
  const size_t length = end ? text.find(end) : text.size();
  if (length == std::string_view::npos || length == 0 || length > 8) return std::nullopt;
  uint32_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + length, value, 16);
  if (error != std::errc() || stop != text.data() + length || value > INT32_MAX) return std::nullopt;
  text.remove_prefix(end ? length + 1 : length);
  return static_cast<int32_t>(value);
}

// `[domain:]bus:device[.function]`, hexadecimal; without a function only with a domain.
std::optional<PciAddress> parsePciAddress(std::string_view text) {
  PciAddress address;
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (colons < 1 || colons > 2) return std::nullopt;
  if (colons == 2) {
    const auto domain = takeHex(text, ':');
    if (!domain) return std::nullopt;
    address.domain = *domain;
  }
  const auto bus = takeHex(text, ':');
  const bool hasFunction = text.find('.') != std::string_view::npos;
  if (!bus || (colons == 1 && !hasFunction)) return std::nullopt;
  const auto device = takeHex(text, hasFunction ? '.' : '\0');
  if (!device) return std::nullopt;
  if (hasFunction && !takeHex(text, '\0')) return std::nullopt;
  address.bus = *bus;
  address.device = *device;
  return address;
}

struct AtomicQuestion {
  unsigned* capabilities;
  const CUatomicOperation* operations;
  unsigned count;
};

/// `peer`: the device whose memory the operations access; none: host memory.
CUresult atomicCapabilities(const char* name, const AtomicQuestion& question, CUdevice device,
                            std::optional<CUdevice> peer) {
  Call call(name, Needs::kNothing);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!question.capabilities || !question.operations || question.count == 0 || question.count > CU_ATOMIC_OPERATION_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  cmd::AtomicCapabilities wire{};
  wire.peer = -1;
  if (const CUresult r = call.device(device, wire.device); r != CUDA_SUCCESS) return r;
  if (peer)
    if (const CUresult r = call.device(*peer, wire.peer); r != CUDA_SUCCESS) return r;
  std::vector<std::byte> whole;
  Session::Answer answer;
  answer.whole = &whole;
  const std::span operations(question.operations, question.count);
  if (const CUresult r = call.waitFor(wire, answer, std::as_bytes(operations)); r != CUDA_SUCCESS) return r;
  cmd::Decoded<cmd::AtomicCapabilitiesReply> reply;
  if (!cmd::decode(whole, reply) || reply.tail[0].size() != operations.size_bytes()) return CUDA_ERROR_UNKNOWN;
  std::memcpy(question.capabilities, reply.tail[0].data(), reply.tail[0].size());
  return CUDA_SUCCESS;
}

}  // namespace

namespace api {

CUresult cuDeviceGet(CUdevice* device, int ordinal) noexcept {
  const DeviceSubject subject(ordinal);
  if (subject.result == CUDA_ERROR_NOT_INITIALIZED) return subject.result;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (subject.result == CUDA_SUCCESS) *device = ordinal;
  return subject.result;
}

CUresult cuDeviceGetCount(int* count) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = Client::instance().deviceCount();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) noexcept {
  const DeviceSubject subject(dev);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!name || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(len), "%s", subject.device->name.c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) noexcept {
  const DeviceSubject subject(dev);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  *bytes = subject.device->memoryBytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) noexcept {
  const DeviceSubject subject(dev);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!pi || attrib < 1 || attrib >= kDeviceAttributeLimit) return CUDA_ERROR_INVALID_VALUE;
  const int32_t value = subject.attribute(attrib);
  if (value == kNoAttribute) return CUDA_ERROR_INVALID_VALUE;
  *pi = value;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) noexcept {
  const DeviceSubject subject(dev);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!prop) return CUDA_ERROR_INVALID_VALUE;
  *prop = {
      .maxThreadsPerBlock = subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
      .maxThreadsDim = {subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                        subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                        subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
      .maxGridSize = {subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                      subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                      subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
      .sharedMemPerBlock = subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
      .totalConstantMemory = subject.attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
      .SIMDWidth = subject.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      .memPitch = subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
      .regsPerBlock = subject.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
      .clockRate = subject.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
      .textureAlign = subject.attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
  };
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) noexcept {
  const DeviceSubject subject(dev);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
  *major = subject.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = subject.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) noexcept {
  const DeviceSubject subject(dev);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid->bytes, subject.device->uuid.data(), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) noexcept {
  const DeviceSubject subject(dev);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  if (!pciBusId || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const PciAddress address = pciAddress(*subject.device);
  char text[40];
  const int length = std::snprintf(text, sizeof text, "%04X:%02X:%02X.0", static_cast<unsigned>(address.domain),
                                   static_cast<unsigned>(address.bus), static_cast<unsigned>(address.device));
  // As a card's driver does, it also returns the part that fits.
  std::snprintf(pciBusId, static_cast<size_t>(len), "%s", text);
  return length < len ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) noexcept {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (!dev || !pciBusId) return CUDA_ERROR_INVALID_VALUE;
  const auto address = parsePciAddress(pciBusId);
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  const Client& client = Client::instance();
  for (CUdevice i = 0; i < client.deviceCount(); ++i) {
    if (pciAddress(*client.device(i)) != *address) continue;
    *dev = i;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

// The vGPUs of a session cannot access each other's memory.

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                           unsigned int count, CUdevice dev) noexcept {
  return atomicCapabilities("cuDeviceGetHostAtomicCapabilities", {capabilities, operations, count}, dev, std::nullopt);
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities, const CUatomicOperation* operations,
                                          unsigned int count, CUdevice srcDevice, CUdevice dstDevice) noexcept {
  return atomicCapabilities("cuDeviceGetP2PAtomicCapabilities", {capabilities, operations, count}, srcDevice,
                            dstDevice);
}

CUresult cuDeviceGetLuid(char* luid, unsigned int* deviceNodeMask, CUdevice dev) noexcept {
  if (luid == nullptr || deviceNodeMask == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const DeviceSubject subject(dev);
  return subject.result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : subject.result;
}

CUresult cuDeviceGetNvSciSyncAttributes(void* nvSciSyncAttrList, CUdevice dev, int flags) noexcept {
  constexpr int kKnown = CUDA_NVSCISYNC_ATTR_SIGNAL | CUDA_NVSCISYNC_ATTR_WAIT;
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (nvSciSyncAttrList == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const DeviceSubject subject(dev);
  if (subject.result != CUDA_SUCCESS) return subject.result;
  return flags == 0 || (flags & ~kKnown) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace api
}  // namespace millpond::client
