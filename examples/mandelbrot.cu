// SPDX-License-Identifier: Apache-2.0
// A picture of the Mandelbrot set, computed pixel by pixel and written as a PNG file.
#include "example.h"
#include "png.h"

#include <cerrno>
#include <cmath>

constexpr int kIterations = 255;

// How many steps c takes to leave the circle of radius 2. Written with fmaf so that host and device round alike: a
// compiler that fuses multiplications and additions finds nothing left to fuse.
static __host__ __device__ int escape(float cx, float cy) {
  float x = 0, y = 0;
  int steps = 0;
  while (steps < kIterations) {
    const float y2 = y * y;
    if (fmaf(x, x, y2) > 4) break;
    const float next = fmaf(x, x, cx - y2);
    y = fmaf(2 * x, y, cy);
    x = next;
    ++steps;
  }
  return steps;
}

// Blue at the rim, through yellow, to black inside the set.
static __host__ __device__ void colour(int steps, uint8_t* rgb) {
  const bool inside = steps == kIterations;
  rgb[0] = static_cast<uint8_t>(inside ? 0 : steps * 9);
  rgb[1] = static_cast<uint8_t>(inside ? 0 : steps * 5);
  rgb[2] = static_cast<uint8_t>(inside ? 0 : 255 - steps);
}

static __host__ __device__ void pixel(int x, int y, int width, int height, uint8_t* rgb) {
  const float step = 3.0f / static_cast<float>(width);
  const float cx = fmaf(static_cast<float>(x), step, -2.25f);
  const float cy = fmaf(static_cast<float>(y - height / 2), step, 0.0f);
  colour(escape(cx, cy), rgb + 3 * (static_cast<size_t>(y) * width + x));
}

__global__ void draw(uint8_t* rgb, int width, int height) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x < width && y < height) pixel(x, y, width, height, rgb);
}

static bool run(const example::Arguments& arguments) {
  const int width = static_cast<int>(arguments.size(0, 384, 16384));
  const int height = static_cast<int>(arguments.size(1, 256, 16384));
  const std::string path = arguments.out("mandelbrot.png");
  const size_t bytes = 3 * static_cast<size_t>(width) * static_cast<size_t>(height);

  std::vector<uint8_t> picture(bytes), expected(bytes);
  uint8_t* device;
  CHECK(cudaMalloc(&device, bytes));
  const dim3 threads(16, 16);
  const dim3 blocks((static_cast<unsigned>(width) + 15) / 16, (static_cast<unsigned>(height) + 15) / 16);
  draw<<<blocks, threads>>>(device, width, height);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(picture.data(), device, bytes, cudaMemcpyDeviceToHost));

  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) pixel(x, y, width, height, expected.data());
  }
  const uint32_t checksum = png::crc32(picture.data(), bytes);
  const bool right = checksum == png::crc32(expected.data(), bytes);
  CHECK(cudaFree(device));
  if (!png::write(path, picture, static_cast<uint32_t>(width), static_cast<uint32_t>(height))) {
    std::fprintf(stderr, "mandelbrot: cannot write %s: %s\n", path.c_str(), std::strerror(errno));
    return false;
  }
  std::printf("mandelbrot: %s (%dx%d, checksum %08x, written to %s)\n", right ? "OK" : "WRONG", width, height,
              checksum, path.c_str());
  return right;
}

EXAMPLE("mandelbrot", "[WIDTH [HEIGHT]] [--out F]", "draws the Mandelbrot set into a PNG file", run);
