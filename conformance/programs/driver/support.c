// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <sys/wait.h>
#include <unistd.h>

static struct entry* first;
const char* part = "";
static const char* name = "";

void enter_program(struct entry* entry) {
  struct entry** place = &first;
  while (*place && strcmp((*place)->name, entry->name) < 0) place = &(*place)->next;
  entry->next = *place;
  *place = entry;
}

void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  putchar('\n');
  fflush(stdout);
}

const char* error_name(CUresult status) {
  static _Thread_local char number[32];
  const char* text = NULL;
  if (cuGetErrorName(status, &text) == CUDA_SUCCESS && text) return text;
  snprintf(number, sizeof number, "%d", (int)status);
  return number;
}

void check(CUresult status, const char* call, int line) {
  if (status == CUDA_SUCCESS) return;
  say("line %d: %s failed: %s", line, call, error_name(status));
  exit(1);
}

CUresult see(CUresult status, const char* call) {
  say("%s: %s", call, error_name(status));
  return status;
}

void skip(const char* why) {
  say("skipped: %s", why);
  exit(0);
}

const char* yes(bool is) { return is ? "yes" : "no"; }

void child(const char* which) {
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "conformance", name, which, (char*)NULL);
    _exit(127);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) {
    say("cannot run the part %s", which);
    exit(1);
  }
  if (WIFSIGNALED(status)) say("%s: ended by signal %d", which, WTERMSIG(status));
  else say("%s: exit status %d", which, WEXITSTATUS(status));
}

bool is_part(const char* which) { return strcmp(part, which) == 0; }

CUdevice device(void) {
  CUdevice found;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&found, 0));
  return found;
}

CUcontext primary(void) {
  CUcontext context;
  CHECK(cuDevicePrimaryCtxRetain(&context, device()));
  CHECK(cuCtxSetCurrent(context));
  return context;
}

int attribute(CUdevice_attribute which) {
  int value = 0;
  CHECK(cuDeviceGetAttribute(&value, which, 0));
  return value;
}

CUmodule kernels(void) {
  CUmodule module;
  CHECK(cuModuleLoadData(&module, kernels_ptx));
  return module;
}

CUfunction kernel(CUmodule module, const char* wanted) {
  CUfunction function;
  CHECK(cuModuleGetFunction(&function, module, wanted));
  return function;
}

void launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, void** parameters) {
  CHECK(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL));
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc_v2(&address, bytes));
  return address;
}

unsigned long long digest(const void* data, size_t bytes) {
  unsigned long long hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ ((const unsigned char*)data)[i]) * 0x100000001b3u;
  return hash;
}

// The assembler finds the files by its -I. A zero follows each, which ends the texts.
#define IMAGE(symbol, file)                               \
  __asm__(".section .rodata\n"                            \
          ".balign 16\n"                                  \
          ".global " #symbol "\n" #symbol                 \
          ":\n"                                           \
          ".incbin \"" file "\"\n"                        \
          ".byte 0\n"                                     \
          ".balign 8\n"                                   \
          ".global " #symbol "_size\n" #symbol            \
          "_size:\n"                                      \
          ".quad " #symbol "_size - " #symbol " \n"       \
          ".previous\n")
IMAGE(kernels_ptx, "kernels.ptx");
IMAGE(kernels_fatbin, "kernels.fatbin");
IMAGE(kernels_cubin, "kernels.sm_90.cubin");
IMAGE(binary_only_fatbin, "binary-only.fatbin");
IMAGE(link_a_ptx, "link-a.ptx");
IMAGE(link_b_ptx, "link-b.ptx");

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 1 << 12);
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    for (const struct entry* entry = first; entry; entry = entry->next) printf("%s\t%s\n", entry->name, entry->summary);
    return 0;
  }
  for (const struct entry* entry = first; entry && argc > 1; entry = entry->next) {
    if (strcmp(entry->name, argv[1]) != 0) continue;
    name = entry->name;
    part = argc > 2 ? argv[2] : "";
    entry->run();
    return 0;
  }
  fprintf(stderr, "usage: %s PROGRAM | --list\n", argv[0]);
  return 2;
}
