// SPDX-License-Identifier: Apache-2.0
#include "worker/process/syscall_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace millpond::worker {
namespace {

/// Busiest first: on kernels before 5.11, which keep no bitmap of the calls that always pass, the filter runs each time.
// clang-format off
constexpr int kAllowed[] = {
    SYS_futex, SYS_ioctl, SYS_recvmsg, SYS_sched_yield, SYS_poll, SYS_read, SYS_write, SYS_recvfrom, SYS_clock_nanosleep,
    SYS_clock_gettime,
    // Memory
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, SYS_mprotect, SYS_brk, SYS_msync, SYS_mincore, SYS_mlock, SYS_mlock2,
    SYS_munlock, SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy, SYS_membarrier, SYS_memfd_create,
    // Files: the file rules and modes decide which of them are accessible
    SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_open, SYS_openat, SYS_creat, SYS_close,
    SYS_close_range, SYS_stat, SYS_fstat, SYS_lstat, SYS_newfstatat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_access,
    SYS_faccessat, SYS_faccessat2, SYS_readlink, SYS_readlinkat, SYS_lseek, SYS_dup, SYS_dup2, SYS_dup3, SYS_fcntl, SYS_flock,
    SYS_fsync, SYS_fdatasync, SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_getdents, SYS_getdents64, SYS_getcwd, SYS_mkdir,
    SYS_mkdirat, SYS_rmdir, SYS_unlink, SYS_unlinkat, SYS_rename, SYS_renameat, SYS_renameat2, SYS_link, SYS_linkat, SYS_chmod, SYS_fchmod,
    SYS_fchmodat, SYS_utimensat, SYS_umask, SYS_fadvise64, SYS_readahead, SYS_pipe, SYS_pipe2, SYS_copy_file_range,
    SYS_sendfile,
    // Threads, time and signals of this process
    SYS_set_robust_list, SYS_set_tid_address, SYS_rseq, SYS_exit, SYS_exit_group, SYS_gettid, SYS_getpid, SYS_getppid,
    SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getparam, SYS_sched_setparam, SYS_sched_getscheduler,
    SYS_sched_setscheduler, SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_sched_getattr, SYS_sched_setattr,
    SYS_getpriority, SYS_setpriority, SYS_nanosleep, SYS_clock_getres, SYS_gettimeofday, SYS_time, SYS_times,
    SYS_restart_syscall, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend, SYS_sigaltstack, SYS_pause, SYS_alarm, SYS_setitimer, SYS_getitimer, SYS_timer_create,
    SYS_timer_settime, SYS_timer_gettime, SYS_timer_delete, SYS_timer_getoverrun, SYS_arch_prctl, SYS_prctl, SYS_getrandom,
    SYS_getcpu, SYS_sysinfo, SYS_uname, SYS_getrusage, SYS_getrlimit,
    // Identity of this process, read-only
    SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_getpgrp, SYS_getpgid,
    SYS_getsid, SYS_capget,
    // Waiting for descriptors
    SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_create1, SYS_epoll_create, SYS_epoll_ctl, SYS_epoll_wait, SYS_epoll_pwait,
    SYS_eventfd, SYS_eventfd2, SYS_signalfd, SYS_signalfd4, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime,
    SYS_pidfd_open,
    // Existing sockets, and local ones
    SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect, SYS_getsockname, SYS_getpeername, SYS_getsockopt,
    SYS_setsockopt, SYS_recvmmsg, SYS_shutdown,
};
// clang-format on

/// Calls that exist on every kernel and must not work here. All other unlisted calls appear not to exist.
// clang-format off
constexpr int kDenied[] = {
    SYS_execve, SYS_execveat, SYS_fork, SYS_vfork, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp,
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_setfsuid,
    SYS_setfsgid, SYS_capset, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_getfd, SYS_pidfd_send_signal,
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    SYS_keyctl, SYS_add_key, SYS_request_key, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_personality,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_syslog,
    SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_sethostname, SYS_iopl, SYS_ioperm,
    SYS_symlink, SYS_symlinkat, SYS_mknod, SYS_mknodat, SYS_chown, SYS_fchown, SYS_lchown, SYS_fchownat,
    SYS_name_to_handle_at, SYS_open_by_handle_at,
};
// clang-format on

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kMissing = SECCOMP_RET_ERRNO | ENOSYS;
/// Numbers of the x32 ABI begin here.
constexpr uint32_t kX32 = 0x40000000;

/// A filter program, written from top to bottom: each rule either returns or falls through to the next one.
class Program {
 public:
  void loadNumber() { load(offsetof(seccomp_data, nr)); }
  void returns(uint32_t action) { add(BPF_RET | BPF_K, action); }
  void always(int number, uint32_t action) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1);
    returns(action);
  }
  /// Allows the call if an argument, as 32 bits, is one of `values`.
  void whenEquals(int number, size_t argument, std::initializer_list<uint32_t> values) {
    std::vector<sock_filter> body;
    for (const uint32_t value : values) {
      body.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
      body.push_back(BPF_STMT(BPF_RET | BPF_K, kAllow));
    }
    onArgument(number, argument, std::move(body));
  }
  /// Allows the call if all of `bits` are set in an argument.
  void whenHas(int number, size_t argument, uint32_t bits) {
    onArgument(number, argument,
               {BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, bits, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, kAllow)});
  }
  /// Allows the call if none of `bits` is set in an argument.
  void whenLacks(int number, size_t argument, uint32_t bits) {
    onArgument(number, argument, {BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0), BPF_STMT(BPF_RET | BPF_K, kAllow)});
  }
  void requireArchitecture() {
    load(offsetof(seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    returns(SECCOMP_RET_KILL_PROCESS);
    loadNumber();
    add(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1);
    returns(kMissing);
  }

  Status install() {
    sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    // SPEC_ALLOW: the threads keep their speculation settings; the filter is not a sandbox against side channels.
    const long rc = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                              SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
    if (rc > 0) return Error{"thread " + std::to_string(rc) + " has another system call filter"};
    if (rc < 0) return Error{std::string("the kernel refused the system call filter: ") + std::strerror(errno)};
    return Done{};
  }

 private:
  void add(int code, uint32_t value, uint8_t whenTrue = 0, uint8_t whenFalse = 0) {
    code_.push_back({static_cast<uint16_t>(code), whenTrue, whenFalse, value});
  }
  void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
  void onArgument(int number, size_t argument, std::vector<sock_filter> body) {
    const auto skip = static_cast<uint8_t>(body.size() + 2);
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, skip);
    load(offsetof(seccomp_data, args) + argument * sizeof(uint64_t));
    code_.insert(code_.end(), body.begin(), body.end());
    returns(kRefuse);
  }

  std::vector<sock_filter> code_;
};

}  // namespace

Status restrictSystemCalls() {
  const auto self = static_cast<uint32_t>(::getpid());
  Program program;
  program.requireArchitecture();
  constexpr size_t kBusy = 10;
  for (size_t i = 0; i < kBusy; ++i) program.always(kAllowed[i], kAllow);
  // A fast open sends and connects in one call.
  program.whenLacks(SYS_sendmsg, 2, MSG_FASTOPEN);
  program.whenLacks(SYS_sendto, 3, MSG_FASTOPEN);
  program.whenLacks(SYS_sendmmsg, 3, MSG_FASTOPEN);
  for (size_t i = kBusy; i < std::size(kAllowed); ++i) program.always(kAllowed[i], kAllow);
  program.whenHas(SYS_clone, 0, CLONE_THREAD);
  // Its flags are in memory, where a filter cannot look: without this call the C library uses clone.
  program.always(SYS_clone3, kMissing);
  program.whenEquals(SYS_socket, 0, {AF_UNIX});
  program.whenEquals(SYS_socketpair, 0, {AF_UNIX});
  program.whenEquals(SYS_kill, 0, {self});
  program.whenEquals(SYS_tgkill, 0, {self});
  program.whenEquals(SYS_prlimit64, 0, {0, self});
  program.whenEquals(SYS_move_pages, 0, {0, self});
  program.whenEquals(SYS_get_robust_list, 0, {0, self});
  for (const int number : kDenied) program.always(number, kRefuse);
  program.returns(kMissing);
  return program.install();
}

}  // namespace millpond::worker
