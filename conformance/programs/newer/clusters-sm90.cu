// SPDX-License-Identifier: Apache-2.0
#include <cooperative_groups.h>

#include "conformance.h"

namespace cg = cooperative_groups;

static __global__ void exchange(int* out) {
  __shared__ int mine;
  const cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) mine = static_cast<int>(cluster.block_rank()) * 10 + static_cast<int>(blockIdx.x);
  cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  const int* theirs = cluster.map_shared_rank(&mine, next);
  if (threadIdx.x == 0) out[blockIdx.x] = *theirs * 100 + static_cast<int>(cluster.num_blocks());
  cluster.sync();
}

static __global__ void __cluster_dims__(2, 1, 1) fixed(int* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<int>(cg::this_cluster().block_rank());
}

PROGRAM("clusters", "clusters of blocks that share their memory: sizes, occupancy, what is wrong") {
  conformance::needCapability(9, 0);
  conformance::Device<int> out(16);
  for (const unsigned size : {1u, 2u, 4u, 8u}) {
    out.clear();
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = size;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(16);
    config.blockDim = dim3(64);
    config.attrs = &attribute;
    config.numAttrs = 1;
    SEE(cudaLaunchKernelEx(&config, exchange, out.get()));
    conformance::list("exchanged", out.take());
    int clusters = 0;
    SEE(cudaOccupancyMaxActiveClusters(&clusters, exchange, &config));
    say("some fit: %s", clusters > 0 ? "yes" : "no");
  }
  int most = 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(16);
  config.blockDim = dim3(64);
  CHECK(cudaOccupancyMaxPotentialClusterSize(&most, exchange, &config));
  say("largest portable size or more: %s", most >= 8 ? "yes" : "no");
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = 3;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  SEE(cudaLaunchKernelEx(&config, exchange, out.get()));
  cudaGetLastError();
  attribute.val.clusterDim.x = 16;
  SEE(cudaLaunchKernelEx(&config, exchange, out.get()));
  cudaGetLastError();
  SEE(cudaFuncSetAttribute(exchange, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  fixed<<<4, 32>>>(out);
  SEE(cudaGetLastError());
  conformance::list("fixed", out.take());
  fixed<<<3, 32>>>(out);
  SEE(cudaGetLastError());
  SEE(cudaDeviceSynchronize());
}
