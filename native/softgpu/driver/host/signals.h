// SPDX-License-Identifier: Apache-2.0
// Keeps the program's signals away from the driver's threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace millpond::softgpu {

/// During its lifetime, threads started by the calling thread have all signals blocked, except those for errors in the
/// thread itself.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    ::sigfillset(&blocked);
    for (int error : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) ::sigdelset(&blocked, error);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace millpond::softgpu
