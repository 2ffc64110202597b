// SPDX-License-Identifier: Apache-2.0
// A program as a compiler of an older CUDA makes it, without that compiler: it
// registers an image of kernels and calls the runtime that it is linked with.
// Declared by hand, because the headers of those releases are not at hand.
//
//   runtime_caller kernels.fatbin
//
// Prints the runtime's version and "OK"; else what differs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  unsigned x, y, z;
} Dim3;

typedef struct {
  int magic, version;
  const void *image;
  void *unused;
} Wrapper;

enum { kToDevice = 1, kToHost = 2, kCount = 1 << 20 };

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **image);
void __cudaRegisterFunction(void **image, const char *host, char *device,
                            const char *name, int threads, void *a, void *b,
                            void *c, void *d, int *e);
int cudaRuntimeGetVersion(int *version);
int cudaDriverGetVersion(int *version);
int cudaGetDeviceCount(int *count);
int cudaMemGetInfo(size_t *left, size_t *total);
int cudaMalloc(void **pointer, size_t bytes);
int cudaMallocManaged(void **pointer, size_t bytes, unsigned flags);
int cudaFree(void *pointer);
int cudaMallocHost(void **pointer, size_t bytes);
int cudaHostRegister(void *pointer, size_t bytes, unsigned flags);
int cudaHostUnregister(void *pointer);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                    void *stream);
int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream);
int cudaStreamCreate(void **stream);
int cudaStreamSynchronize(void *stream);
int cudaStreamDestroy(void *stream);
int cudaEventCreate(void **event);
int cudaEventRecord(void *event, void *stream);
int cudaEventSynchronize(void *event);
int cudaEventElapsedTime(float *milliseconds, void *from, void *to);
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data);
int cudaLaunchKernel(const void *function, Dim3 grid, Dim3 block,
                     void **parameters, size_t shared, void *stream);
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
// CUDA 12 has three parameters, and ignores the others.
int cudaGraphInstantiate(void **executable, void *graph, void *node, char *log,
                         size_t size);
int cudaGraphLaunch(void *executable, void *stream);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);
int cudaGetLastError(void);
const char *cudaGetErrorName(int error);

static void expect(int holds, const char *what) {
  if (holds)
    return;
  fprintf(stderr, "wrong: %s\n", what);
  exit(1);
}

static void check(int error, const char *call) {
  if (!error)
    return;
  fprintf(stderr, "%s: %s\n", call, cudaGetErrorName(error));
  exit(1);
}

#define CHECK(call) check(call, #call)

static void *readFile(const char *path) {
  FILE *file = fopen(path, "rb");
  expect(file != NULL, path);
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  rewind(file);
  void *bytes = aligned_alloc(64, ((size_t)size + 63) / 64 * 64);
  expect(bytes != NULL && fread(bytes, 1, (size_t)size, file) == (size_t)size,
         "the image is read");
  fclose(file);
  return bytes;
}

static void note(void *data) { ++*(int *)data; }

static const char kScale = 0, kFill = 0;

static void fill(int *data, int value, void *stream) {
  unsigned count = kCount;
  void *parameters[] = {&data, &value, &count};
  CHECK(cudaLaunchKernel(&kFill, (Dim3){kCount / 256, 1, 1}, (Dim3){256, 1, 1},
                         parameters, 0, stream));
}

int main(int argc, char **argv) {
  expect(argc == 2, "the image of kernels is given");
  Wrapper wrapper = {0x466243b1, 1, readFile(argv[1]), NULL};
  void **image = __cudaRegisterFatBinary(&wrapper);
  __cudaRegisterFunction(image, &kScale, "scale", "scale", -1, NULL, NULL, NULL,
                         NULL, NULL);
  __cudaRegisterFunction(image, &kFill, "fill", "fill", -1, NULL, NULL, NULL,
                         NULL, NULL);
  __cudaRegisterFatBinaryEnd(image);

  int version = 0, driver = 0, devices = 0;
  CHECK(cudaRuntimeGetVersion(&version));
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaGetDeviceCount(&devices));
  expect(devices == 1, "one device");
  size_t left = 0, total = 0;
  CHECK(cudaMemGetInfo(&left, &total));
  expect(left > 0 && left <= total, "memory of the claim");

  const size_t bytes = kCount * sizeof(int);
  int *device = NULL, *pinned = NULL, *managed = NULL;
  void *stream = NULL, *from = NULL, *to = NULL;
  CHECK(cudaMalloc((void **)&device, bytes));
  CHECK(cudaMallocHost((void **)&pinned, bytes));
  CHECK(cudaMallocManaged((void **)&managed, bytes, 1));
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));

  int calls = 0;
  CHECK(cudaEventRecord(from, stream));
  fill(device, 5, stream);
  CHECK(cudaMemcpyAsync(pinned, device, bytes, kToHost, stream));
  CHECK(cudaLaunchHostFunc(stream, note, &calls));
  CHECK(cudaEventRecord(to, stream));
  CHECK(cudaEventSynchronize(to));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, from, to));
  expect(calls == 1 && milliseconds >= 0,
         "a host function and the time between events");
  for (int i = 0; i < kCount; ++i)
    expect(pinned[i] == 5 + i, "a kernel and a copy");

  fill(managed, 9, stream);
  CHECK(cudaStreamSynchronize(stream));
  expect(managed[0] == 9 && managed[kCount - 1] == 8 + kCount,
         "managed memory");

  float *pageable = malloc(bytes);
  for (int i = 0; i < kCount; ++i)
    pageable[i] = (float)i;
  CHECK(cudaHostRegister(pageable, bytes, 0));
  void *graph = NULL, *executable = NULL;
  CHECK(cudaStreamBeginCapture(stream, 0));
  CHECK(cudaMemcpyAsync(device, pageable, bytes, kToDevice, stream));
  float by = 3;
  unsigned count = kCount;
  void *parameters[] = {&device, &by, &count};
  CHECK(cudaLaunchKernel(&kScale, (Dim3){kCount / 256, 1, 1}, (Dim3){256, 1, 1},
                         parameters, 0, stream));
  CHECK(cudaMemcpyAsync(pageable, device, bytes, kToHost, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, NULL, NULL, 0));
  for (int launch = 0; launch < 3; ++launch)
    CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < 1000; ++i)
    expect(pageable[i] == 27.0f * (float)i, "a graph of copies and a kernel");
  CHECK(cudaHostUnregister(pageable));

  CHECK(cudaMemsetAsync(device, 0x41, bytes, stream));
  CHECK(cudaMemcpy(pageable, device, bytes, kToHost));
  expect(memchr(pageable, 0, bytes) == NULL,
         "a fill, before a copy in the default stream");
  expect(cudaMalloc((void **)&pinned, total + 1) == 2 &&
             cudaGetLastError() == 2 && cudaGetLastError() == 0,
         "memory beyond the claim");
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(device));
  CHECK(cudaFree(managed));
  CHECK(cudaDeviceSynchronize());

  // The runtime loads the image again.
  for (int round = 0; round < 2; ++round) {
    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc((void **)&device, bytes));
    fill(device, round, NULL);
    int first = -1;
    CHECK(cudaMemcpy(&first, device, sizeof first, kToHost));
    expect(first == round, "a kernel after a reset");
  }
  printf("%d on %d: OK\n", version, driver);
  return 0;
}
