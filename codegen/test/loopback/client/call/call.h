// SPDX-License-Identifier: Apache-2.0
// The parts of the client that generated calls need, in their simplest form: the worker's dispatch runs every command
// immediately.
#pragma once

#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/gen/api.h"
#include "protocol/gen/commands.h"
#include "protocol/gen/handle_kind.h"
#include "worker/session/gen/dispatch.h"
#include "worker/loopback_worker.h"

namespace millpond::client {

/// Data that a client stores with its handles.
struct HandleTraits {
  unsigned int flags = 0;
  int priority = 0;
};

struct Loopback {
  worker::LoopbackWorker worker;
  bool initialised = true;
  bool hasContext = true;
  uint64_t nextHandle = 0x100;
  std::map<uint64_t, std::pair<HandleKind, HandleTraits>> handles;
  std::map<std::pair<uint64_t, std::string>, std::vector<std::byte>> cache;
  size_t posts = 0;
  size_t waits = 0;
  CUresult lastAsync = CUDA_SUCCESS;
};
inline Loopback& loopback() {
  static Loopback one;
  return one;
}

enum class Needs { kNothing, kCurrent, kAny };

class Call {
 public:
  Call(const char*, Needs needs) : needs_(needs) {}
  CUresult entry() const {
    if (!loopback().initialised) return CUDA_ERROR_NOT_INITIALIZED;
    return needs_ == Needs::kCurrent && !loopback().hasContext ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  }
  CUresult stream(CUstream in, Flavour flavour, uint64_t& wire) {
    if (in == nullptr) {
      if (needs_ == Needs::kAny && !loopback().hasContext) return CUDA_ERROR_INVALID_CONTEXT;
      wire = flavour == Flavour::kPerThread ? 2 : 0;
      return CUDA_SUCCESS;
    }
    return handle(HandleKind::kStream, in, wire);
  }
  CUresult handle(HandleKind kind, const void* in, uint64_t& wire) {
    const auto found = loopback().handles.find(reinterpret_cast<uint64_t>(in));
    if (found == loopback().handles.end() || found->second.first != kind) return CUDA_ERROR_INVALID_HANDLE;
    wire = found->first;
    return CUDA_SUCCESS;
  }
  CUresult functionOrKernel(const void* in, uint64_t& wire) { return handle(HandleKind::kFunction, in, wire); }
  CUresult device(CUdevice in, int32_t& wire) {
    if (in < 0 || in > 1) return CUDA_ERROR_INVALID_DEVICE;
    wire = in;
    return CUDA_SUCCESS;
  }
  uint64_t create(HandleKind kind, void** out, HandleTraits traits) {
    const uint64_t made = loopback().nextHandle++;
    loopback().handles[made] = {kind, traits};
    *out = reinterpret_cast<void*>(made);
    return made;
  }
  CUresult destroy(HandleKind kind, const void* in, uint64_t& wire) {
    if (const CUresult r = handle(kind, in, wire); r != CUDA_SUCCESS) return r;
    loopback().handles.erase(wire);
    return CUDA_SUCCESS;
  }
  void forget(uint64_t subject) {
    std::erase_if(loopback().cache, [subject](const auto& entry) { return entry.first.first == subject; });
  }
  bool isDoneNow(uint64_t) { return true; }
  template <typename C, typename... Tails>
  CUresult post(const C& fixed, const Tails&... tails) {
    static_assert(!C::kHasReply);
    ++loopback().posts;
    loopback().lastAsync = run(fixed, tails...);
    return CUDA_SUCCESS;
  }
  template <typename C, typename R, typename... Tails>
  CUresult wait(const C& fixed, R& reply, const Tails&... tails) {
    static_assert(std::is_same_v<typename C::Reply, R>);
    ++loopback().waits;
    loopback().worker.answer.clear();
    const CUresult result = run(fixed, tails...);
    if (result != CUDA_SUCCESS) return result;
    cmd::Decoded<R> decoded;
    if (!cmd::decode(std::span<const std::byte>(loopback().worker.answer), decoded)) return CUDA_ERROR_UNKNOWN;
    reply = decoded.fixed;
    return CUDA_SUCCESS;
  }
  template <typename C>
  CUresult waitOnce(uint64_t, const C& fixed) noexcept {
    typename C::Reply reply{};
    return wait(fixed, reply);
  }
  template <typename C, typename R>
  CUresult waitCached(uint64_t subject, const C& fixed, R& reply) {
    const std::string key = cmd::opName(C::kOp) + std::string(reinterpret_cast<const char*>(&fixed), sizeof fixed);
    std::vector<std::byte>& kept = loopback().cache[{subject, key}];
    if (kept.empty()) {
      if (const CUresult r = wait(fixed, reply); r != CUDA_SUCCESS) return r;
      kept.resize(sizeof reply);
      std::memcpy(kept.data(), &reply, sizeof reply);
    }
    std::memcpy(&reply, kept.data(), sizeof reply);
    return CUDA_SUCCESS;
  }

 private:
  template <typename C, typename... Tails>
  CUresult run(const C& fixed, const Tails&... tails) {
    std::vector<std::byte> body(cmd::encodedSize<C>(tails...));
    cmd::encode(body.data(), fixed, tails...);
    return worker::dispatch(loopback().worker.parts(), C::kOp, body, body);
  }
  Needs needs_;
};

}  // namespace millpond::client
