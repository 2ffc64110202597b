// SPDX-License-Identifier: Apache-2.0
// Managed variables of modules and libraries that the program loads itself: it uses them by their addresses.
#include "driver.h"

static const char image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .attribute(.managed) .align 4 .u32 counter = 5;\n"
    ".visible .global .attribute(.managed) .align 4 .b8 many[12000];\n"
    ".visible .global .align 4 .u32 plain = 3;\n"
    ".visible .entry bump(.param .u32 by) {\n"
    "  .reg .u32 %r<6>;\n  .reg .u64 %p<6>;\n  .reg .pred %q;\n"
    "  ld.param.u32 %r1, [by];\n  mov.u32 %r2, %tid.x;\n"
    "  mul.wide.u32 %p1, %r2, 40;\n  mov.u64 %p2, many;\n  add.u64 %p2, %p2, %p1;\n"
    "  add.u32 %r3, %r1, %r2;\n  st.global.u32 [%p2], %r3;\n"
    "  setp.ne.u32 %q, %r2, 0;\n  @%q bra END;\n"
    "  ld.global.u32 %r4, [counter];\n  add.u32 %r4, %r4, %r1;\n  st.global.u32 [counter], %r4;\n"
    "  ld.global.u32 %r4, [plain];\n  add.u32 %r4, %r4, %r1;\n  st.global.u32 [plain], %r4;\n"
    "END:\n  ret;\n}\n";

static void use(CUfunction bump, CUdeviceptr counter, CUdeviceptr many, CUdeviceptr plain) {
  unsigned is_managed = 9;
  CHECK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, counter));
  say("counter is managed: %u", is_managed);
  CHECK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, plain));
  say("plain is managed: %u", is_managed);
  volatile int* here = (int*)counter;
  say("at first: %d", *here);
  *here = 100;
  int by = 7;
  void* parameters[] = {&by};
  for (int i = 0; i < 2; ++i) {
    launch(bump, 1, 32, NULL, parameters);
    CHECK(cuCtxSynchronize());
    say("then: %d, %d, %d", *here, ((volatile int*)many)[310], ((volatile int*)many)[311]);
  }
  int copied = 0;
  CHECK(cuMemcpyDtoH_v2(&copied, counter, sizeof copied));
  say("copied: %d", copied);
  CHECK(cuMemcpyDtoH_v2(&copied, plain, sizeof copied));
  say("plain: %d", copied);
  CHECK(cuMemsetD32_v2(counter, 77, 1));
  CHECK(cuCtxSynchronize());
  say("filled: %d", *here);
}

PROGRAM("managed-modules", "managed variables of modules and libraries that the program loads") {
  primary();
  CUdeviceptr counter = 0, many = 0, plain = 0;
  size_t bytes = 0;
  for (int round = 0; round < 2; ++round) {
    CUmodule module;
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetGlobal_v2(&counter, &bytes, module, "counter"));
    say("module: %zu bytes", bytes);
    CHECK(cuModuleGetGlobal_v2(&many, &bytes, module, "many"));
    CHECK(cuModuleGetGlobal_v2(&plain, &bytes, module, "plain"));
    use(kernel(module, "bump"), counter, many, plain);
    CHECK(cuModuleUnload(module));
  }
  CUlibrary library;
  CHECK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
  CHECK(cuLibraryGetManaged(&counter, &bytes, library, "counter"));
  say("library: %zu bytes", bytes);
  CHECK(cuLibraryGetManaged(&many, &bytes, library, "many"));
  CHECK(cuLibraryGetGlobal(&plain, &bytes, library, "plain"));
  CUkernel bump;
  CHECK(cuLibraryGetKernel(&bump, library, "bump"));
  use((CUfunction)bump, counter, many, plain);
  CHECK(cuLibraryUnload(library));
}
