// SPDX-License-Identifier: Apache-2.0
#include <cooperative_groups.h>

#include "conformance.h"

namespace cg = cooperative_groups;

static __global__ void phases(int* data, int* out, int n) {
  const cg::grid_group grid = cg::this_grid();
  const int i = static_cast<int>(grid.thread_rank());
  for (int step = 1; step < n; step *= 2) {
    const int value = i >= step && i < n ? data[i - step] : 0;
    grid.sync();
    if (i < n) data[i] += value;
    grid.sync();
  }
  if (i == 0) *out = data[n - 1] + static_cast<int>(grid.size()) * 0 + static_cast<int>(grid.is_valid());
}

static __global__ void groups(int* out) {
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  int value = static_cast<int>(block.thread_rank());
  for (unsigned offset = tile.size() / 2; offset > 0; offset /= 2) value += tile.shfl_down(value, offset);
  if (tile.thread_rank() == 0) out[block.thread_rank() / 8] = value;
  block.sync();
  const cg::coalesced_group active = cg::coalesced_threads();
  if (block.thread_rank() == 33) out[30] = static_cast<int>(active.size());
  if (block.thread_rank() % 2 == 1) {
    const cg::coalesced_group odd = cg::coalesced_threads();
    if (odd.thread_rank() == 3 && block.thread_rank() < 32) out[31] = static_cast<int>(block.thread_rank() * 100 + odd.size());
  }
}

PROGRAM("cooperative", "grids whose blocks wait for each other, cooperative groups, what is too large") {
  if (!conformance::attribute(cudaDevAttrCooperativeLaunch)) conformance::skip("no cooperative launch");
  int n = 1024;
  std::vector<int> ones(static_cast<size_t>(n), 1);
  conformance::Device<int> data(ones), out(32);
  int* dataPointer = data;
  int* outPointer = out;
  void* parameters[] = {&dataPointer, &outPointer, &n};
  SEE(cudaLaunchCooperativeKernel(phases, dim3(8), dim3(128), parameters, 0, nullptr));
  SEE(cudaDeviceSynchronize());
  say("scanned: %d", out.take()[0]);
  conformance::list("scan", std::vector<int>{data.take()[0], data.take()[500], data.take()[1023]});
  out.clear();
  groups<<<1, 64>>>(out);
  conformance::list("groups", out.take());
  int perMultiprocessor = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&perMultiprocessor, phases, 1024, 0));
  const int most = perMultiprocessor * conformance::attribute(cudaDevAttrMultiProcessorCount);
  SEE(cudaLaunchCooperativeKernel(phases, dim3(static_cast<unsigned>(most) + 1), dim3(1024), parameters, 0, nullptr));
  cudaGetLastError();
  SEE(cudaDeviceSynchronize());
}
