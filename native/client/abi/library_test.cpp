// SPDX-License-Identifier: Apache-2.0
// The client library as programs use it: loaded by name, called by symbol. Each scenario runs in its own process,
// because a process attaches once. Usage: library_test LIBRARY [case]
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <functional>

#include "client/testing/library_fixture.h"
#include "cuda/gen/cuda_api.h"
#include "testing/check.h"
#include "testing/servers/canned_worker.h"

using millpond::testing::CannedWorker;
using namespace millpond::client::testing;

TEST("before cuInit: versions, names and entry points only") {
  scenario([] {
    int version = 0;
    CHECK_EQ(DRIVER(cuDriverGetVersion)(&version), CUDA_SUCCESS);
    CHECK_EQ(version, CannedWorker::kDriverVersion);
    CHECK_EQ(DRIVER(cuDriverGetVersion)(nullptr), CUDA_ERROR_INVALID_VALUE);
    int count = -1;
    CHECK_EQ(DRIVER(cuDeviceGetCount)(&count), CUDA_ERROR_NOT_INITIALIZED);
    CUcontext context = nullptr;
    CHECK_EQ(DRIVER(cuCtxGetCurrent)(&context), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
    CUdeviceptr pointer = 0;
    CHECK_EQ(DRIVER(cuMemAlloc_v2)(&pointer, 16), CUDA_ERROR_NOT_INITIALIZED);
    CUarray array = nullptr;
    CHECK_EQ(DRIVER(cuArrayCreate_v2)(&array, nullptr), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQ(DRIVER(cuInit)(1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuDeviceGetCount)(&count), CUDA_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK_EQ(DRIVER(cuArrayCreate_v2)(&array, nullptr), CUDA_ERROR_INVALID_VALUE);
    CUexternalMemory memory = nullptr;
    CHECK_EQ(DRIVER(cuImportExternalMemory)(&memory, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  });
}

TEST("error texts: a few of its own at first, then the worker's driver's") {
  scenario([] {
    const char* text = nullptr;
    CHECK_EQ(DRIVER(cuGetErrorString)(CUDA_ERROR_INVALID_VALUE, &text), CUDA_SUCCESS);
    CHECK_EQ(std::string(text), "invalid argument");
    CHECK_EQ(DRIVER(cuGetErrorName)(CUDA_ERROR_NO_DEVICE, &text), CUDA_SUCCESS);
    CHECK_EQ(std::string(text), "CUDA_ERROR_NO_DEVICE");
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuGetErrorString)(CUDA_ERROR_INVALID_VALUE, &text), CUDA_SUCCESS);
    CHECK_EQ(std::string(text), "canned invalid argument");
    CHECK_EQ(DRIVER(cuGetErrorName)(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
    CHECK(text == nullptr);
    CHECK_EQ(DRIVER(cuGetErrorName)(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST("devices: what the snapshot says") {
  scenario([] {
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    CUdevice device = -1;
    CHECK_EQ(DRIVER(cuDeviceGet)(&device, 1), CUDA_SUCCESS);
    CHECK_EQ(device, 1);
    CHECK_EQ(DRIVER(cuDeviceGet)(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(DRIVER(cuDeviceGet)(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    CHECK(nameOf(1).starts_with("Canned GPU 1 of session "));
    char small[7];
    CHECK_EQ(DRIVER(cuDeviceGetName)(small, sizeof small, 0), CUDA_SUCCESS);
    CHECK_EQ(std::string(small), "Canned");
    size_t bytes = 0;
    CHECK_EQ(DRIVER(cuDeviceTotalMem_v2)(&bytes, 0), CUDA_SUCCESS);
    CHECK_EQ(bytes, CannedWorker::kMemoryBytes);
    int value = 0;
    CHECK_EQ(DRIVER(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_SUCCESS);
    CHECK_EQ(value, 32);
    for (const int bad : {-1, 0, 146, 159, 160, 1 << 30}) {
      CHECK_EQ(DRIVER(cuDeviceGetAttribute)(&value, static_cast<CUdevice_attribute>(bad), 0), CUDA_ERROR_INVALID_VALUE);
    }
    CHECK_EQ(DRIVER(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2), CUDA_ERROR_INVALID_DEVICE);
    int minor = -1;
    CHECK_EQ(DRIVER(cuDeviceComputeCapability)(&value, &minor, 0), CUDA_SUCCESS);
    CHECK_EQ(value * 10 + minor, 90);
    CUuuid uuid;
    CHECK_EQ(DRIVER(cuDeviceGetUuid_v2)(&uuid, 1), CUDA_SUCCESS);
    CHECK_EQ(static_cast<unsigned char>(uuid.bytes[0]), 0xcau);
    CHECK_EQ(uuid.bytes[15], 1);
    CHECK_EQ(DRIVER(cuDeviceGetUuid)(&uuid, 0), CUDA_SUCCESS);
    CHECK_EQ(uuid.bytes[15], 0);
    CUdevprop properties{};
    CHECK_EQ(DRIVER(cuDeviceGetProperties)(&properties, 0), CUDA_SUCCESS);
    CHECK_EQ(properties.SIMDWidth, 32);
    CHECK_EQ(DRIVER(cuDeviceCanAccessPeer)(&value, 0, 1), CUDA_SUCCESS);
    CHECK_EQ(value, 0);
    CHECK_EQ(DRIVER(cuDeviceGetP2PAttribute)(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuDeviceGetP2PAttribute)(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 2),
             CUDA_ERROR_INVALID_DEVICE);
  });
}

TEST("PCI addresses there and back") {
  scenario([] {
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    char text[32];
    CHECK_EQ(DRIVER(cuDeviceGetPCIBusId)(text, sizeof text, 1), CUDA_SUCCESS);
    CHECK_EQ(std::string(text), "0010:A1:00.0");
    CHECK_EQ(DRIVER(cuDeviceGetPCIBusId)(text, 13, 1), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuDeviceGetPCIBusId)(text, 12, 1), CUDA_ERROR_INVALID_VALUE);
    CUdevice device = -1;
    for (const char* good : {"0010:A1:00.0", "0010:a1:00", "00000010:a1:0.0", "10:A1:0"}) {
      device = -1;
      CHECK_EQ(DRIVER(cuDeviceGetByPCIBusId)(&device, good), CUDA_SUCCESS);
      CHECK_EQ(device, 1);
    }
    for (const char* other : {"0010:A2:00.0", "a1:00.0"}) {
      CHECK_EQ(DRIVER(cuDeviceGetByPCIBusId)(&device, other), CUDA_ERROR_INVALID_DEVICE);
    }
    for (const char* bad :
         {"", "a1", "a1:00", "::", "0010:A1:", "0010:A1:00.", "0010:A1:00.0x", "g:0:0", "1:2:3:4", "123456789:1:1"}) {
      CHECK_EQ(DRIVER(cuDeviceGetByPCIBusId)(&device, bad), CUDA_ERROR_INVALID_VALUE);
    }
  });
}

TEST("CUDA_VISIBLE_DEVICES on top of the grant") {
  scenario([] {
    ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    int count = 0;
    CHECK_EQ(DRIVER(cuDeviceGetCount)(&count), CUDA_SUCCESS);
    CHECK_EQ(count, 1);
    CHECK(nameOf(0).starts_with("Canned GPU 1 "));
  });
  scenario([] {
    ::setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_ERROR_NO_DEVICE);
    int count = 0;
    CHECK_EQ(DRIVER(cuDeviceGetCount)(&count), CUDA_ERROR_NOT_INITIALIZED);
  });
}

TEST("primary contexts and the thread's stack") {
  scenario([] {
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    unsigned flags = 1;
    int active = 1;
    const auto isActive = [&](CUdevice device) {
      CHECK_EQ(DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active), CUDA_SUCCESS);
      return active != 0;
    };
    CUcontext early = nullptr;
    CHECK_EQ(slot<CUresult (*)(CUcontext*, CUdevice)>(table(kRuntime), 2)(&early, 1), CUDA_SUCCESS);
    CHECK(!isActive(1));
    CUdevice device = -1;
    CHECK_EQ(DRIVER(cuCtxGetDevice)(&device), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(DRIVER(cuCtxSetCurrent)(early), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuCtxGetDevice)(&device), CUDA_SUCCESS);
    CHECK_EQ(device, 1);
    CUcontext context = nullptr;
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 1), CUDA_SUCCESS);
    CHECK(context == early);
    CHECK(isActive(1));
    CHECK(!isActive(0));
    unsigned long long id = 0;
    CHECK_EQ(DRIVER(cuCtxGetId)(nullptr, &id), CUDA_SUCCESS);
    CHECK_EQ(id, 1u);
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxReset)(1), CUDA_SUCCESS);
    CHECK(!isActive(1));
    CHECK_EQ(DRIVER(cuCtxGetId)(context, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRelease)(1), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRelease)(1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxSetFlags)(0, CU_CTX_SCHED_YIELD), CUDA_SUCCESS);
    CHECK(!isActive(0));
    CHECK_EQ(flags, unsigned{CU_CTX_SCHED_YIELD});
    for (const unsigned bad : {3u, 5u, 0x100u}) {
      CHECK_EQ(DRIVER(cuDevicePrimaryCtxSetFlags)(0, bad), CUDA_ERROR_INVALID_VALUE);
    }
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 2), CUDA_ERROR_INVALID_DEVICE);

    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuCtxPushCurrent)(context), CUDA_SUCCESS);
    int least = 1;
    int greatest = 1;
    CHECK_EQ(DRIVER(cuCtxGetStreamPriorityRange)(&least, &greatest), CUDA_SUCCESS);
    CHECK_EQ(greatest, -5);
    CUcontext other = nullptr;
    std::thread([&] { CHECK_EQ(DRIVER(cuCtxGetCurrent)(&other), CUDA_SUCCESS); }).join();
    CHECK(other == nullptr);
    CHECK_EQ(DRIVER(cuCtxPopCurrent)(&other), CUDA_SUCCESS);
    CHECK(other == context);
    CHECK_EQ(DRIVER(cuCtxGetCurrent)(&other), CUDA_SUCCESS);
    CHECK(other == early);
    CHECK_EQ(DRIVER(cuCtxSetCurrent)(nullptr), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuCtxPopCurrent)(&other), CUDA_ERROR_INVALID_CONTEXT);
    int foreign = 0;
    CHECK_EQ(DRIVER(cuCtxSetCurrent)(reinterpret_cast<CUcontext>(&foreign)), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(DRIVER(cuCtxPushCurrent)(nullptr), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(DRIVER(cuCtxSynchronize_v2)(context), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuCtxGetCurrent)(&other), CUDA_SUCCESS);
    CHECK(other == nullptr);
  });
}

TEST("entry points by name and version") {
  scenario([] {
    const auto get = DRIVER(cuGetProcAddress_v2);
    void* found = &found;
    CUdriverProcAddressQueryResult status{};
    CHECK_EQ(get("", &found, 0, 0, nullptr), CUDA_SUCCESS);
    CHECK(found == nullptr);
    CHECK_EQ(get("cuInit", &found, 2000, 0, nullptr), CUDA_SUCCESS);
    CHECK(found == symbol("cuInit"));
    CHECK_EQ(get("cuMemAlloc", &found, 13000, 0, &status), CUDA_SUCCESS);
    CHECK(found == symbol("cuMemAlloc_v2"));
    CHECK_EQ(get("cuGetProcAddress", &found, 12000, 0, nullptr), CUDA_SUCCESS);
    CHECK(found == symbol("cuGetProcAddress_v2"));
    CHECK_EQ(get("cuGetProcAddress", &found, 11030, 0, nullptr), CUDA_SUCCESS);
    CHECK(found == symbol("cuGetProcAddress"));
    CHECK_EQ(get("cuMemcpyHtoD", &found, 7000, 2, nullptr), CUDA_SUCCESS);
    CHECK(found == symbol("cuMemcpyHtoD_v2_ptds"));
    CHECK_EQ(get("cuLaunchKernel", &found, 4000, 0, nullptr), CUDA_SUCCESS);
    CHECK(found == symbol("cuLaunchKernel"));
    CHECK_EQ(get("cuNoSuchThing", &found, 13000, 0, &status), CUDA_SUCCESS);
    CHECK(found == nullptr);
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    // The worker's driver is newer than this library, so its structures may differ.
    CHECK_EQ(get("cuInit", &found, 13010, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(get("cuInit", &found, 13010, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(get("cuInit", nullptr, 2000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST("many threads, one session") {
  scenario([] {
    std::string names[16];
    std::vector<std::thread> threads;
    for (std::string& name : names) {
      threads.emplace_back([&name] {
        CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
        name = nameOf(0);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& name : names) CHECK_EQ(name, names[0]);
  });
}

TEST("a child of an initialised process has no CUDA, its parent keeps it") {
  scenario([] {
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    const auto everythingRefused = [&] {
      int count = 0;
      CHECK_EQ(DRIVER(cuInit)(0), CUDA_ERROR_NOT_INITIALIZED);
      CHECK_EQ(DRIVER(cuDeviceGetCount)(&count), CUDA_ERROR_NOT_INITIALIZED);
      CHECK_EQ(DRIVER(cuCtxGetCurrent)(&context), CUDA_ERROR_NOT_INITIALIZED);
      CHECK_EQ(DRIVER(cuCtxSynchronize)(), CUDA_ERROR_NOT_INITIALIZED);
      CHECK_EQ(DRIVER(cuDriverGetVersion)(&count), CUDA_SUCCESS);
      void* value = nullptr;
      CHECK_EQ(slot<CUresult (*)(void**, CUcontext, void*)>(table(kStorage), 2)(&value, context, &value),
               CUDA_ERROR_INVALID_CONTEXT);
    };
    CHECK_EQ(runInChild([&] {
               everythingRefused();
               CHECK_EQ(runInChild(everythingRefused), 0);
             }),
             0);
    CHECK_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
  });
}

TEST("a child of a process that had not called cuInit starts afresh") {
  scenario([] {
    symbol("cuInit");
    CHECK_EQ(runInChild([] { CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS); }), 0);
    int version = 0;
    CHECK_EQ(DRIVER(cuDriverGetVersion)(&version), CUDA_SUCCESS);  // attached, but not initialised
    int names[2];
    CHECK(::pipe(names) == 0);
    CHECK_EQ(runInChild([&] {
               CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
               const std::string name = nameOf(0);
               CHECK(::write(names[1], name.data(), name.size()) > 0);
             }),
             0);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    char theirs[100] = {};
    CHECK(::read(names[0], theirs, sizeof theirs - 1) > 0);
    CHECK(nameOf(0) != theirs);
  });
}

TEST("no GPU: why, by code, and another try") {
  scenario([] {
    ::setenv("MILLPOND_LOG", "off", 1);
    const std::string good = std::getenv("MILLPOND_WORKER");
    ::unsetenv("MILLPOND_WORKER");
    ::unsetenv("MILLPOND_CONTROLLER");
    int version = 0;
    CHECK_EQ(DRIVER(cuDriverGetVersion)(&version), CUDA_SUCCESS);
    CHECK_EQ(version, CUDA_VERSION);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_ERROR_NO_DEVICE);
    ::setenv("MILLPOND_WORKER", "carrier pigeon", 1);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_ERROR_UNKNOWN);
    ::setenv("MILLPOND_WORKER", "unix:/nowhere/data.sock", 1);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ::unsetenv("MILLPOND_WORKER");
    ::setenv("MILLPOND_CONTROLLER", "ftp://controller", 1);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_ERROR_UNKNOWN);
    ::setenv("MILLPOND_WORKER", good.c_str(), 1);
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
  });
}

TEST("a worker that names another function than the program gave has none run") {
  scenario([] {
    CHECK_EQ(DRIVER(cuInit)(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    CHECK_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(DRIVER(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    int ends[2];
    CHECK(::pipe(ends) == 0);
    CHECK(::dup2(ends[1], STDERR_FILENO) >= 0);
    // The canned worker replies with zeros: it requests the function at address 0.
    static std::atomic<bool> ran{false};
    CHECK_EQ(DRIVER(cuLaunchHostFunc)(
                 nullptr, [](void*) { ran = true; }, nullptr),
             CUDA_SUCCESS);
    std::string said;
    char chunk[512];
    while (said.find("it is not called") == std::string::npos) {
      const ssize_t n = ::read(ends[0], chunk, sizeof chunk);
      CHECK(n > 0);
      said.append(chunk, static_cast<size_t>(n));
    }
    CHECK(!ran);
  });
}

TEST("unloading it leaves it loaded") {
  scenario([] {
    void* library = ::dlopen(libraryPath, RTLD_NOW);
    CHECK(library != nullptr);
    const auto init = reinterpret_cast<decltype(&::cuInit)>(::dlsym(library, "cuInit"));
    CHECK_EQ(init(0), CUDA_SUCCESS);
    CHECK_EQ(::dlclose(library), 0);
    CHECK_EQ(init(0), CUDA_SUCCESS);
  });
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s LIBRARY\n", argv[0]);
    return 2;
  }
  libraryPath = argv[1];
  CannedWorker canned;
  worker = &canned;
  return millpond::testing::run(1, argv);
}
