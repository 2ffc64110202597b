// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

static int destroyed;
static void destroy(void* data) { __atomic_add_fetch((int*)data, 1, __ATOMIC_SEQ_CST); }

PROGRAM("refusals", "user objects before there is a context, devices that are not there, copies that an array does not hold") {
  const CUdevice first = device();
  CUuserObject object;
  SEE(cuUserObjectCreate(&object, &destroyed, destroy, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SEE(cuUserObjectCreate(&object, &destroyed, destroy, 1, 0));
  SEE(cuUserObjectCreate(&object, &destroyed, destroy, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SEE(cuUserObjectCreate(&object, &destroyed, NULL, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SEE(cuUserObjectCreate(&object, &destroyed, destroy, 0x7fffffff, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SEE(cuUserObjectCreate(&object, &destroyed, destroy, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SEE(cuUserObjectRetain(object, 1));
  SEE(cuUserObjectRelease(object, 2));
  SEE(cuUserObjectRelease(object, 1));
  CUgraph graph;
  SEE(cuGraphCreate(&graph, 0));
  SEE(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SEE(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  SEE(cuGraphReleaseUserObject(graph, object, 1));
  SEE(cuGraphDestroy(graph));

  char id[32];
  for (int length = 0; length < 16; ++length) {
    memset(id, 'x', sizeof id);
    id[31] = 0;
    const CUresult result = cuDeviceGetPCIBusId(id, length, first);
    char shape[33] = "";
    for (int i = 0; i < 31; ++i) shape[i] = id[i] == 0 ? '0' : id[i] == 'x' ? 'x' : '#';
    say("bus id of %d bytes: %s %s", length, error_name(result), shape);
  }

  CUcontext context = primary();
  const CUdevice absent[] = {-1, -2, 99};
  for (int i = 0; i < 3; ++i) {
    CUmemoryPool pool;
    size_t bytes;
    int value;
    SEE(cuDeviceGetMemPool(&pool, absent[i]));
    SEE(cuDeviceGetDefaultMemPool(&pool, absent[i]));
    SEE(cuDeviceSetMemPool(absent[i], NULL));
    SEE(cuDeviceTotalMem_v2(&bytes, absent[i]));
    SEE(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, absent[i]));
    SEE(cuDeviceGetGraphMemAttribute(absent[i], CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
    SEE(cuDeviceGraphMemTrim(absent[i]));
    SEE(cuDeviceGetPCIBusId(id, 32, absent[i]));
    SEE(cuDeviceGetUuid_v2((CUuuid*)id, absent[i]));
    SEE(cuDeviceCanAccessPeer(&value, first, absent[i]));
    SEE(cuDevicePrimaryCtxGetState(absent[i], (unsigned*)&value, &value));
    CUdeviceptr managed;
    CHECK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    if (absent[i] != -1) SEE(cuMemPrefetchAsync(managed, 4096, absent[i], NULL));
    if (absent[i] != -1) SEE(cuMemAdvise(managed, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, absent[i]));
    CHECK(cuMemFree_v2(managed));
  }
  CUdeviceptr memory = allocate(4096);
  SEE(cuMemPrefetchAsync(memory, 0, 2, NULL));
  SEE(cuMemPrefetchAsync(memory, 0, first, NULL));
  SEE(cuMemPrefetchAsync(memory, 4096, first, NULL));
  SEE(cuMemPrefetchAsync(memory, 4096, 99, NULL));

  // An array that is smaller than the copy.
  CUDA_ARRAY3D_DESCRIPTOR small = {.Width = 10, .Height = 10, .Depth = 2, .Format = CU_AD_FORMAT_SIGNED_INT32, .NumChannels = 1};
  CUarray array;
  CHECK(cuArray3DCreate_v2(&array, &small));
  static int words[1000];
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 4; ++i) {
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = words, .srcPitch = 40, .srcHeight = 10, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array, .WidthInBytes = 40, .Height = 10, .Depth = 2};
    if (i == 1) copy.Depth = 10;
    if (i == 2) copy.Height = 11;
    if (i == 3) copy.dstXInBytes = 4;
    say("copy %d to an array: %s, %s", i, error_name(cuMemcpy3D_v2(&copy)), error_name(cuMemcpy3DAsync_v2(&copy, stream)));
    CUgraphNode node;
    CHECK(cuGraphCreate(&graph, 0));
    say("in a graph: %s", error_name(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context)));
    CHECK(cuGraphDestroy(graph));
    SEE(cuStreamSynchronize(stream));
  }
  CHECK(cuArrayDestroy(array));
}
