// SPDX-License-Identifier: Apache-2.0
// Many copies in one call, and copies between devices.
#include <numeric>

#include "testing/programs/program.h"

namespace millpond::programs {
namespace {

void manyAtOnce() {
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<uint32_t> a(1000), b(500, 9), out(1000);
  std::iota(a.begin(), a.end(), 0u);
  CUdeviceptr p = 0, q = 0;
  OK(cuMemAlloc_v2(&p, 4000));
  OK(cuMemAlloc_v2(&q, 4000));
  const auto host = [](std::vector<uint32_t>& v) { return reinterpret_cast<CUdeviceptr>(v.data()); };
  CUdeviceptr to[] = {p, q, q + 2000};
  CUdeviceptr from[] = {host(a), host(b), p};
  size_t sizes[] = {4000, 2000, 2000};
  CUmemcpyAttributes attributes[2] = {};
  attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t firsts[] = {0, 2};
  // The third reads the first one's output: a batch has no order, so it is a separate batch.
  OK(cuMemcpyBatchAsync_v2(to, from, sizes, 2, attributes, firsts, 1, stream));
  OK(cuMemcpyBatchAsync_v2(to + 2, from + 2, sizes + 2, 1, attributes + 1, firsts, 1, stream));
  CUdeviceptr back[] = {host(out)};
  CUdeviceptr source[] = {q};
  size_t all[] = {4000};
  OK(cuMemcpyBatchAsync_v2(back, source, all, 1, attributes + 1, firsts, 1, stream));
  OK(cuStreamSynchronize(stream));
  REQUIRE(out[0] == 9 && out[499] == 9 && out[500] == 0 && out[999] == 499);
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync_v2(to, from, sizes, 2, attributes, firsts, 1, nullptr));
  EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync_v2(to, from, sizes, 0, attributes, firsts, 1, stream));

  CUDA_MEMCPY3D_BATCH_OP op{};
  op.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = host(a);
  op.src.op.ptr.rowLength = 100;
  op.src.op.ptr.layerHeight = 10;
  op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.dst.op.ptr.ptr = q;
  op.dst.op.ptr.rowLength = 50;
  op.dst.op.ptr.layerHeight = 10;
  op.extent = {50, 10, 1};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  OK(cuMemcpy3DBatchAsync_v2(1, &op, 0, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(out.data(), q + 48, 8));
  // The last two bytes of the first row and the first two of the second, which begins at byte 100 of the source.
  REQUIRE((out[0] & 0xffff) == 12 && out[0] >> 16 == 25);
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
  OK(cuStreamDestroy_v2(stream));
}

void betweenContexts(CUcontext context) {
  CUdeviceptr p = 0, q = 0;
  OK(cuMemAlloc_v2(&p, 4000));
  OK(cuMemAlloc_v2(&q, 4000));
  OK(cuMemsetD32_v2(p, 5, 1000));
  OK(cuMemcpyPeer(q, context, p, context, 4000));
  launchAdd(q, 1, 1000);
  OK(cuMemcpyPeerAsync(p, context, q, context, 4000, nullptr));
  requireWords(p, 6, 1000);
  EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer(q, nullptr, p, context, 4000));
  EXPECT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(context, 0));
  EXPECT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(context));
  OK(cuMemFree_v2(p));
  OK(cuMemFree_v2(q));
}

}  // namespace

void batches() {
  const CUcontext context = useDevice();
  manyAtOnce();
  betweenContexts(context);
}

}  // namespace millpond::programs
