// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <sys/socket.h>
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

int start_peer(const char* which, int* pid) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) exit(1);
  fflush(stdout);
  *pid = fork();
  if (*pid == 0) {
    close(ends[0]);
    if (dup2(ends[1], kPeer) != kPeer) _exit(127);
    execl("/proc/self/exe", "conformance", name, which, (char*)NULL);
    _exit(127);
  }
  close(ends[1]);
  return ends[0];
}

void put(int to, const void* bytes, size_t size) {
  fflush(stdout);
  if (write(to, bytes, size) != (ssize_t)size) exit(1);
}

void get(int from, void* bytes, size_t size) {
  for (size_t have = 0; have < size;) {
    const ssize_t some = read(from, (char*)bytes + have, size - have);
    if (some <= 0) exit(1);
    have += (size_t)some;
  }
}

void give_turn(int to) { put(to, "t", 1); }

void await_turn(int from) {
  char turn;
  get(from, &turn, 1);
}

void send_file(int to, int file) {
  char byte = 'f', room[CMSG_SPACE(sizeof file)] = {0};
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof file);
  memcpy(CMSG_DATA(header), &file, sizeof file);
  fflush(stdout);
  if (sendmsg(to, &message, 0) != 1) exit(1);
}

int receive_file(int from) {
  char byte, room[CMSG_SPACE(sizeof(int))];
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  if (recvmsg(from, &message, 0) != 1 || !CMSG_FIRSTHDR(&message)) exit(1);
  int file;
  memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
  return file;
}

void await_end(int pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  say("the other: %d", status);
  if (status != 0) exit(1);
}

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

void use_image(const char* what, const void* image) {
  CUmodule module;
  const CUresult status = cuModuleLoadData(&module, image);
  say("%s: %s", what, error_name(status));
  if (status != CUDA_SUCCESS) return;
  CUdeviceptr out = allocate(4 * sizeof(int));
  int results[4];
  void* parameters[] = {&out};
  launch(kernel(module, "count"), 4, 32, NULL, parameters);
  CHECK(cuMemcpyDtoH_v2(results, out, sizeof results));
  int sum = 0;
  for (int i = 0; i < 4; ++i) sum += results[i];
  say("counted %d", sum);
  CHECK(cuMemFree_v2(out));
  CHECK(cuModuleUnload(module));
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr address = 0;
  CHECK(cuMemAlloc_v2(&address, bytes));
  return address;
}

unsigned word_at(CUdeviceptr address) {
  unsigned word = 0;
  CHECK(cuMemcpyDtoH_v2(&word, address, sizeof word));
  return word;
}

unsigned long long digest(const void* data, size_t bytes) {
  unsigned long long hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ ((const unsigned char*)data)[i]) * 0x100000001b3u;
  return hash;
}

// The assembler finds the files through its -I option. A zero byte follows each, which terminates the texts.
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
