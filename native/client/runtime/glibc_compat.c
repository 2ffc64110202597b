// SPDX-License-Identifier: Apache-2.0
// Lets the library load where glibc is older than on the machine that built it, down to 2.28.
//
// glibc gave many functions a new version when it merged its libraries (2.32 to 2.34); linked plainly, the
// library would ask for the new version and be refused elsewhere. The old versions are still there. The
// linker routes these names through this file (--wrap; the list is in CMakeLists.txt), which binds them to the
// old version.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#if defined(__x86_64__)
#define OLD_VERSION "GLIBC_2.2.5"
#define OLD_STAT_VERSION 1
#define JUMP_TO(name) "  endbr64\n  jmp *" name "@GOTPCREL(%rip)\n"
#elif defined(__aarch64__)
#define OLD_VERSION "GLIBC_2.17"
#define OLD_STAT_VERSION 0
#define JUMP_TO(name) "  hint 34\n  b " name "\n"
#else
#error "the oldest version of glibc's symbols on this architecture is missing here"
#endif

// One jump for each name of the list; in a section of its own, so that the linker drops unused ones.
// clang-format off
#define OLD(name)                                                       \
  __asm__(".symver millpond_old_" #name ", " #name "@" OLD_VERSION "\n" \
          ".pushsection .text.__wrap_" #name ", \"ax\", %progbits\n"    \
          ".globl __wrap_" #name "\n"                                   \
          ".hidden __wrap_" #name "\n"                                  \
          ".type __wrap_" #name ", %function\n"                         \
          "__wrap_" #name ":\n"                                         \
          JUMP_TO("millpond_old_" #name)                                \
          ".size __wrap_" #name ", . - __wrap_" #name "\n"              \
          ".popsection\n");
// clang-format on
MILLPOND_OLD_SYMBOLS

// The following are not the old function under its old version, but replacements that every glibc can support.

// Reports whether there is only one thread, so that counters need no atomics. Never assumed here.
char __libc_single_threaded = 0;

// `stat` and its relatives were not functions of the library before 2.33.
#define OLD_STAT(name, type)                                         \
  __asm__(".symver millpond_old_" #name ", " #name "@" OLD_VERSION); \
  int millpond_old_##name(int version, type, struct stat* out);
OLD_STAT(__xstat, const char* path)
OLD_STAT(__fxstat, int file)
OLD_STAT(__lxstat, const char* path)

int __wrap_stat(const char* path, struct stat* out);
int __wrap_stat(const char* path, struct stat* out) { return millpond_old___xstat(OLD_STAT_VERSION, path, out); }
int __wrap_fstat(int file, struct stat* out);
int __wrap_fstat(int file, struct stat* out) { return millpond_old___fxstat(OLD_STAT_VERSION, file, out); }
int __wrap_lstat(const char* path, struct stat* out);
int __wrap_lstat(const char* path, struct stat* out) { return millpond_old___lxstat(OLD_STAT_VERSION, path, out); }
// The same structure on 64-bit machines.
int __wrap_stat64(const char* path, struct stat* out);
int __wrap_stat64(const char* path, struct stat* out) { return __wrap_stat(path, out); }
int __wrap_fstat64(int file, struct stat* out);
int __wrap_fstat64(int file, struct stat* out) { return __wrap_fstat(file, out); }
int __wrap_lstat64(const char* path, struct stat* out);
int __wrap_lstat64(const char* path, struct stat* out) { return __wrap_lstat(path, out); }

// Waiting on the monotonic clock was introduced in 2.30. Older versions wait on the real-time clock, which may be set
// in the meantime: then waits end too early or too late, for which users of condition variables are prepared.
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* until);
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* until) {
  struct timespec now;
  struct timespec real;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0) return EINVAL;
  int64_t seconds = (int64_t)until->tv_sec - now.tv_sec + real.tv_sec;
  int64_t nanoseconds = (int64_t)until->tv_nsec - now.tv_nsec + real.tv_nsec;
  seconds += nanoseconds / 1000000000;
  nanoseconds %= 1000000000;
  if (nanoseconds < 0) {
    nanoseconds += 1000000000;
    --seconds;
  }
  const struct timespec deadline = {.tv_sec = seconds, .tv_nsec = nanoseconds};
  return pthread_cond_timedwait(condition, mutex, &deadline);
}
