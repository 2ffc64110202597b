// SPDX-License-Identifier: Apache-2.0
// Rarely used calls, with sensible arguments and without: the results of a driver on Linux, on such a device.
#include <unistd.h>

#include "driver.h"

static void identity(CUdevice dev) {
  char luid[8] = {0};
  unsigned nodes = 0;
  SEE(cuDeviceGetLuid(luid, &nodes, dev));
  SEE(cuDeviceGetLuid(NULL, &nodes, dev));
  SEE(cuDeviceGetLuid(luid, &nodes, 1000));
  SEE(cuDeviceGetNvSciSyncAttributes(NULL, dev, CUDA_NVSCISYNC_ATTR_SIGNAL));
  SEE(cuDeviceGetNvSciSyncAttributes(NULL, 1000, CUDA_NVSCISYNC_ATTR_SIGNAL));
  char list[512] = "";
  SEE(cuDeviceGetNvSciSyncAttributes(list, 1000, CUDA_NVSCISYNC_ATTR_SIGNAL));
  SEE(cuDeviceGetNvSciSyncAttributes(list, dev, 0));
  SEE(cuDeviceGetNvSciSyncAttributes(list, dev, 4));
  SEE(cuDeviceGetNvSciSyncAttributes(list, dev, CUDA_NVSCISYNC_ATTR_SIGNAL));
}

static void never(CUasyncNotificationInfo* info, void* data, CUasyncCallbackHandle handle) {
  (void)info;
  (void)handle;
  say("%s was told", (const char*)data);
}

static void notifications(CUdevice dev) {
  CUasyncCallbackHandle first = NULL, second = NULL;
  SEE(cuDeviceRegisterAsyncNotification(dev, never, "the first", &first));
  SEE(cuDeviceRegisterAsyncNotification(dev, never, "the second", &second));
  say("two handles: %s", yes(first != second));
  SEE(cuDeviceRegisterAsyncNotification(dev, NULL, NULL, &first));
  SEE(cuDeviceRegisterAsyncNotification(1000, never, NULL, &first));
  if (second) SEE(cuDeviceUnregisterAsyncNotification(dev, second));
  SEE(cuDeviceUnregisterAsyncNotification(dev, NULL));
}

static void see_truth(CUcoredumpSettings which, const char* name) {
  bool value = false;
  size_t size = sizeof value;
  if (SEE(cuCoredumpGetAttributeGlobal(which, &value, &size)) == CUDA_SUCCESS) say("  %s: %s, of the process", name, yes(value));
  size = sizeof value;
  if (SEE(cuCoredumpGetAttribute(which, &value, &size)) == CUDA_SUCCESS) say("  %s: %s, of the context", name, yes(value));
}

static void see_text(CUcoredumpSettings which) {
  char text[1024] = "before";
  size_t size = sizeof text;
  if (SEE(cuCoredumpGetAttributeGlobal(which, text, &size)) == CUDA_SUCCESS) say("  text: %s", text);
  size = 4;
  SEE(cuCoredumpGetAttributeGlobal(which, text, &size));
  size = sizeof text;
  SEE(cuCoredumpGetAttribute(which, text, &size));
}

static void see_flags(const char* when) {
  unsigned flags = 0;
  size_t size = sizeof flags;
  if (SEE(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size)) == CUDA_SUCCESS)
    say("  flags %s: %#x", when, flags);
}

static void core_dumps(void) {
  size_t size = 0;
  for (int which = CU_COREDUMP_ENABLE_ON_EXCEPTION; which < CU_COREDUMP_MAX; ++which) {
    size = 0;
    if (SEE(cuCoredumpGetAttributeGlobal((CUcoredumpSettings)which, NULL, &size)) == CUDA_SUCCESS)
      say("  %d: %zu bytes", which, size);
  }
  see_truth(CU_COREDUMP_ENABLE_ON_EXCEPTION, "on an exception");
  see_truth(CU_COREDUMP_TRIGGER_HOST, "of the host, too");
  see_truth(CU_COREDUMP_LIGHTWEIGHT, "lightweight");
  see_truth(CU_COREDUMP_ENABLE_USER_TRIGGER, "by the user");
  see_text(CU_COREDUMP_FILE);
  see_text(CU_COREDUMP_PIPE);
  see_flags("by default");
  bool is = true;
  size = sizeof is;
  SEE(cuCoredumpSetAttribute(CU_COREDUMP_LIGHTWEIGHT, &is, &size));
  see_flags("of what is lightweight");
  is = false;
  SEE(cuCoredumpSetAttribute(CU_COREDUMP_TRIGGER_HOST, &is, &size));
  see_flags("without the host");
  see_truth(CU_COREDUMP_TRIGGER_HOST, "of the host, too");
  SEE(cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is, &size));
  SEE(cuCoredumpSetAttribute(CU_COREDUMP_ENABLE_USER_TRIGGER, &is, &size));
  char name[] = "/tmp/dump";
  size = sizeof name;
  SEE(cuCoredumpSetAttribute(CU_COREDUMP_FILE, name, &size));
  SEE(cuCoredumpSetAttribute(CU_COREDUMP_PIPE, name, &size));
  char text[1024] = "";
  size = sizeof text;
  SEE(cuCoredumpGetAttribute(CU_COREDUMP_FILE, text, &size));
  say("  file: %s, size %zu", text, size);
  SEE(cuCoredumpGetAttribute(CU_COREDUMP_FILE, text, NULL));
  SEE(cuCoredumpGetAttribute(CU_COREDUMP_MAX, text, &size));
  SEE(cuCoredumpGetAttribute((CUcoredumpSettings)0, text, &size));
}

static void checkpoints(void) {
  CUprocessState state = CU_PROCESS_STATE_FAILED;
  if (SEE(cuCheckpointProcessGetState(getpid(), &state)) == CUDA_SUCCESS) say("  state %d", (int)state);
  SEE(cuCheckpointProcessGetState(getpid(), NULL));
  SEE(cuCheckpointProcessGetState(0, &state));
  SEE(cuCheckpointProcessUnlock(getpid(), NULL));
  SEE(cuCheckpointProcessCheckpoint(getpid(), NULL));
  SEE(cuCheckpointProcessRestore(getpid(), NULL));
}

static void libraries(void) {
  CUlibrary library;
  CHECK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
  void* function = NULL;
  SEE(cuLibraryGetUnifiedFunction(NULL, library, "fill"));
  SEE(cuLibraryGetUnifiedFunction(&function, library, NULL));
  SEE(cuLibraryGetUnifiedFunction(&function, NULL, "fill"));
  CHECK(cuLibraryUnload(library));
}

static void memory(void) {
  const CUdeviceptr data = allocate(1 << 20);
  say("decompression: %s", yes(attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK) != 0));
  CUmemDecompressParams one;
  memset(&one, 0, sizeof one);
  one.srcNumBytes = 64;
  one.dstNumBytes = 64;
  one.src = (const void*)(uintptr_t)data;
  one.dst = (void*)(uintptr_t)(data + 4096);
  one.algo = CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE;
  size_t index = 7;
  if (attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK) == 0) {
    SEE(cuMemBatchDecompressAsync(&one, 1, 0, &index, NULL));
    say("  index %s", index == SIZE_MAX ? "of none" : index == 0 ? "0" : index == 7 ? "as before" : "of another");
    SEE(cuMemBatchDecompressAsync(&one, 0, 0, NULL, NULL));
    SEE(cuMemBatchDecompressAsync(NULL, 1, 0, NULL, NULL));
    SEE(cuMemBatchDecompressAsync(&one, 1, 1, NULL, NULL));
  }
  int file = -1;
  SEE(cuMemGetHandleForAddressRange(NULL, data, 1 << 20, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  SEE(cuMemGetHandleForAddressRange(&file, data, 0, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  SEE(cuMemGetHandleForAddressRange(&file, 0, 1 << 20, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
  CHECK(cuMemFree_v2(data));
}

static void of_other_apis(void) {
  CUgraphicsResource resource = NULL;
  CUarray array;
  CUmipmappedArray mipmapped;
  CUdeviceptr address;
  size_t bytes;
  SEE(cuGraphicsUnregisterResource(NULL));
  SEE(cuGraphicsMapResources(1, &resource, NULL));
  SEE(cuGraphicsMapResources(0, NULL, NULL));
  SEE(cuGraphicsUnmapResources(1, &resource, NULL));
  SEE(cuGraphicsUnmapResources(0, NULL, NULL));
  SEE(cuGraphicsSubResourceGetMappedArray(&array, NULL, 0, 0));
  SEE(cuGraphicsResourceGetMappedMipmappedArray(&mipmapped, NULL));
  SEE(cuGraphicsResourceGetMappedPointer_v2(&address, &bytes, NULL));
  SEE(cuGraphicsResourceSetMapFlags_v2(NULL, 0));

  CUexternalSemaphore semaphore = NULL;
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer;
  memset(&buffer, 0, sizeof buffer);
  buffer.size = 4096;
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC levels;
  memset(&levels, 0, sizeof levels);
  levels.numLevels = 1;
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait;
  memset(&wait, 0, sizeof wait);
  SEE(cuDestroyExternalMemory(NULL));
  SEE(cuExternalMemoryGetMappedBuffer(&address, NULL, &buffer));
  SEE(cuExternalMemoryGetMappedMipmappedArray(&mipmapped, NULL, &levels));
  SEE(cuDestroyExternalSemaphore(NULL));
  SEE(cuSignalExternalSemaphoresAsync(NULL, NULL, 0, NULL));
  SEE(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, NULL));
  SEE(cuWaitExternalSemaphoresAsync(NULL, NULL, 0, NULL));
}

PROGRAM("unusual", "calls that hardly any program makes, and what a driver says on such a device") {
  CUcoredumpSettings which = CU_COREDUMP_LIGHTWEIGHT;
  bool value = false;
  size_t size = sizeof value;
  SEE(cuCoredumpGetAttributeGlobal(which, &value, &size));
  CUprocessState state;
  SEE(cuCheckpointProcessGetState(getpid(), &state));
  const CUdevice dev = device();
  SEE(cuCoredumpGetAttribute(which, &value, &size));
  primary();
  const struct {
    const char* name;
    void (*run)(void);
  } kParts[] = {{"core dumps", core_dumps},
                {"checkpoints", checkpoints},
                {"libraries", libraries},
                {"memory", memory},
                {"other APIs", of_other_apis}};
  say("-- identity");
  identity(dev);
  say("-- notifications");
  notifications(dev);
  for (size_t i = 0; i < sizeof kParts / sizeof *kParts; ++i) {
    say("-- %s", kParts[i].name);
    kParts[i].run();
  }
}
