// SPDX-License-Identifier: Apache-2.0
// What streams are told about themselves, and questions about devices whose answers have no fixed length.
#include <cstring>

#include "cuda/launch_attribute.h"
#include "worker/session/executor.h"

namespace millpond::worker {
namespace {

constexpr size_t kMaxOperations = 64;

bool isOfStreams(CUstreamAttrID id) {
  return kindOf(id) == LaunchAttributeKind::kPlain || kindOf(id) == LaunchAttributeKind::kWindow;
}

}  // namespace

CUresult Executor::onStreamSetAttribute(const cmd::Decoded<cmd::StreamSetAttribute>& command) {
  CUstream s = nullptr;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const auto id = static_cast<CUstreamAttrID>(command.fixed.attribute);
  if (!isOfStreams(id)) return violation("an attribute that no stream has");
  CUstreamAttrValue value;
  static_assert(sizeof value == sizeof command.fixed.value);
  if (CUresult rc = readAttribute(id, Crossing<CUstreamAttrValue>::in(command.fixed.value), value)) return rc;
  return driver_.cuStreamSetAttribute(s, id, &value);
}

CUresult Executor::onStreamGetAttribute(const cmd::Decoded<cmd::StreamGetAttribute>& command) {
  CUstream s = nullptr;
  if (!stream(command.fixed.stream, s)) return violation("unknown stream");
  const auto id = static_cast<CUstreamAttrID>(command.fixed.attribute);
  if (!isOfStreams(id)) return violation("an attribute that no stream has");
  CUstreamAttrValue value{};
  if (CUresult rc = driver_.cuStreamGetAttribute(s, id, &value)) return rc;
  cmd::StreamGetAttributeReply out{};
  std::memcpy(out.value, &value, sizeof value);
  reply(out);
  return CUDA_SUCCESS;
}

CUresult Executor::onAtomicCapabilities(const cmd::Decoded<cmd::AtomicCapabilities>& command) {
  CUdevice from = 0, to = 0;
  if (!device(command.fixed.device, from)) return violation("no device of the session");
  if (command.fixed.peer != -1 && !device(command.fixed.peer, to)) return violation("no device of the session");
  const auto bytes = command.tail[0];
  std::vector<CUatomicOperation> operations(bytes.size() / sizeof(CUatomicOperation));
  if (bytes.size() % sizeof(CUatomicOperation) || operations.empty() || operations.size() > kMaxOperations)
    return violation("questions about " + std::to_string(operations.size()) + " atomic operations");
  std::memcpy(operations.data(), bytes.data(), bytes.size());
  std::vector<unsigned> capabilities(operations.size());
  const auto count = static_cast<unsigned>(operations.size());
  const CUresult rc =
      command.fixed.peer == -1
          ? driver_.cuDeviceGetHostAtomicCapabilities(capabilities.data(), operations.data(), count, from)
          : driver_.cuDeviceGetP2PAtomicCapabilities(capabilities.data(), operations.data(), count, from, to);
  if (rc) return rc;
  reply(cmd::AtomicCapabilitiesReply{.count = count}, std::as_bytes(std::span(capabilities)));
  return CUDA_SUCCESS;
}

}  // namespace millpond::worker
