// SPDX-License-Identifier: Apache-2.0
// Common code of the C programs: they are linked directly to libcuda.so.1, need no CUDA toolkit, and include their
// kernels as checked-in images. Functions have their versioned names, which <cuda.h> hides behind macros.
#pragma once

#include <cuda_api.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
  const char* name;
  const char* summary;
  void (*run)(void);
  struct entry* next;
};
void enter_program(struct entry* entry);

/// Defines a program; its body follows in braces.
#define PROGRAM(title, about)                                                  \
  static void program(void);                                                   \
  __attribute__((constructor)) static void enter_this_program(void) {          \
    static struct entry entry = {(title), (about), program, NULL};             \
    enter_program(&entry);                                                     \
  }                                                                            \
  static void program(void)

/// Ends the program with a message when a call fails that must succeed.
#define CHECK(call) check((call), #call, __LINE__)
/// Prints the call and the name of its result.
#define SEE(call) see((call), #call)

void check(CUresult status, const char* call, int line);
CUresult see(CUresult status, const char* call);
const char* error_name(CUresult status);
/// Prints a line.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// Ends the program because the device lacks something that it needs.
void skip(const char* why) __attribute__((noreturn));
const char* yes(bool is);

/// The part of a program that this process plays: "" for the whole, otherwise the argument of child().
extern const char* part;
/// Runs another part of this program in a separate process, and prints how that ended.
void child(const char* which);
bool is_part(const char* which);
/// The same with a socket between the two: this end is returned, and the child's end is kPeer. The processes take turns, so
/// that their output is in order.
int start_peer(const char* which, int* pid);
enum { kPeer = 3 };
void put(int to, const void* bytes, size_t size);
void get(int from, void* bytes, size_t size);
void give_turn(int to);
void await_turn(int from);
void send_file(int to, int file);
int receive_file(int from);
/// Waits for a process to end, and prints its exit status. Ends the program when it failed.
void await_end(int pid);

/// cuInit and the first device.
CUdevice device(void);
/// The same, with its primary context current.
CUcontext primary(void);
int attribute(CUdevice_attribute which);

/// The images of images/kernels.cu, and the PTX of images/link-a.cu and link-b.cu, which are complete only together. Texts
/// end with a zero byte.
extern const char kernels_ptx[], link_a_ptx[], link_b_ptx[];
extern const unsigned char kernels_fatbin[], kernels_cubin[], binary_only_fatbin[];
extern const size_t kernels_fatbin_size, kernels_cubin_size, link_a_ptx_size, link_b_ptx_size, kernels_ptx_size;
/// kernels_ptx as a module of the current context, and one of its kernels.
CUmodule kernels(void);
CUfunction kernel(CUmodule module, const char* name);
/// Loads one of these images, prints the result, and runs one of its kernels.
void use_image(const char* what, const void* image);

/// Launches a single row of one block, and checks the launch.
void launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream, void** parameters);
CUdeviceptr allocate(size_t bytes);
unsigned word_at(CUdeviceptr address);
/// FNV-1a over bytes, for a result that is too long to print.
unsigned long long digest(const void* data, size_t bytes);
