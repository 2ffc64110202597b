// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

static void check(const char* what, const std::vector<unsigned>& values, unsigned step) {
  size_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) wrong += values[i] != static_cast<unsigned>(i) * step;
  say("%s: %zu wrong of %zu", what, wrong, values.size());
}

PROGRAM("copies", "copies of every direction, kind and size, sets of every form, order with streams") {
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{65537}, size_t{3000000}}) {
    std::vector<unsigned> host(count);
    for (size_t i = 0; i < count; ++i) host[i] = static_cast<unsigned>(i) * 3;
    conformance::Device<unsigned> a(host), b(count);
    CHECK(cudaMemcpy(b, a, a.bytes(), cudaMemcpyDeviceToDevice));
    check("through two buffers", b.take(), 3);
    unsigned* pinned = nullptr;
    CHECK(cudaMallocHost(&pinned, count * sizeof(unsigned)));
    CHECK(cudaMemcpyAsync(pinned, b, b.bytes(), cudaMemcpyDefault));
    CHECK(cudaStreamSynchronize(nullptr));
    check("to pinned memory", std::vector<unsigned>(pinned, pinned + count), 3);
    std::vector<unsigned> other(count);
    CHECK(cudaMemcpy(other.data(), pinned, count * sizeof(unsigned), cudaMemcpyHostToHost));
    check("host to host", other, 3);
    CHECK(cudaFreeHost(pinned));
  }
  // Bytes at odd addresses.
  conformance::Device<unsigned char> bytes(1000);
  CHECK(cudaMemset(bytes, 0x5a, 1000));
  const char text[] = "seventeen letters";
  CHECK(cudaMemcpy(bytes + 3, text, 17, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(bytes + 501, bytes + 3, 17, cudaMemcpyDeviceToDevice));
  char back[20] = {};
  CHECK(cudaMemcpy(back, bytes + 501, 18, cudaMemcpyDeviceToHost));
  say("odd addresses: %.17s %x", back, static_cast<unsigned>(back[17]));
  // Many copies into pageable memory, in order.
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  conformance::Device<unsigned> cell(1);
  std::vector<unsigned> seen(50);
  for (unsigned i = 0; i < 50; ++i) {
    const unsigned value = i * i;
    CHECK(cudaMemcpyAsync(cell, &value, sizeof value, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(&seen[i], cell, sizeof value, cudaMemcpyDeviceToHost, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
  conformance::list("in order", seen);
  CHECK(cudaMemsetAsync(bytes, 1, 1000, stream));
  CHECK(cudaMemsetAsync(bytes + 1, 2, 1, stream));
  CHECK(cudaStreamSynchronize(stream));
  conformance::list("sets", std::vector<unsigned char>{bytes.take()[0], bytes.take()[1], bytes.take()[999]});
  CHECK(cudaStreamDestroy(stream));
}
