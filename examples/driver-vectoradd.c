// SPDX-License-Identifier: Apache-2.0
// c = a + b by the driver API alone, with the kernel as PTX text: needs no CUDA toolkit, only a C compiler.
//   cc -O2 driver-vectoradd.c -ldl -o driver-vectoradd
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const char kernel_text[] =
    ".version 6.4\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n"
    "{\n"
    "  .reg .pred %outside;\n"
    "  .reg .b32 %r<6>;\n"
    "  .reg .f32 %f<4>;\n"
    "  .reg .b64 %rd<8>;\n"
    "  mov.u32 %r1, %ctaid.x;\n"
    "  mov.u32 %r2, %ntid.x;\n"
    "  mov.u32 %r3, %tid.x;\n"
    "  mad.lo.s32 %r4, %r1, %r2, %r3;\n"
    "  ld.param.u32 %r5, [n];\n"
    "  setp.ge.u32 %outside, %r4, %r5;\n"
    "  @%outside bra done;\n"
    "  mul.wide.u32 %rd1, %r4, 4;\n"
    "  ld.param.u64 %rd2, [a];\n"
    "  ld.param.u64 %rd3, [b];\n"
    "  ld.param.u64 %rd4, [c];\n"
    "  add.s64 %rd5, %rd2, %rd1;\n"
    "  add.s64 %rd6, %rd3, %rd1;\n"
    "  add.s64 %rd7, %rd4, %rd1;\n"
    "  ld.global.f32 %f1, [%rd5];\n"
    "  ld.global.f32 %f2, [%rd6];\n"
    "  add.f32 %f3, %f1, %f2;\n"
    "  st.global.f32 [%rd7], %f3;\n"
    "done:\n"
    "  ret;\n"
    "}\n";

// The part of the driver API that this program uses, under its versioned names.
typedef uint64_t device_pointer;
static struct {
  int (*init)(unsigned flags);
  int (*error_name)(int status, const char** name);
  int (*device_get)(int* device, int ordinal);
  int (*context_retain)(void** context, int device);
  int (*context_release)(int device);
  int (*context_set)(void* context);
  int (*module_load)(void** module, const void* image);
  int (*module_unload)(void* module);
  int (*function_get)(void** function, void* module, const char* name);
  int (*alloc)(device_pointer* pointer, size_t bytes);
  int (*free)(device_pointer pointer);
  int (*copy_in)(device_pointer to, const void* from, size_t bytes);
  int (*copy_out)(void* to, device_pointer from, size_t bytes);
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared_bytes, void* stream, void** parameters, void** extra);
  int (*synchronize)(void);
} cu;

static void load(void* library, void* slot, const char* name) {
  *(void**)slot = dlsym(library, name);
  if (!*(void**)slot) {
    fprintf(stderr, "driver-vectoradd: libcuda.so.1 has no %s\n", name);
    exit(1);
  }
}

static void load_driver(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "driver-vectoradd: %s\n", dlerror());
    exit(1);
  }
  load(library, &cu.init, "cuInit");
  load(library, &cu.error_name, "cuGetErrorName");
  load(library, &cu.device_get, "cuDeviceGet");
  load(library, &cu.context_retain, "cuDevicePrimaryCtxRetain");
  load(library, &cu.context_release, "cuDevicePrimaryCtxRelease_v2");
  load(library, &cu.context_set, "cuCtxSetCurrent");
  load(library, &cu.module_load, "cuModuleLoadData");
  load(library, &cu.module_unload, "cuModuleUnload");
  load(library, &cu.function_get, "cuModuleGetFunction");
  load(library, &cu.alloc, "cuMemAlloc_v2");
  load(library, &cu.free, "cuMemFree_v2");
  load(library, &cu.copy_in, "cuMemcpyHtoD_v2");
  load(library, &cu.copy_out, "cuMemcpyDtoH_v2");
  load(library, &cu.launch, "cuLaunchKernel");
  load(library, &cu.synchronize, "cuCtxSynchronize");
}

#define CHECK(call) check((call), #call)
static void check(int status, const char* call) {
  const char* name = NULL;
  if (status == 0) return;
  if (cu.error_name(status, &name) != 0 || !name) name = "unknown";
  fprintf(stderr, "driver-vectoradd: %s failed: %s (%d)\n", call, name, status);
  exit(1);
}

int main(int argc, char** argv) {
  char* end = "";
  const long wanted = argc > 1 ? strtol(argv[1], &end, 10) : 1 << 20;
  if (argc > 2 || *end != '\0' || wanted < 1 || wanted > 1 << 28) {
    fprintf(stderr, "usage: driver-vectoradd [ELEMENTS], 1 to %d\n", 1 << 28);
    return 2;
  }
  uint32_t n = (uint32_t)wanted;
  const size_t bytes = n * sizeof(float);
  float* a = malloc(bytes);
  float* b = malloc(bytes);
  float* c = malloc(bytes);
  if (!a || !b || !c) {
    fprintf(stderr, "driver-vectoradd: no host memory for 3 × %zu bytes\n", bytes);
    return 1;
  }
  for (uint32_t i = 0; i < n; ++i) {
    a[i] = (float)(i % 1000) * 0.25f;
    b[i] = (float)(i % 777) * -0.5f;
  }

  int device;
  void *context, *module, *function;
  device_pointer device_a, device_b, device_c;
  load_driver();
  CHECK(cu.init(0));
  CHECK(cu.device_get(&device, 0));
  CHECK(cu.context_retain(&context, device));
  CHECK(cu.context_set(context));
  CHECK(cu.module_load(&module, kernel_text));
  CHECK(cu.function_get(&function, module, "add"));
  CHECK(cu.alloc(&device_a, bytes));
  CHECK(cu.alloc(&device_b, bytes));
  CHECK(cu.alloc(&device_c, bytes));
  CHECK(cu.copy_in(device_a, a, bytes));
  CHECK(cu.copy_in(device_b, b, bytes));

  void* parameters[] = {&device_a, &device_b, &device_c, &n};
  CHECK(cu.launch(function, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL));
  CHECK(cu.synchronize());
  CHECK(cu.copy_out(c, device_c, bytes));
  CHECK(cu.free(device_a));
  CHECK(cu.free(device_b));
  CHECK(cu.free(device_c));
  CHECK(cu.module_unload(module));
  CHECK(cu.context_release(device));

  uint32_t wrong = 0;
  for (uint32_t i = 0; i < n; ++i) wrong += c[i] != a[i] + b[i];
  printf("driver-vectoradd: %s (%u elements, %u wrong)\n", wrong == 0 ? "OK" : "WRONG", n, wrong);
  free(a);
  free(b);
  free(c);
  return wrong == 0 ? 0 : 1;
}
