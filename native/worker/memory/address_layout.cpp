// SPDX-License-Identifier: Apache-2.0
#include "worker/memory/address_layout.h"

#include <sys/auxv.h>
#include <sys/personality.h>
#include <unistd.h>

namespace millpond::worker {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasPlacesOfItsOwn = true;
#else
constexpr bool kHasPlacesOfItsOwn = false;
#endif

constexpr unsigned long kAsk = 0xffff'ffff;

}  // namespace

void leaveTopToPrograms(char** argv) {
  // A program that gains rights on exec loses the layout.
  if (kHasPlacesOfItsOwn || ::getauxval(AT_SECURE) != 0) return;
  const int now = ::personality(kAsk);
  if (now < 0 || now & ADDR_COMPAT_LAYOUT) return;
  if (::personality(static_cast<unsigned long>(now) | ADDR_COMPAT_LAYOUT) < 0) return;
  ::execv("/proc/self/exe", argv);
  // Without /proc it continues with the default layout.
}

}  // namespace millpond::worker
