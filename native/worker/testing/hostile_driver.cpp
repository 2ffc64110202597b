// SPDX-License-Identifier: Apache-2.0
// A compromised driver: the software GPU, whose first launch tries attacks from inside a worker, and records the result
// of each. It finds its targets in the arguments of its process and in MILLPOND_SOFTGPU_SECRET, the path of a file that
// it must not read. It may only write a file in the worker's own folder.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>

#include "cuda/gen/cuda_api.h"

extern "C" char** environ;

namespace {

std::ofstream report;

void tell(const std::string& what, bool isDone) {
  report << what << (isDone ? ": DONE" : ": refused") << "\n" << std::flush;
}

void tellRead(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char byte;
  tell("read " + path, file >= 0 && ::read(file, &byte, 1) == 1);
  if (file >= 0) ::close(file);
}

/// The value of an option of the worker program.
std::string option(const std::string& name) {
  std::ifstream file("/proc/self/cmdline");
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  const std::string key = '\0' + name + '\0';
  const size_t at = all.find(key);
  return at == std::string::npos ? "" : all.substr(at + key.size(), all.find('\0', at + key.size()) - at - key.size());
}

/// Overwrites the mappings of a file that this process shares with the other workers of the device; returns the number
/// of bytes.
size_t overwrite(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with(path) || line.find(" rw-s ") == std::string::npos) continue;
    uintptr_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2) continue;
    std::memset(reinterpret_cast<void*>(from), 0xff, to - from);
    bytes += to - from;
  }
  return bytes;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {(std::istreambuf_iterator<char>(file)), {}};
}

/// Whether this process may connect to a socket.
bool canReach(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool can = ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(socket);
  return can;
}

/// Tries to access the resources of another worker, whose files are in `folder`.
void attackWorker(const std::string& pid, const std::string& folder) {
  const std::string process = "/proc/" + pid;
  const std::string status = contents(process + "/status");
  report << "victim " << pid << " has user " << std::strtoul(status.c_str() + status.find("Uid:") + 4, nullptr, 10)
         << "\n";
  for (const char* name : {"/environ", "/maps", "/mem"}) tellRead(process + name);
  tell("list the files of " + pid, ::opendir((process + "/fd").c_str()) != nullptr);
  tellRead(folder + "/worker.log");
  tell("list the folder of " + pid, ::opendir(folder.c_str()) != nullptr);
  tell("list the code of " + pid, ::opendir((folder + "/jit").c_str()) != nullptr);
  const int number = std::atoi(pid.c_str());
  tell("signal " + pid, ::kill(number, 0) == 0);
  tell("trace " + pid, ::ptrace(PTRACE_ATTACH, number, nullptr, nullptr) == 0);
  char byte;
  iovec here{&byte, 1}, there{&byte, 1};
  tell("look into " + pid, ::syscall(SYS_process_vm_readv, number, &here, 1, &there, 1, 0) >= 0);
  // Workers of one user can connect to each other, but then need the claim's secret.
  report << "the socket of " << pid << " for its claim is " << (canReach(folder + "/peers.sock") ? "open" : "closed")
         << "\n";
}

void attackOthers(const std::string& own, const std::string& workers) {
  DIR* const processes = ::opendir("/proc");
  while (const dirent* entry = processes ? ::readdir(processes) : nullptr) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string arguments = contents("/proc/" + pid + "/cmdline");
    const size_t at = arguments.find('\0' + workers + '/');
    if (at == std::string::npos) continue;
    const size_t begin = at + 1;
    const std::string folder = arguments.substr(begin, arguments.find('/', begin + workers.size() + 1) - begin);
    if (folder != own) attackWorker(pid, folder);
  }
  if (processes) ::closedir(processes);
}

void attack() {
  const std::string control = option("--control");
  const std::string own = control.substr(0, control.rfind('/'));
  const std::string workers = own.substr(0, own.rfind('/'));
  const std::string run = workers.substr(0, workers.rfind('/'));
  report.open(own + "/attack.txt");
  report << "user " << ::geteuid() << "\n";
  for (char** each = environ; *each; ++each)
    report << "environment " << std::string(*each).substr(0, std::strcspn(*each, "=")) << "\n";
  if (const char* secret = std::getenv("MILLPOND_SOFTGPU_SECRET")) tellRead(secret);
  for (const char* name : {"/group.key", "/agent.db", "/agent.db-wal"}) tellRead(run + name);
  tellRead("/etc/shadow");
  const std::string agent = "/proc/" + std::to_string(::getppid());
  for (const char* name : {"/environ", "/maps", "/mem"}) tellRead(agent + name);
  DIR* folder = ::opendir(workers.c_str());
  tell("list the workers", folder != nullptr);
  const std::string record = run + "/records/" + own.substr(workers.size() + 1) + ".json";
  tellRead(record);
  tell("change its record", ::open(record.c_str(), O_WRONLY | O_CLOEXEC) >= 0);
  tell("replace its record", ::rename((own + "/attack.txt").c_str(), record.c_str()) == 0);
  tell("signal the agent", ::kill(::getppid(), SIGUSR2) == 0);
  tell("trace the agent", ::ptrace(PTRACE_ATTACH, ::getppid(), nullptr, nullptr) == 0);
  attackOthers(own, workers);
  tell("list the claims", ::opendir(option("--claims").c_str()) != nullptr);
  tell("list the tenants' images", ::opendir(option("--image-cache").c_str()) != nullptr);
  const std::string gates = option("--gates");
  const std::string gate = gates + "/" + option("--gate-device");
  tellRead(gate);
  tell("cut the time slicer's table", ::truncate(gate.c_str(), 0) == 0);
  tell("replace the time slicer's table", ::rename((own + "/attack.txt").c_str(), gate.c_str()) == 0);
  tell("list the time slicer's tables", ::opendir(gates.c_str()) != nullptr);
  report << "overwrote " << overwrite(gate) << " bytes\n" << std::flush;
  char* none[] = {nullptr};
  char shell[] = "/bin/sh";
  char* arguments[] = {shell, nullptr};
  tell("open a connection", ::socket(AF_INET, SOCK_STREAM, 0) >= 0);
  tell("be root", ::setuid(0) == 0);
  tell("start a process", ::syscall(SYS_fork) >= 0);
  tell("start a program", ::execve(shell, arguments, none) == 0);
  report.close();
}

}  // namespace

extern "C" [[gnu::visibility("default")]] CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY,
                                                                  unsigned gridZ, unsigned blockX, unsigned blockY,
                                                                  unsigned blockZ, unsigned sharedBytes,
                                                                  CUstream stream, void** parameters, void** extra) {
  static std::once_flag once;
  std::call_once(once, attack);
  static const auto next = reinterpret_cast<decltype(&::cuLaunchKernel)>(::dlsym(RTLD_NEXT, "cuLaunchKernel"));
  return next(function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream, parameters, extra);
}
