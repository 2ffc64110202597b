// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

// Handles of the primary context, made while it was current.
static CUdevice gpu;
static CUcontext context;
static CUstream stream;
static CUevent event, timed;
static CUdeviceptr memory;
static CUmodule module;
static CUfunction function;
static CUlibrary library;
static CUkernel in_library;
static CUmemoryPool pool;
static CUarray array;
static void* pinned;
static CUgraphExec executable;
static CUtexObject texture;
static CUmipmappedArray levels;
static CUdeviceptr managed;
static CUlinkState link;
static char registered[4096] __attribute__((aligned(4096)));

static void streams(void) {
  CUstream made = NULL;
  if (SEE(cuStreamCreate(&made, 0)) == CUDA_SUCCESS) CHECK(cuStreamDestroy_v2(made));
  if (SEE(cuStreamCreateWithPriority(&made, 0, 0)) == CUDA_SUCCESS) CHECK(cuStreamDestroy_v2(made));
  SEE(cuStreamQuery(stream));
  SEE(cuStreamSynchronize(stream));
  SEE(cuStreamQuery(NULL));
  SEE(cuStreamSynchronize(NULL));
  SEE(cuStreamQuery(CU_STREAM_LEGACY));
  SEE(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  unsigned flags = 0;
  int number = 0;
  unsigned long long id = 0;
  CUcontext of = NULL;
  CUgreenCtx green = NULL;
  CUdevice on = 0;
  SEE(cuStreamGetFlags(stream, &flags));
  SEE(cuStreamGetFlags(NULL, &flags));
  SEE(cuStreamGetPriority(stream, &number));
  SEE(cuStreamGetPriority(NULL, &number));
  SEE(cuStreamGetId(stream, &id));
  SEE(cuStreamGetId(NULL, &id));
  SEE(cuStreamGetCtx(stream, &of));
  say("its context: %s", yes(of == context));
  SEE(cuStreamGetCtx(NULL, &of));
  SEE(cuStreamGetCtx_v2(stream, &of, &green));
  SEE(cuStreamGetDevice(stream, &on));
  SEE(cuStreamGetDevice(NULL, &on));
  CUstreamAttrValue value;
  memset(&value, 0, sizeof value);
  SEE(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  say("policy: %d", (int)value.syncPolicy);
  SEE(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  SEE(cuStreamGetAttribute(NULL, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
  SEE(cuStreamCopyAttributes(stream, stream));
  SEE(cuStreamGetGreenCtx(stream, &green));
}

static void on_host(void* seen) { ++*(int*)seen; }
static void on_stream(CUstream of, CUresult status, void* seen) {
  (void)of;
  if (status == CUDA_SUCCESS) ++*(int*)seen;
}

static void events(void) {
  CUevent made = NULL;
  float milliseconds = 0;
  int seen = 0;
  if (SEE(cuEventCreate(&made, 0)) == CUDA_SUCCESS) CHECK(cuEventDestroy_v2(made));
  SEE(cuEventRecord(event, stream));
  SEE(cuEventRecordWithFlags(event, stream, 0));
  SEE(cuEventRecord(timed, NULL));
  SEE(cuEventRecord(timed, CU_STREAM_PER_THREAD));
  SEE(cuEventSynchronize(event));
  SEE(cuEventQuery(event));
  SEE(cuEventElapsedTime_v2(&milliseconds, event, timed));
  SEE(cuStreamWaitEvent(stream, event, 0));
  SEE(cuStreamWaitEvent(NULL, event, 0));
  SEE(cuLaunchHostFunc(stream, on_host, &seen));
  SEE(cuLaunchHostFunc(NULL, on_host, &seen));
  SEE(cuStreamAddCallback(stream, on_stream, &seen, 0));
  SEE(cuStreamSynchronize(stream));
  say("called: %d", seen);
  SEE(cuStreamWriteValue32_v2(stream, memory, 7, 0));
  SEE(cuStreamWaitValue32_v2(stream, memory, 7, CU_STREAM_WAIT_VALUE_EQ));
  SEE(cuStreamWriteValue32_v2(NULL, memory, 7, 0));
  CUstreamBatchMemOpParams operation;
  memset(&operation, 0, sizeof operation);
  operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = memory;
  SEE(cuStreamBatchMemOp_v2(stream, 1, &operation, 0));
  SEE(cuStreamSynchronize(stream));
}

static void copies(void) {
  char bytes[64];
  memset(bytes, 3, sizeof bytes);
  SEE(cuMemcpyHtoD_v2(memory, bytes, 16));
  SEE(cuMemcpyDtoH_v2(bytes, memory, 16));
  SEE(cuMemcpyDtoD_v2(memory, memory + 64, 16));
  SEE(cuMemcpy(memory, memory + 64, 16));
  SEE(cuMemcpyHtoDAsync_v2(memory, bytes, 16, stream));
  SEE(cuMemcpyDtoHAsync_v2(pinned, memory, 16, stream));
  SEE(cuMemcpyDtoDAsync_v2(memory, memory + 64, 16, stream));
  SEE(cuMemcpyAsync(memory, memory + 64, 16, stream));
  SEE(cuMemcpyAsync(memory, memory + 64, 16, NULL));
  SEE(cuMemcpyHtoDAsync_v2(memory, bytes, 16, NULL));
  SEE(cuMemcpyPeer(memory, context, memory + 64, context, 16));
  SEE(cuMemcpyPeerAsync(memory, context, memory + 64, context, 16, stream));
  SEE(cuMemsetD8_v2(memory, 1, 16));
  SEE(cuMemsetD32_v2(memory, 1, 4));
  SEE(cuMemsetD8Async(memory, 1, 16, stream));
  SEE(cuMemsetD32Async(memory, 1, 4, NULL));
  SEE(cuMemsetD2D8_v2(memory, 8, 1, 8, 2));
  SEE(cuMemsetD2D8Async(memory, 8, 1, 8, 2, stream));
  CUDA_MEMCPY2D plane;
  memset(&plane, 0, sizeof plane);
  plane.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  plane.srcDevice = memory + 64;
  plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  plane.dstDevice = memory;
  plane.WidthInBytes = 8;
  plane.Height = 1;
  SEE(cuMemcpy2D_v2(&plane));
  SEE(cuMemcpy2DUnaligned_v2(&plane));
  SEE(cuMemcpy2DAsync_v2(&plane, stream));
  CUDA_MEMCPY3D box;
  memset(&box, 0, sizeof box);
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = memory + 64;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.dstDevice = memory;
  box.WidthInBytes = 8;
  box.Height = box.Depth = 1;
  SEE(cuMemcpy3D_v2(&box));
  SEE(cuMemcpy3DAsync_v2(&box, stream));
  SEE(cuMemcpyHtoA_v2(array, 0, bytes, 16));
  SEE(cuMemcpyAtoH_v2(bytes, array, 0, 16));
  SEE(cuMemcpyHtoAAsync_v2(array, 0, bytes, 16, stream));
  SEE(cuStreamSynchronize(stream));
}

static void allocations(void) {
  CUdeviceptr made = 0, base = 0;
  void* host = NULL;
  size_t bytes = 0, free_bytes = 0;
  unsigned flags = 0;
  if (SEE(cuMemAlloc_v2(&made, 64)) == CUDA_SUCCESS) SEE(cuMemFree_v2(made));
  if (SEE(cuMemAllocPitch_v2(&made, &bytes, 64, 2, 4)) == CUDA_SUCCESS) SEE(cuMemFree_v2(made));
  if (SEE(cuMemAllocManaged(&made, 64, CU_MEM_ATTACH_GLOBAL)) == CUDA_SUCCESS) SEE(cuMemFree_v2(made));
  if (SEE(cuMemAllocHost_v2(&host, 64)) == CUDA_SUCCESS) SEE(cuMemFreeHost(host));
  if (SEE(cuMemHostAlloc(&host, 64, 0)) == CUDA_SUCCESS) SEE(cuMemFreeHost(host));
  static char pages[8192] __attribute__((aligned(4096)));
  if (SEE(cuMemHostRegister_v2(pages, 4096, 0)) == CUDA_SUCCESS) SEE(cuMemHostUnregister(pages));
  SEE(cuMemHostGetDevicePointer_v2(&made, pinned, 0));
  SEE(cuMemHostGetFlags(&flags, pinned));
  SEE(cuMemGetAddressRange_v2(&base, &bytes, memory));
  SEE(cuMemGetInfo_v2(&free_bytes, &bytes));
  CUmemorytype type = 0;
  SEE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  CUcontext of = NULL;
  SEE(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
  SEE(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)&flags));
  int on = 1;
  SEE(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  on = 0;
  SEE(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
  SEE(cuMemAllocAsync(&made, 64, NULL));
  if (SEE(cuMemAllocAsync(&made, 64, stream)) == CUDA_SUCCESS) SEE(cuMemFreeAsync(made, stream));
  if (SEE(cuMemAllocFromPoolAsync(&made, 64, pool, stream)) == CUDA_SUCCESS) SEE(cuMemFreeAsync(made, stream));
  unsigned long long threshold = 0;
  SEE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  SEE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  SEE(cuMemPoolTrimTo(pool, 0));
  CUmemoryPool found = NULL;
  SEE(cuDeviceGetDefaultMemPool(&found, gpu));
  SEE(cuDeviceGetMemPool(&found, gpu));
  CUmemPoolProps properties;
  memset(&properties, 0, sizeof properties);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  if (SEE(cuMemPoolCreate(&found, &properties)) == CUDA_SUCCESS) SEE(cuMemPoolDestroy(found));
  CUDA_ARRAY_DESCRIPTOR shape = {.Width = 16, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
  CUarray other = NULL;
  if (SEE(cuArrayCreate_v2(&other, &shape)) == CUDA_SUCCESS) SEE(cuArrayDestroy(other));
  SEE(cuArrayGetDescriptor_v2(&shape, array));
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC sampling;
  memset(&resource, 0, sizeof resource);
  memset(&sampling, 0, sizeof sampling);
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUtexObject other_texture = 0;
  SEE(cuTexObjectCreate(&other_texture, &resource, &sampling, NULL));
  SEE(cuTexObjectGetResourceDesc(&resource, texture));
  SEE(cuMipmappedArrayGetLevel(&other, levels, 0));
  SEE(cuMemAdvise_v2(managed, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, properties.location));
  SEE(cuMemPrefetchAsync_v2(managed, 4096, properties.location, 0, stream));
  SEE(cuMemPrefetchAsync_v2(managed, 4096, properties.location, 0, NULL));
  SEE(cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_GLOBAL));
  int mostly = 0;
  SEE(cuMemRangeGetAttribute(&mostly, sizeof mostly, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, 4096));
  CUipcMemHandle shared;
  SEE(cuIpcGetMemHandle(&shared, memory));
}

static void virtual_memory(void) {
  CUmemAllocationProp properties;
  memset(&properties, 0, sizeof properties);
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t unit = 0;
  SEE(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  if (SEE(cuMemAddressReserve(&at, unit, 0, 0, 0)) != CUDA_SUCCESS) return;
  if (SEE(cuMemCreate(&handle, unit, &properties, 0)) != CUDA_SUCCESS) return;
  SEE(cuMemMap(at, unit, 0, handle, 0));
  CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SEE(cuMemSetAccess(at, unit, &access, 1));
  unsigned long long rights = 0;
  SEE(cuMemGetAccess(&rights, &properties.location, at));
  SEE(cuMemsetD8Async(at, 1, 16, stream));
  SEE(cuStreamSynchronize(stream));
  SEE(cuMemUnmap(at, unit));
  SEE(cuMemRelease(handle));
  SEE(cuMemAddressFree(at, unit));
}

static void code(void) {
  CUmodule loaded = NULL;
  CUfunction found = NULL;
  CUkernel kernel_found = NULL;
  CUlibrary library_loaded = NULL;
  CUdeviceptr at = 0;
  size_t bytes = 0;
  int value = 0;
  const char* name = NULL;
  if (SEE(cuModuleLoadData(&loaded, kernels_ptx)) == CUDA_SUCCESS) SEE(cuModuleUnload(loaded));
  SEE(cuModuleGetFunction(&found, module, "fill"));
  SEE(cuModuleGetGlobal_v2(&at, &bytes, module, "counter"));
  unsigned count = 0;
  SEE(cuModuleGetFunctionCount(&count, module));
  CUmoduleLoadingMode mode;
  SEE(cuModuleGetLoadingMode(&mode));
  SEE(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
  SEE(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024));
  SEE(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1));
  CUmodule of = NULL;
  SEE(cuFuncGetModule(&of, function));
  SEE(cuFuncGetName(&name, function));
  CUfunctionLoadingState state;
  SEE(cuFuncIsLoaded(&state, function));
  SEE(cuFuncLoad(function));
  if (SEE(cuLibraryLoadData(&library_loaded, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0)) == CUDA_SUCCESS) {
    SEE(cuLibraryGetKernel(&kernel_found, library_loaded, "fill"));
    SEE(cuKernelGetFunction(&found, kernel_found));
    SEE(cuLibraryGetModule(&of, library_loaded));
    SEE(cuLibraryGetGlobal(&at, &bytes, library_loaded, "counter"));
    SEE(cuLibraryUnload(library_loaded));
  }
  SEE(cuKernelGetFunction(&found, in_library));
  SEE(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, in_library, gpu));
  SEE(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, in_library, gpu));
  SEE(cuKernelGetName(&name, in_library));
  size_t offset = 0;
  SEE(cuFuncGetParamInfo(function, 0, &offset, &bytes));
  SEE(cuKernelGetParamInfo(in_library, 0, &offset, &bytes));
  CUlinkState other_link = NULL;
  SEE(cuLinkCreate_v2(0, NULL, NULL, &other_link));
  SEE(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, (void*)kernels_ptx, kernels_ptx_size, "kernels", 0, NULL, NULL));
  void* image = NULL;
  SEE(cuLinkComplete(link, &image, &bytes));
  int blocks = 0, threads = 0;
  SEE(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 0));
  SEE(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, function, NULL, 0, 0));
  SEE(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 1, 128));
}

static void launches(void) {
  int value = 5;
  unsigned n = 4;
  void* parameters[] = {&memory, &value, &n};
  SEE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
  SEE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
  SEE(cuLaunchKernel((CUfunction)in_library, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
  SEE(cuLaunchKernel((CUfunction)in_library, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
  SEE(cuLaunchCooperativeKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters));
  CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1};
  config.hStream = stream;
  SEE(cuLaunchKernelEx(&config, function, parameters, NULL));
  config.hStream = NULL;
  SEE(cuLaunchKernelEx(&config, function, parameters, NULL));
  SEE(cuStreamSynchronize(stream));
}

static void graphs(void) {
  CUgraph graph = NULL, copy = NULL;
  CUgraphNode empty = NULL, launched = NULL, set = NULL;
  int value = 5;
  unsigned n = 4;
  void* parameters[] = {&memory, &value, &n};
  if (SEE(cuGraphCreate(&graph, 0)) != CUDA_SUCCESS) return;
  SEE(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
  CUDA_KERNEL_NODE_PARAMS node;
  memset(&node, 0, sizeof node);
  node.kern = in_library;
  node.ctx = context;
  node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
  node.blockDimX = 32;
  node.kernelParams = parameters;
  SEE(cuGraphAddKernelNode_v2(&launched, graph, NULL, 0, &node));
  CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory, .value = 1, .elementSize = 4, .width = 1, .height = 1};
  SEE(cuGraphAddMemsetNode(&set, graph, NULL, 0, &fill, context));
  size_t count = 0;
  SEE(cuGraphGetNodes(graph, NULL, &count));
  say("nodes: %zu", count);
  SEE(cuGraphClone(&copy, graph));
  if (copy) SEE(cuGraphDestroy(copy));
  CUgraphExec other = NULL;
  SEE(cuGraphInstantiateWithFlags(&other, graph, 0));
  SEE(cuGraphUpload(executable, stream));
  SEE(cuGraphLaunch(executable, stream));
  SEE(cuGraphLaunch(executable, NULL));
  SEE(cuStreamSynchronize(stream));
  SEE(cuGraphDestroy(graph));
  CUstreamCaptureStatus status;
  SEE(cuStreamIsCapturing(stream, &status));
  SEE(cuStreamIsCapturing(NULL, &status));
  if (SEE(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED)) == CUDA_SUCCESS) {
    SEE(cuMemsetD8Async(memory, 1, 16, stream));
    SEE(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    SEE(cuStreamEndCapture(stream, &graph));
    count = 0;
    if (graph) CHECK(cuGraphGetNodes(graph, NULL, &count));
    say("captured: %zu", count);
    if (graph) SEE(cuGraphDestroy(graph));
  }
}

static void contexts(void) {
  unsigned flags = 0, version = 0;
  unsigned long long id = 0;
  size_t limit = 0;
  int least = 0, greatest = 0;
  CUfunc_cache cache;
  CUdevice on;
  SEE(cuCtxSynchronize());
  SEE(cuCtxSynchronize_v2(context));
  SEE(cuCtxGetDevice(&on));
  SEE(cuCtxGetDevice_v2(&on, context));
  SEE(cuCtxGetFlags(&flags));
  SEE(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  SEE(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  SEE(cuCtxGetCacheConfig(&cache));
  SEE(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  SEE(cuCtxGetStreamPriorityRange(&least, &greatest));
  SEE(cuCtxGetApiVersion(context, &version));
  SEE(cuCtxGetApiVersion(NULL, &version));
  SEE(cuCtxGetId(context, &id));
  SEE(cuCtxGetId(NULL, &id));
  SEE(cuCtxRecordEvent(context, event));
  SEE(cuCtxWaitEvent(context, event));
  CUdevResource resource;
  SEE(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
  SEE(cuProfilerStart());
  SEE(cuProfilerStop());
}

static void ends(void) {
  SEE(cuGraphExecDestroy(executable));
  SEE(cuTexObjectDestroy(texture));
  SEE(cuMipmappedArrayDestroy(levels));
  SEE(cuMemFree_v2(managed));
  SEE(cuMemFree_v2(0));
  SEE(cuLinkDestroy(link));
  SEE(cuMemHostUnregister(registered));
  SEE(cuMemFree_v2(memory));
  SEE(cuMemFreeHost(pinned));
  SEE(cuMemPoolDestroy(pool));
  SEE(cuArrayDestroy(array));
  SEE(cuEventDestroy_v2(event));
  SEE(cuEventDestroy_v2(timed));
  SEE(cuStreamDestroy_v2(stream));
  SEE(cuModuleUnload(module));
  SEE(cuLibraryUnload(library));
}

/// Objects created from an array, a graph and images.
static void make_more(CUarray of) {
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC sampling;
  memset(&resource, 0, sizeof resource);
  memset(&sampling, 0, sizeof sampling);
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = of;
  CHECK(cuTexObjectCreate(&texture, &resource, &sampling, NULL));
  CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 16, .Height = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  CHECK(cuMipmappedArrayCreate(&levels, &shape, 2));
  CHECK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  CHECK(cuLinkCreate_v2(0, NULL, NULL, &link));
  CHECK(cuMemHostRegister_v2(registered, sizeof registered, 0));
  CUgraph graph;
  CUgraphNode node;
  CUDA_MEMSET_NODE_PARAMS fill = {.dst = memory, .value = 1, .elementSize = 4, .width = 1, .height = 1};
  CHECK(cuGraphCreate(&graph, 0));
  CHECK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, context));
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  CHECK(cuGraphDestroy(graph));
}

PROGRAM("contextless", "what a thread without a current context may do with the handles of a context") {
  context = primary();
  gpu = device();
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuEventCreate(&event, 0));
  CHECK(cuEventCreate(&timed, 0));
  CHECK(cuEventRecord(timed, stream));
  memory = allocate(4096);
  module = kernels();
  function = kernel(module, "fill");
  CHECK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
  CHECK(cuLibraryGetKernel(&in_library, library, "fill"));
  CUmemPoolProps properties;
  memset(&properties, 0, sizeof properties);
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CHECK(cuMemPoolCreate(&pool, &properties));
  CUDA_ARRAY_DESCRIPTOR shape = {.Width = 16, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
  CHECK(cuArrayCreate_v2(&array, &shape));
  CHECK(cuMemHostAlloc(&pinned, 4096, 0));
  make_more(array);
  CHECK(cuCtxSynchronize());
  CHECK(cuCtxSetCurrent(NULL));
  streams();
  events();
  copies();
  allocations();
  virtual_memory();
  code();
  launches();
  graphs();
  contexts();
  ends();
}
