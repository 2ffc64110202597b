// SPDX-License-Identifier: Apache-2.0
// The tables of functions that the CUDA runtime asks the library for.
#include <array>
#include <cstring>

#include "client/abi/integrity.h"
#include "client/testing/library_fixture.h"

using millpond::testing::CannedWorker;
using namespace millpond::client::testing;

TEST("hidden tables: those that the runtime cannot do without") {
  scenario([] {
    const auto words = [](const void* found) { return *static_cast<const uint64_t*>(found) / sizeof(void*); };
    CHECK_EQ(words(table(kRuntime)), 13u);
    CHECK_EQ(words(table(kHooks)), 7u);
    CHECK_EQ(words(table(kThread)), 3u);
    CHECK_EQ(words(table(kChecks)), 15u);
    CHECK_EQ(words(table(kIntegrity)), 3u);
    CHECK_EQ(words(table(kToolsContext)), 93u);
    CHECK(slot<void*>(table(kStorage), 3) == nullptr);
    CHECK(table(kRuntime) == table(kRuntime));
    CHECK(table({1, 2, 3}) == nullptr);
    CHECK(table({0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9}) ==
          nullptr);
    for (size_t i = 1; i < 93; ++i) CHECK(slot<void*>(table(kToolsContext), i) != nullptr);
    // Two unknown slots, each with as many arguments as registers hold.
    using Unknown = CUresult (*)(long, long, long, long, long, long);
    CHECK_EQ(slot<Unknown>(table(kToolsContext), 92)(1, 2, 3, 4, 5, 6), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(slot<Unknown>(table(kChecks), 1)(1, 2, 3, 4, 5, 6), CUDA_ERROR_NOT_SUPPORTED);
    void* buffer = nullptr;
    size_t count = 0;
    slot<void (*)(void**, size_t*)>(table(kHooks), 6)(&buffer, &count);
    CHECK_EQ(count, 14u);
    for (size_t i = 0; i < count; ++i) CHECK_EQ(static_cast<uint64_t*>(buffer)[i], 0u);
    uint32_t flags = 7;
    CHECK_EQ(slot<CUresult (*)(CUcontext, uint32_t*, const void**)>(table(kChecks), 2)(nullptr, &flags, nullptr),
             CUDA_SUCCESS);
    CHECK_EQ(flags, 0u);
  });
}

TEST("denied tables are not there") {
  scenario([] {
    ::setenv("MILLPOND_DENY_TABLES", "6bd5fb6c,,42d8", 1);
    CHECK(table(kRuntime) == nullptr);
    CHECK(table(kThread) == nullptr);
    CHECK(table(kHooks) != nullptr);
  });
}

TEST("context-local storage through its table") {
  scenario([] {
    using Destructor = void (*)(CUcontext, void*, void*);
    const auto put = slot<CUresult (*)(CUcontext, void*, void*, Destructor)>(table(kStorage), 0);
    const auto remove = slot<CUresult (*)(CUcontext, void*)>(table(kStorage), 1);
    const auto get = slot<CUresult (*)(void**, CUcontext, void*)>(table(kStorage), 2);
    static int key = 0;
    static int destroyed = 0;
    void* value = nullptr;
    CHECK_EQ(get(&value, nullptr, &key), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(get(&value, nullptr, &key), CUDA_ERROR_INVALID_CONTEXT);
    CUcontext context = nullptr;
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQ(get(&value, nullptr, &key), CUDA_ERROR_INVALID_HANDLE);
    const auto destroy = [](CUcontext, void* k, void* v) { destroyed += k == &key && v == &destroyed; };
    CHECK_EQ(put(nullptr, &key, &destroyed, destroy), CUDA_SUCCESS);
    CHECK_EQ(get(&value, reinterpret_cast<CUcontext>(UINTPTR_MAX), &key), CUDA_SUCCESS);
    CHECK(value == &destroyed);
    CHECK_EQ(get(&value, context, &key), CUDA_SUCCESS);
    CHECK_EQ(get(&value, reinterpret_cast<CUcontext>(&key), &key), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(remove(context, &key), CUDA_SUCCESS);
    CHECK_EQ(remove(context, &key), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(get(&value, nullptr, &key), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(put(context, &key, &destroyed, destroy), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxReset)(0), CUDA_SUCCESS);
    CHECK_EQ(destroyed, 1);
    CHECK_EQ(get(&value, nullptr, &key), CUDA_ERROR_INVALID_HANDLE);

    CUcontext current = nullptr;
    CHECK_EQ(slot<CUresult (*)(CUcontext*)>(table(kThread), 2)(&current), CUDA_SUCCESS);
    CHECK(current == context);
    uint64_t number = 9;
    const auto contextNumber = slot<CUresult (*)(CUcontext, uint64_t*)>(table(kToolsContext), 4);
    CHECK_EQ(contextNumber(nullptr, &number), CUDA_SUCCESS);
    CHECK_EQ(number, 0u);
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(contextNumber(context, &number), CUDA_SUCCESS);
    CHECK_EQ(number, 2u);
  });
}

TEST("the integrity check answers over exactly what was reported") {
  scenario([] {
    const auto check = slot<CUresult (*)(uint32_t, uint64_t, uint64_t*)>(table(kIntegrity), 1);
    uint64_t result[2] = {};
    CHECK_EQ(check(13002, 1'790'000'000, result), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    std::thread([&] {
      CHECK_EQ(check(13002, 1'790'000'000, result), CUDA_SUCCESS);
      std::vector<millpond::client::IntegrityDevice> devices;
      for (CUdevice i = 0; i < 2; ++i) {
        millpond::client::IntegrityDevice device;
        CUuuid uuid;
        CHECK_EQ(DRIVER(cuDeviceGetUuid_v2)(&uuid, i), CUDA_SUCCESS);
        std::memcpy(device.uuid.data(), uuid.bytes, sizeof uuid.bytes);
        const auto attribute = DRIVER(cuDeviceGetAttribute);
        CHECK_EQ(attribute(&device.pciDomain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, i), CUDA_SUCCESS);
        CHECK_EQ(attribute(&device.pciBus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i), CUDA_SUCCESS);
        CHECK_EQ(attribute(&device.pciDevice, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, i), CUDA_SUCCESS);
        devices.push_back(device);
      }
      const auto number = [](const void* p) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(p)); };
      const auto expected = millpond::client::integrityAnswer(
          {CannedWorker::kDriverVersion, 13002, static_cast<uint32_t>(::getpid()),
           static_cast<uint32_t>(::pthread_self()), number(table(kRuntime)), number(table(kIntegrity)),
           number(reinterpret_cast<const void*>(check)), 1'790'000'000},
          devices);
      CHECK_EQ(result[0], expected[0]);
      CHECK_EQ(result[1], expected[1]);
    }).join();
  });
}
