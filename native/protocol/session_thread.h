// SPDX-License-Identifier: Apache-2.0
// Threads of a session inside the program's process.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace millpond {

/// Starts a thread with the program's signals blocked: these must be delivered to the program's threads. Returns false if the
/// system refuses.
inline bool startSessionThread(pthread_t& thread, void* (*main)(void*), void* of) {
  sigset_t all, before;
  ::sigfillset(&all);
  // Faults, however, are delivered to the thread that causes them, because it accesses the program's memory.
  ::sigdelset(&all, SIGSEGV);
  ::sigdelset(&all, SIGBUS);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool isStarted = ::pthread_create(&thread, nullptr, main, of) == 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return isStarted;
}

}  // namespace millpond
