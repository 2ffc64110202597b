// SPDX-License-Identifier: Apache-2.0
#include "client/abi/export_tables.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "client/abi/activity_table.h"
#include "client/abi/integrity.h"
#include "client/abi/runtime_hooks.h"
#include "client/call/call.h"
#include "client/gen/api.h"
#include "client/process/client.h"

namespace millpond::client {

namespace {

// Ids as their 16 bytes in memory order, and the tables' sizes in words as in driver 580.
enum TableIndex {
  kRuntime,
  kHooks,
  kThread,
  kStorage,
  kChecks,
  kIntegrity,
  kToolsContext,
  kToolsModule,
  kTopology,
  kClaim,
  kActivity
};

struct TableInfo {
  const char* id;
  const char* name;
  size_t words;
};

constexpr TableInfo kTables[] = {
    {"6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", "runtime interface", 13},
    {"a094798c-2e74-2e74-93f2-0800200c0a66", "runtime callback hooks", 7},
    {"42d85a81-23f6-cb47-8298-f6e78a3aecdc", "tools thread state", 3},
    {"c693336e-1121-df11-a8c3-68f355d89593", "context-local storage", 4},
    {"263e8860-7cd2-6143-92f6-bbd5006dfa7e", "context checks", 15},
    {"d4082055-bde6-704b-8d34-ba123c66e1f2", "integrity check", 3},
    {"21318c60-9714-3248-8ca6-41ff7324c8f2", "tools context", 93},
    {"6e163fbe-b958-444d-835c-e182aff1991e", "tools module", 99},
    {"1734dc26-800d-4745-8726-c0f1e7dd8bca", "SM topology", 17},
    // Ours: for libnvidia-ml.so.1 in the same process.
    {"6d696c6c-706f-6e64-2773-20636c61696d", "claim", 2},
    // Ours: for libcupti.so in the same process (native/cuda/activity_table.h).
    {"6d696c6c-706f-6e64-2773-206375707469", "activity", sizeof(ActivityTable) / sizeof(void*)},
};

// Tables that libraries request and work without: log sink, nvrtc's compile cache, bridge to NVML.
constexpr const char* kNotMissed[] = {
    "f8cff951-2146-8b4e-b9e2-fb469e7c0dd9",
    "da9151d3-3ae6-cc41-a5c0-4f26d533e328",
    "69a28e9f-2449-8b47-b030-c5da330ea4e9",
};

using Word = void*;
using Argument = uintptr_t;

template <typename Function>
Word address(Function* function) {
  return reinterpret_cast<Word>(function);
}

// Fills the slots whose function is unknown, or cannot be provided.
CUresult unknownSlot(std::atomic<bool>& said, int table, int slot, const Argument (&a)[6]) {
  logOnce(said, LogLevel::Warn,
          "slot %d of the driver's table '%s' (%.8s) is not supported; called with %#lx %#lx %#lx %#lx %#lx %#lx", slot,
          kTables[table].name, kTables[table].id, a[0], a[1], a[2], a[3], a[4], a[5]);
  return CUDA_ERROR_NOT_SUPPORTED;
}

template <int table, int slot>
CUresult unknown(Argument a, Argument b, Argument c, Argument d, Argument e, Argument f) {
  static std::atomic<bool> said{false};
  return unknownSlot(said, table, slot, {a, b, c, d, e, f});
}

// A table whose first word is its size and whose slots begin at 1, all of them unknown.
template <int table>
struct Table {
  static constexpr size_t kWords = kTables[table].words;
  std::array<Word, kWords> words;

  Table() { fill(std::make_index_sequence<kWords - 1>()); }
  Word& operator[](size_t slot) { return words[slot]; }

 private:
  template <size_t... indices>
  void fill(std::index_sequence<indices...>) {
    words[0] = reinterpret_cast<Word>(kWords * sizeof(Word));
    ((words[indices + 1] = address(&unknown<table, static_cast<int>(indices + 1)>)), ...);
  }
};

CUresult nothing() { return CUDA_SUCCESS; }

Context* contextOf(CUcontext handle) {
  // NULL and -1 both stand for the current one.
  const auto number = reinterpret_cast<uintptr_t>(handle);
  if (number == 0 || number == UINTPTR_MAX) return CurrentContext::get();
  if (Client::check() != CUDA_SUCCESS) return nullptr;
  return Client::instance().contexts().find(handle);
}

// Runs `call` with a context current.
template <typename Call>
CUresult inContext(CUcontext handle, Call&& call) {
  Context* context = contextOf(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (context == CurrentContext::get()) return call();
  CurrentContext::push(*context);
  const CUresult result = call();
  CurrentContext::pop();
  return result;
}

// Runtime interface

CUresult primaryContext(CUcontext* out, CUdevice device) {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  // This call does not retain it: programs query which devices are in use.
  Context* context = Client::instance().contexts().primary(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  *out = context->handle();
  return CUDA_SUCCESS;
}

CUresult loadModule(CUmodule* out, const void* image) { return api::cuModuleLoadFatBinary(out, image); }
CUresult loadModuleFromHeader(const void* image, CUmodule* out) { return api::cuModuleLoadFatBinary(out, image); }

// Hooks: switches of profilers. Those of synchronization are always off.

uint64_t syncSwitches[64];

void getSyncSwitches(void** buffer, size_t* count) {
  *buffer = syncSwitches;
  *count = 14;
}

// Thread state

CUresult currentContext(CUcontext* out) {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Context* current = CurrentContext::get();
  *out = current ? current->handle() : nullptr;
  return CUDA_SUCCESS;
}

// Context-local storage

CUresult storagePut(CUcontext handle, void* key, void* value, LocalStorage::Destructor destructor) {
  Context* context = contextOf(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!key) return CUDA_ERROR_INVALID_VALUE;
  context->storage.put(key, value, destructor);
  return CUDA_SUCCESS;
}

CUresult storageDelete(CUcontext handle, void* key) {
  Context* context = contextOf(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  return key && context->storage.remove(key) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult storageGet(void** value, CUcontext handle, void* key) {
  const Context* context = contextOf(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  return key && context->storage.get(key, *value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Context checks

CUresult checkContext(CUcontext, uint32_t* flags, const void**) {
  if (flags) *flags = 0;
  return CUDA_SUCCESS;
}

uint32_t checksWanted() { return 0; }

// Integrity

CUresult integrityCheck(uint32_t version, uint64_t unixSeconds, uint64_t* result);

// Tools

CUresult contextNumber(CUcontext handle, uint64_t* out) {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = 0;
  if (!handle) return CUDA_SUCCESS;
  const Context* context = contextOf(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *out = context->id();
  return CUDA_SUCCESS;
}

// Callers only pass the object to `streamNumber`, so the handle suffices.
CUresult streamObject(CUcontext handle, CUstream stream, void** out) {
  if (!contextOf(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (reinterpret_cast<uintptr_t>(stream) == UINTPTR_MAX) return CUDA_ERROR_INVALID_HANDLE;
  *out = stream ? stream : CU_STREAM_LEGACY;
  return CUDA_SUCCESS;
}

CUresult streamNumber(CUcontext handle, void* stream, uint64_t* out) {
  return inContext(handle, [&] {
    unsigned long long id = 0;
    const CUresult result = api::cuStreamGetId(Flavour::kLegacy, static_cast<CUstream>(stream), &id);
    if (result == CUDA_SUCCESS) *out = id;
    return result;
  });
}

// Number of module functions passed to the callback; an error code would be mistaken for one.
int enumerateFunctions(CUcontext handle, CUmodule module, void (*each)(void*, CUfunction, uint64_t), void* data) {
  std::vector<CUfunction> functions;
  const CUresult result = inContext(handle, [&]() -> CUresult {
    unsigned count = 0;
    if (const CUresult r = api::cuModuleGetFunctionCount(&count, module); r != CUDA_SUCCESS) return r;
    functions.resize(count);
    return count == 0 ? CUDA_SUCCESS : api::cuModuleEnumerateFunctions(functions.data(), count, module);
  });
  if (result != CUDA_SUCCESS) {
    log(LogLevel::Warn, "the functions of a module could not be enumerated: %d", static_cast<int>(result));
    return 0;
  }
  if (each)
    for (const CUfunction function : functions) each(data, function, 0);
  return static_cast<int>(functions.size());
}

// Two arrays, which the caller releases with freeTopology.
CUresult getTopology(uint8_t** places, uint8_t** clusters) {
  Call call("SM topology", Needs::kCurrent);
  if (const CUresult r = call.entry(); r != CUDA_SUCCESS) return r;
  if (!places || !clusters) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> whole;
  Session::Answer answer;
  answer.whole = &whole;
  if (const CUresult r = call.waitFor(cmd::SmTopology{}, answer); r != CUDA_SUCCESS) return r;
  cmd::Decoded<cmd::SmTopologyReply> reply;
  if (!cmd::decode(whole, reply)) return CUDA_ERROR_UNKNOWN;
  uint8_t* copies[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    copies[i] = static_cast<uint8_t*>(std::malloc(std::max<size_t>(reply.tail[i].size(), 1)));
    if (!copies[i]) {
      std::free(copies[0]);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    std::copy(reply.tail[i].begin(), reply.tail[i].end(), reinterpret_cast<std::byte*>(copies[i]));
  }
  *places = copies[0];
  *clusters = copies[1];
  return CUDA_SUCCESS;
}

CUresult freeTopology(uint8_t* places, uint8_t* clusters) {
  std::free(places);
  std::free(clusters);
  return CUDA_SUCCESS;
}

// The claim

const char* claimName() { return Client::instance().claim(); }

struct Tables {
  Table<kRuntime> runtime;
  Table<kHooks> hooks;
  Table<kThread> thread;
  std::array<Word, kTables[kStorage].words> storage;  // without a size, ended by a null pointer
  Table<kChecks> checks;
  Table<kIntegrity> integrity;
  Table<kToolsContext> toolsContext;
  Table<kToolsModule> toolsModule;
  Table<kTopology> topology;
  Table<kClaim> claim;
  std::vector<std::string> denied;

  Tables() {
    runtime[1] = address(&loadModule);
    runtime[2] = address(&primaryContext);
    runtime[6] = address(&loadModule);
    runtime[7] = address(&nothing);
    runtime[8] = address(&loadModuleFromHeader);
    runtime[12] = address(&nothing);  // requests early loading of the JIT compilers
    for (size_t slot = 1; slot < hooks.words.size(); ++slot) hooks[slot] = address(&nothing);
    hooks[1] = address(&runtime_hooks::called);
    hooks[2] = address(&runtime_hooks::getSwitches);
    hooks[6] = address(&getSyncSwitches);
    thread[2] = address(&currentContext);
    storage = {address(&storagePut), address(&storageDelete), address(&storageGet), nullptr};
    checks[2] = address(&checkContext);
    checks[3] = address(&checksWanted);
    integrity[1] = address(&integrityCheck);
    integrity[2] = address(&nothing);
    toolsContext[4] = address(&contextNumber);
    toolsContext[39] = address(&streamNumber);
    toolsContext[51] = address(&streamObject);
    toolsModule[7] = address(&enumerateFunctions);
    topology[4] = address(&getTopology);
    topology[13] = address(&freeTopology);
    claim[1] = address(&claimName);

    const char* variable = std::getenv("MILLPOND_DENY_TABLES");
    std::string_view rest = variable ? variable : "";
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (comma > 0) denied.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }

  const void* at(size_t index) const {
    const void* const all[] = {
        runtime.words.data(),  hooks.words.data(),     thread.words.data(),       storage.data(),
        checks.words.data(),   integrity.words.data(), toolsContext.words.data(), toolsModule.words.data(),
        topology.words.data(), claim.words.data(),     &activityTable()};
    static_assert(std::size(all) == std::size(kTables));
    return all[index];
  }
};

// Never destroyed: other libraries use the tables while the process exits.
Tables& tables() {
  static Tables* const made = std::make_unique<Tables>().release();
  return *made;
}

CUresult integrityCheck(uint32_t version, uint64_t unixSeconds, uint64_t* result) {
  if (const CUresult r = Client::check(); r != CUDA_SUCCESS) return r;
  if (!result) return CUDA_ERROR_INVALID_VALUE;
  Client& client = Client::instance();
  Tables& handedOut = tables();
  const auto number = [](const void* pointer) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer)); };
  const IntegrityQuestion question{
      .driverVersion = static_cast<uint32_t>(client.snapshot().driverVersion),
      .version = version,
      .pid = static_cast<uint32_t>(::getpid()),
      .thread = static_cast<uint32_t>(::pthread_self() & 0xffffffffu),
      .runtimeTable = number(handedOut.runtime.words.data()),
      .checkTable = number(handedOut.integrity.words.data()),
      .checkFunction = number(handedOut.integrity[1]),
      .unixSeconds = unixSeconds,
  };
  std::vector<IntegrityDevice> devices;
  for (CUdevice i = 0; i < client.deviceCount(); ++i) {
    const DeviceSnapshot& device = *client.device(i);
    devices.push_back({device.uuid, device.attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID],
                       device.attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID],
                       device.attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]});
  }
  const auto answer = integrityAnswer(question, devices);
  result[0] = answer[0];
  result[1] = answer[1];
  return CUDA_SUCCESS;
}

std::string textOf(const CUuuid& id) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < sizeof id.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text.push_back('-');
    const auto byte = static_cast<unsigned char>(id.bytes[i]);
    text.push_back(kHex[byte >> 4]);
    text.push_back(kHex[byte & 15]);
  }
  return text;
}

}  // namespace

const void* exportTable(const CUuuid& id) {
  const std::string text = textOf(id);
  const Tables& all = tables();
  for (const std::string& prefix : all.denied) {
    if (!text.starts_with(prefix)) continue;
    log(LogLevel::Info, "driver table %s is denied by MILLPOND_DENY_TABLES", text.c_str());
    return nullptr;
  }
  for (size_t i = 0; i < std::size(kTables); ++i) {
    if (text != kTables[i].id) continue;
    log(LogLevel::Debug, "driver table %s: %s", text.c_str(), kTables[i].name);
    return all.at(i);
  }
  const bool missed = std::find(std::begin(kNotMissed), std::end(kNotMissed), text) == std::end(kNotMissed);
  log(missed ? LogLevel::Warn : LogLevel::Debug, "driver table %s is unknown; the caller may not need it",
      text.c_str());
  return nullptr;
}

}  // namespace millpond::client
