// SPDX-License-Identifier: Apache-2.0
// Calls that the client library answers by itself, in place of a driver: core dumps, notifications, checkpoints, and
// handles of other APIs.
#include <array>
#include <cstring>
#include <string>

#include "testing/remoted.h"

using namespace millpond::testing;

namespace {

void throughMillpond(const std::function<void()>& program) { CHECK_EQ(runProgram(Way::kSharedMemory, program), 0); }

template <typename T>
T dumpAttribute(CUcoredumpSettings which, bool ofProcess) {
  T value{};
  size_t size = sizeof value;
  OK((ofProcess ? CU(cuCoredumpGetAttributeGlobal) : CU(cuCoredumpGetAttribute))(which, &value, &size));
  return value;
}
std::string dumpFile(bool ofProcess) {
  const auto text = dumpAttribute<std::array<char, 1024>>(CU_COREDUMP_FILE, ofProcess);
  return text.data();
}
CUresult setDump(CUcoredumpSettings which, bool value) {
  size_t size = sizeof value;
  return CU(cuCoredumpSetAttribute)(which, &value, &size);
}

}  // namespace

TEST("core dumps: defaults, what was set for the process and for a context, and no dump") {
  throughMillpond([] {
    // Before cuInit: of the process alone.
    CHECK(!dumpAttribute<bool>(CU_COREDUMP_ENABLE_ON_EXCEPTION, true));
    CHECK(dumpAttribute<bool>(CU_COREDUMP_TRIGGER_HOST, true));
    bool value = false;
    size_t size = sizeof value;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, CU(cuCoredumpGetAttribute)(CU_COREDUMP_LIGHTWEIGHT, &value, &size));
    begin();
    CHECK_EQ(dumpFile(false), "");
    ::setenv("CUDA_COREDUMP_FILE", "/tmp/told", 1);
    CHECK_EQ(dumpFile(false), "/tmp/told");
    char name[] = "/tmp/all";
    size = sizeof name;
    OK(CU(cuCoredumpSetAttributeGlobal)(CU_COREDUMP_FILE, name, &size));
    CHECK_EQ(dumpFile(false), "/tmp/all");
    std::memcpy(name, "/tmp/one", sizeof name);
    OK(CU(cuCoredumpSetAttribute)(CU_COREDUMP_FILE, name, &size));
    CHECK_EQ(dumpFile(false), "/tmp/one");
    CHECK_EQ(dumpFile(true), "/tmp/all");

    CHECK_EQ(dumpAttribute<unsigned>(CU_COREDUMP_GENERATION_FLAGS, false), 0u);
    OK(setDump(CU_COREDUMP_LIGHTWEIGHT, true));
    OK(setDump(CU_COREDUMP_TRIGGER_HOST, false));
    CHECK_EQ(dumpAttribute<unsigned>(CU_COREDUMP_GENERATION_FLAGS, false),
             static_cast<unsigned>(CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT));
    CHECK(!dumpAttribute<bool>(CU_COREDUMP_TRIGGER_HOST, false));
    CHECK(dumpAttribute<bool>(CU_COREDUMP_TRIGGER_HOST, true));
    OK(setDump(CU_COREDUMP_LIGHTWEIGHT, false));
    CHECK(!dumpAttribute<bool>(CU_COREDUMP_LIGHTWEIGHT, false));

    OK(setDump(CU_COREDUMP_ENABLE_ON_EXCEPTION, false));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, setDump(CU_COREDUMP_ENABLE_ON_EXCEPTION, true));
    // These are of the process alone.
    FAILS(CUDA_ERROR_INVALID_VALUE, setDump(CU_COREDUMP_ENABLE_USER_TRIGGER, false));
    size = 1024;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCoredumpGetAttribute)(CU_COREDUMP_PIPE, nullptr, &size));
    size = 0;
    OK(CU(cuCoredumpGetAttribute)(CU_COREDUMP_FILE, nullptr, &size));
    CHECK_EQ(size, 1024u);
    std::array<char, 8> small{};
    size = small.size();
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCoredumpGetAttribute)(CU_COREDUMP_FILE, small.data(), &size));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCoredumpGetAttribute)(CU_COREDUMP_MAX, small.data(), &size));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCoredumpGetAttribute)(CU_COREDUMP_FILE, small.data(), nullptr));
    const std::string longName(1024, 'x');
    size = longName.size();
    FAILS(CUDA_ERROR_INVALID_VALUE,
          CU(cuCoredumpSetAttribute)(CU_COREDUMP_FILE, const_cast<char*>(longName.data()), &size));
  });
}

TEST("what was set for a context ends with it") {
  throughMillpond([] {
    begin();
    for (int round = 0; round < 2; ++round) {
      CUcontext context = nullptr;
      OK(CU(cuCtxCreate_v2)(&context, 0, 0));
      CHECK_EQ(dumpAttribute<unsigned>(CU_COREDUMP_GENERATION_FLAGS, false), 0u);
      OK(setDump(CU_COREDUMP_LIGHTWEIGHT, true));
      CHECK(dumpAttribute<bool>(CU_COREDUMP_LIGHTWEIGHT, false));
      OK(CU(cuCtxDestroy_v2)(context));
    }
  });
}

TEST("notifications are registered once each, and taken back by who registered them") {
  throughMillpond([] {
    begin();
    const CUasyncCallback never = [](CUasyncNotificationInfo*, void*, CUasyncCallbackHandle) {};
    CUasyncCallbackHandle first = nullptr, second = nullptr;
    OK(CU(cuDeviceRegisterAsyncNotification)(0, never, nullptr, &first));
    OK(CU(cuDeviceRegisterAsyncNotification)(0, never, nullptr, &second));
    CHECK(first && second && first != second);
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceRegisterAsyncNotification)(0, nullptr, nullptr, &first));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceRegisterAsyncNotification)(0, never, nullptr, nullptr));
    FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceRegisterAsyncNotification)(9, never, nullptr, &first));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceUnregisterAsyncNotification)(1, first));
    OK(CU(cuDeviceUnregisterAsyncNotification)(0, first));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceUnregisterAsyncNotification)(0, first));
    OK(CU(cuDeviceUnregisterAsyncNotification)(0, second));
  });
}

TEST("this process runs, is not locked, and others are none of its business") {
  throughMillpond([] {
    begin();
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    OK(CU(cuCheckpointProcessGetState)(::getpid(), &state));
    CHECK(state == CU_PROCESS_STATE_RUNNING);
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuCheckpointProcessGetState)(::getpid(), nullptr));
    FAILS(CUDA_ERROR_OPERATING_SYSTEM, CU(cuCheckpointProcessGetState)(0, &state));
    FAILS(CUDA_ERROR_OPERATING_SYSTEM, CU(cuCheckpointProcessUnlock)(1 << 30, nullptr));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuCheckpointProcessGetState)(::getppid(), &state));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, CU(cuCheckpointProcessUnlock)(::getpid(), nullptr));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, CU(cuCheckpointProcessCheckpoint)(::getpid(), nullptr));
    FAILS(CUDA_ERROR_ILLEGAL_STATE, CU(cuCheckpointProcessRestore)(::getpid(), nullptr));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuCheckpointProcessLock)(::getpid(), nullptr));
  });
}

TEST("a device has no names of other platforms, and no engine for what is compressed") {
  throughMillpond([] {
    begin();
    char luid[8] = {0};
    unsigned nodes = 0;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuDeviceGetLuid)(luid, &nodes, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceGetLuid)(luid, nullptr, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGetLuid)(luid, &nodes, 1000));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuDeviceGetNvSciSyncAttributes)(nullptr, 1000, 1));
    FAILS(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGetNvSciSyncAttributes)(luid, 1000, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceGetNvSciSyncAttributes)(luid, 0, 4));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuDeviceGetNvSciSyncAttributes)(luid, 0, 3));
    CUmemDecompressParams one{};
    FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuMemBatchDecompressAsync)(&one, 1, 0, nullptr, nullptr));
  });
}

TEST("what cannot be registered or imported is unknown, and no unified function has a name") {
  throughMillpond([] {
    begin();
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuGraphicsUnregisterResource)(nullptr));
    CUgraphicsResource resource = nullptr;
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuGraphicsMapResources)(1, &resource, nullptr));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuImportExternalMemory)(nullptr, nullptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphicsMapResources)(0, nullptr, nullptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDestroyExternalMemory)(nullptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuDestroyExternalSemaphore)(nullptr));
    CUlibrary library = nullptr;
    OK(CU(cuLibraryLoadData)(&library, ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n",
                             nullptr, nullptr, 0, nullptr, nullptr, 0));
    void* function = nullptr;
    FAILS(CUDA_ERROR_NOT_FOUND, CU(cuLibraryGetUnifiedFunction)(&function, library, "k"));
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuLibraryGetUnifiedFunction)(nullptr, library, "k"));
    FAILS(CUDA_ERROR_INVALID_HANDLE, CU(cuLibraryGetUnifiedFunction)(&function, nullptr, "k"));
    int isPromised = 1;
    OK(CU(cuDeviceGetAttribute)(&isPromised, CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0));
    CHECK_EQ(isPromised, 0);
    CUdeviceptr memory = 0;
    OK(CU(cuMemAlloc_v2)(&memory, 1 << 20));
    int file = -1;
    const auto kind = CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuMemGetHandleForAddressRange)(nullptr, memory, 1 << 20, kind, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuMemGetHandleForAddressRange)(&file, memory, 1 << 20, kind, 0));
    OK(CU(cuDeviceGetAttribute)(&isPromised, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
    CHECK_EQ(isPromised, 0);
  });
}
