// SPDX-License-Identifier: Apache-2.0
// Each case is a process that contains itself and then does what code in a taken-over worker would try.
#include "worker/process/containment.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "testing/check.h"

namespace millpond::worker {
namespace {

constexpr uint32_t kUser = 61999;

/// A folder that any user may enter, with one in it for the worker.
struct GuardedFolder {
  std::string path = "/tmp/millpond-containment-XXXXXX";
  GuardedFolder() {
    CHECK(::mkdtemp(path.data()) != nullptr);
    CHECK_EQ(::chmod(path.c_str(), 0755), 0);
    CHECK_EQ(::mkdir(own().c_str(), 0755), 0);
    if (::geteuid() == 0) CHECK_EQ(::chown(own().c_str(), kUser, kUser), 0);
    write("secret");
  }
  ~GuardedFolder() { CHECK_EQ(std::system(("rm -rf " + path).c_str()), 0); }
  std::string own() const { return path + "/own"; }
  std::string secret() const { return path + "/secret"; }
  void write(const char* name) const {
    const UniqueFd file(::open((path + "/" + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    CHECK(bool(file));
    CHECK_EQ(::fchmod(file.get(), 0666), 0);
    CHECK_EQ(::write(file.get(), "token", 5), 5);
  }
};

/// Runs `attempt` in a separate, fully contained process; false fails the case.
void contained(const GuardedFolder& folder, const std::function<bool()>& attempt) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    if (::geteuid() == 0 && !becomeUser(kUser)) ::_exit(10);
    FileAccess files = systemFiles("/usr/lib/libcuda.so.1");
    files.write.push_back(folder.own());
    if (!contain(files)) ::_exit(11);
    if (!seal()) ::_exit(12);
    ::_exit(attempt() ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

bool refused(long rc) { return rc == -1 && (errno == EPERM || errno == EACCES); }

TEST("a contained process starts no program and no other process") {
  const GuardedFolder folder;
  contained(folder, [] {
    const char* const arguments[] = {"/bin/true", nullptr};
    char* none[] = {nullptr};
    return refused(::execve("/bin/true", const_cast<char**>(arguments), none)) &&
           refused(::syscall(SYS_execveat, AT_FDCWD, "/bin/true", arguments, none, 0)) &&
           refused(::syscall(SYS_fork)) && refused(::syscall(SYS_vfork)) &&
           refused(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)) && std::system("true") != 0;
  });
}

TEST("threads start and end as ever") {
  const GuardedFolder folder;
  contained(folder, [] {
    int done = 0;
    for (int i = 0; i < 8; ++i) std::thread([&done] { ++done; }).join();
    return done == 8;
  });
}

TEST("a contained process opens no network connection") {
  const GuardedFolder folder;
  // A listener outside, and one inside that was made before, as a worker's data port is.
  const UniqueFd outside(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQ(::bind(outside.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  CHECK_EQ(::listen(outside.get(), 4), 0);
  socklen_t length = sizeof(address);
  CHECK_EQ(::getsockname(outside.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const UniqueFd own(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  contained(folder, [&] {
    for (const int family : {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK})
      for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW})
        if (!refused(::socket(family, type | SOCK_CLOEXEC, 0))) return false;
    const auto* to = reinterpret_cast<const sockaddr*>(&address);
    if (!refused(::sendto(own.get(), "x", 1, MSG_FASTOPEN, to, sizeof(address)))) return false;
    msghdr message{};
    message.msg_name = &address;
    message.msg_namelen = sizeof(address);
    if (!refused(::sendmsg(own.get(), &message, MSG_FASTOPEN))) return false;
    return landlockVersion() < 4 || refused(::connect(own.get(), to, sizeof(address)));
  });
}

TEST("a contained process reaches no other process") {
  const GuardedFolder folder;
  const pid_t victim = ::fork();
  CHECK(victim >= 0);
  if (victim == 0) {
    // Another worker: with the same user, and not dumpable either.
    if (::geteuid() == 0 && !becomeUser(kUser)) ::_exit(1);
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    for (;;) ::pause();
  }
  static char word[8] = "mine";
  contained(folder, [&] {
    iovec local{word, sizeof(word)}, remote{word, sizeof(word)};
    const std::string proc = "/proc/" + std::to_string(victim);
    const int file = static_cast<int>(::syscall(SYS_pidfd_open, victim, 0));
    return refused(::ptrace(PTRACE_ATTACH, victim, nullptr, nullptr)) && refused(::kill(victim, SIGTERM)) &&
           refused(::kill(-1, SIGTERM)) && refused(::syscall(SYS_tgkill, victim, victim, SIGTERM)) &&
           refused(::process_vm_readv(victim, &local, 1, &remote, 1, 0)) &&
           refused(::process_vm_writev(victim, &local, 1, &remote, 1, 0)) &&
           refused(::open((proc + "/mem").c_str(), O_RDWR | O_CLOEXEC)) &&
           refused(::open((proc + "/environ").c_str(), O_RDONLY | O_CLOEXEC)) &&
           refused(::open((proc + "/maps").c_str(), O_RDONLY | O_CLOEXEC)) &&
           refused(::open((proc + "/fd/0").c_str(), O_RDWR | O_CLOEXEC)) &&
           refused(::syscall(SYS_pidfd_getfd, file, 0, 0)) &&
           refused(::syscall(SYS_pidfd_send_signal, file, SIGTERM, nullptr, 0)) &&
           refused(::prlimit(victim, RLIMIT_NOFILE, nullptr, nullptr));
  });
  CHECK_EQ(::kill(victim, SIGKILL), 0);
  CHECK_EQ(::waitpid(victim, nullptr, 0), victim);
}

TEST("files are those of the system and the session") {
  const GuardedFolder folder;
  contained(folder, [&] {
    const UniqueFd own(::open((folder.own() + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    const UniqueFd library(::open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!own || !library || !null || ::write(own.get(), "x", 1) != 1) return false;
    if (landlockVersion() == 0) return true;
    return refused(::open(folder.secret().c_str(), O_RDONLY | O_CLOEXEC)) &&
           refused(::open(folder.secret().c_str(), O_WRONLY | O_CLOEXEC)) &&
           refused(::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) &&
           refused(::open((folder.path + "/new").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) &&
           refused(::open("/usr/new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) &&
           refused(::open((folder.own() + "/../secret").c_str(), O_RDONLY | O_CLOEXEC)) &&
           refused(::open("/etc/shadow", O_RDONLY | O_CLOEXEC)) && refused(::unlink(folder.secret().c_str())) &&
           refused(::symlink(folder.secret().c_str(), (folder.own() + "/link").c_str())) &&
           // Across folders; within its own it makes only complete files visible.
           ::link(folder.secret().c_str(), (folder.own() + "/link").c_str()) == -1 &&
           ::link((folder.own() + "/file").c_str(), (folder.own() + "/name").c_str()) == 0;
  });
}

TEST("interfaces of the kernel beyond that are shut") {
  const GuardedFolder folder;
  contained(folder, [] {
    return refused(::syscall(SYS_unshare, CLONE_NEWUSER)) && refused(::syscall(SYS_bpf, 0, nullptr, 0)) &&
           refused(::syscall(SYS_userfaultfd, 0)) && refused(::syscall(SYS_io_uring_setup, 1, nullptr)) &&
           refused(::syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0)) && refused(::syscall(SYS_keyctl, 0)) &&
           refused(::syscall(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr)) && refused(::setuid(0)) &&
           refused(::syscall(SYS_capset, nullptr, nullptr)) && ::syscall(SYS_acct, nullptr) == -1 && errno == ENOSYS;
  });
}

TEST("it has no capabilities, gains none, dumps no core and is first in line when memory runs out") {
  const GuardedFolder folder;
  contained(folder, [] {
    const UniqueFd file(::open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC));
    char text[4096];
    const ssize_t bytes = ::read(file.get(), text, sizeof(text) - 1);
    if (bytes <= 0) return false;
    text[bytes] = 0;
    const auto has = [&](const char* line) { return std::strstr(text, line) != nullptr; };
    rlimit core{};
    char score[8] = {};
    const UniqueFd own(::open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC));
    return has("CapEff:\t0000000000000000") && has("CapPrm:\t0000000000000000") && has("NoNewPrivs:\t1") &&
           has("Seccomp:\t2") && ::getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0 &&
           ::prctl(PR_GET_DUMPABLE) == 0 && ::read(own.get(), score, sizeof(score) - 1) > 0 &&
           std::strtol(score, nullptr, 10) >= 500 && (::geteuid() != 0);
  });
}

}  // namespace
}  // namespace millpond::worker
