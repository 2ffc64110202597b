// SPDX-License-Identifier: Apache-2.0
#include "client/memory/mirror/fault_handler.h"

#include <signal.h>
#include <sys/prctl.h>
#include <ucontext.h>

#include <array>
#include <cerrno>
#include <mutex>

#include "client/addresses/helper_thread.h"
#include "client/process/host_functions.h"
#include "protocol/futex.h"

namespace millpond::client {
namespace {

/// Lives in the handler's frame.
struct Request {
  static constexpr uint32_t kOpen = 0, kServed = 1, kForeign = 2;
  FaultHandler::Fault fault;
  Request* next = nullptr;
  std::atomic<uint32_t> state{kOpen};
};

struct Server {
  std::atomic<Request*> queue{nullptr};
  std::atomic<uint32_t> count{0};  ///< number of requests so far, on which the thread sleeps
};

/// Handlers of the program, the newest last. A handler that was installed after ours may call ours for faults that are
/// not its own: these go to the previous one.
struct Previous {
  static constexpr size_t kMost = 16;
  std::array<struct sigaction, kMost> actions{};
  std::atomic<size_t> count{0};
};

Server ordinary, ofHostFunctions;
Previous previous;
FaultHandler::Serve serveFault = nullptr;
void* servedBy = nullptr;
std::atomic<uint64_t> lowest{UINT64_MAX}, highest{0};
std::atomic<bool> isActive{false};

/// A fault that was passed on, so that it is recognized if it comes back.
struct Passed {
  const void* info = nullptr;
  const void* frame = nullptr;  ///< stack frame of the handler that passed it on
  size_t level = 0;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit Passed passed{};

bool isWriteFault([[maybe_unused]] const ucontext_t& context) {
#if defined(__x86_64__)
  return (context.uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  return true;
#endif
}

/// Requests the pages from the serving thread, and waits for its answer.
bool isServed(const siginfo_t& info, const ucontext_t& context) {
  const auto address = reinterpret_cast<uint64_t>(info.si_addr);
  if (info.si_code != SEGV_ACCERR || !isActive.load(std::memory_order_acquire)) return false;
  if (address < lowest.load(std::memory_order_relaxed) || address >= highest.load(std::memory_order_relaxed))
    return false;
  Request request;
  request.fault = {address, isWriteFault(context), HostFunctions::running()};
  Server& server = request.fault.inHostFunction ? ofHostFunctions : ordinary;
  request.next = server.queue.load(std::memory_order_relaxed);
  while (!server.queue.compare_exchange_weak(request.next, &request, std::memory_order_acq_rel)) continue;
  server.count.fetch_add(1, std::memory_order_acq_rel);
  futexWake(server.count);
  while (request.state.load(std::memory_order_acquire) == Request::kOpen) futexWait(request.state, Request::kOpen);
  return request.state.load(std::memory_order_relaxed) == Request::kServed;
}

/// The kernel's default action: the instruction, or the signal, is repeated.
void endByDefault(int signal, const siginfo_t* info) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  if (!info || info->si_code <= 0) ::raise(signal);
}

void call(struct sigaction& action, int signal, siginfo_t* info, void* context) {
  const bool isIgnored = !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_IGN;
  if (isIgnored && info && info->si_code <= 0) return;
  if (isIgnored || (!(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL)) {
    endByDefault(signal, info);
    return;
  }
  sigset_t masked = action.sa_mask, before;
  if (!(action.sa_flags & SA_NODEFER)) ::sigaddset(&masked, signal);
  ::pthread_sigmask(SIG_BLOCK, &masked, &before);
  const struct sigaction now = action;
  if (action.sa_flags & static_cast<int>(SA_RESETHAND)) {
    action.sa_flags &= ~SA_SIGINFO;
    action.sa_handler = SIG_DFL;
  }
  if (now.sa_flags & SA_SIGINFO)
    now.sa_sigaction(signal, info, context);
  else
    now.sa_handler(signal);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void passOn(int signal, siginfo_t* info, void* context, const void* frame) {
  const Passed before = passed;
  // A handler that jumped out has left this entry behind; another fault at the same place has the same stack frame, not
  // a later one.
  const bool isAgain = before.info == info && frame < before.frame;
  const size_t level = isAgain ? before.level + 1 : 0;
  const size_t count = previous.count.load(std::memory_order_acquire);
  if (level >= count) {
    endByDefault(signal, info);
    return;
  }
  passed = {info, frame, level};
  call(previous.actions[count - 1 - level], signal, info, context);
  passed = before;
}

void onFault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (!isServed(*info, *static_cast<const ucontext_t*>(context)))
    passOn(signal, info, context, __builtin_frame_address(0));
  errno = error;
}

bool isOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == &onFault;
}

std::mutex& installMutex() {
  static auto& mutex = *new std::mutex();
  return mutex;
}

void* runServer(void* of) {
  ::prctl(PR_SET_NAME, "millpond-fault");
  Server& server = *static_cast<Server*>(of);
  for (uint32_t seen = 0;;) {
    while (server.count.load(std::memory_order_acquire) == seen) futexWait(server.count, seen);
    seen = server.count.load(std::memory_order_acquire);
    Request* request = server.queue.exchange(nullptr, std::memory_order_acq_rel);
    while (request) {
      Request* next = request->next;
      const uint32_t state = serveFault(servedBy, request->fault) ? Request::kServed : Request::kForeign;
      // The frame may be gone as soon as the state is set, so only its address may be used for waking.
      std::atomic<uint32_t>& word = request->state;
      word.store(state, std::memory_order_release);
      futexWake(word);
      request = next;
    }
  }
  return nullptr;
}

bool startServer(Server& server) { return startHelperThread(&runServer, &server); }

}  // namespace

bool FaultHandler::start(Serve serve, void* of) noexcept {
  {
    const std::lock_guard lock(installMutex());
    if (isActive.load(std::memory_order_relaxed)) return true;
    serveFault = serve;
    servedBy = of;
    if (!startServer(ordinary) || !startServer(ofHostFunctions)) return false;
    isActive.store(true, std::memory_order_release);
  }
  keepInstalled();
  return true;
}

void FaultHandler::cover(uint64_t begin, uint64_t end) noexcept {
  uint64_t known = lowest.load(std::memory_order_relaxed);
  while (begin < known && !lowest.compare_exchange_weak(known, begin)) continue;
  known = highest.load(std::memory_order_relaxed);
  while (end > known && !highest.compare_exchange_weak(known, end)) continue;
}

void FaultHandler::keepInstalled() noexcept {
  struct sigaction now {};
  if (!isActive.load(std::memory_order_acquire) || ::sigaction(SIGSEGV, nullptr, &now) != 0 || isOurs(now)) return;
  const std::lock_guard lock(installMutex());
  struct sigaction ours {};
  ours.sa_sigaction = &onFault;
  // A handler of the program that runs in the meantime may access mirrored memory, too.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigemptyset(&ours.sa_mask);
  if (::sigaction(SIGSEGV, nullptr, &now) != 0 || isOurs(now)) return;
  // If a program sets handlers repeatedly, the newest replaces the previous one.
  const size_t count = previous.count.load(std::memory_order_relaxed);
  const size_t at = count < Previous::kMost ? count : count - 1;
  previous.actions[at] = now;
  previous.count.store(at + 1, std::memory_order_release);
  ::sigaction(SIGSEGV, &ours, nullptr);
}

void FaultHandler::abandon() noexcept { isActive.store(false, std::memory_order_release); }

}  // namespace millpond::client
