// SPDX-License-Identifier: Apache-2.0
#include "names/readable_name.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>

/// The demangler of the C++ library, which writes a name piece by piece instead of allocating the whole. Returns 0 if the name
/// is complete.
extern "C" int __gcclibcxx_demangle_callback(const char* mangled, void (*piece)(const char*, size_t, void*),
                                             void* opaque);

namespace millpond {
namespace {

/// The demangler's recursion grows with the length of the name.
constexpr size_t kMostMangled = 16384;

/// The begin of a name that is being written.
struct Begin {
  std::array<char, kMostReadable> text;
  size_t bytes;
  std::jmp_buf full;
};

/// A jump is the only way to end the demangler early; it has nothing to release.
void append(const char* text, size_t bytes, void* opaque) {
  Begin& begin = *static_cast<Begin*>(opaque);
  const size_t fits = std::min(bytes, begin.text.size() - begin.bytes);
  std::memcpy(begin.text.data() + begin.bytes, text, fits);
  begin.bytes += fits;
  if (fits < bytes) std::longjmp(begin.full, 1);
}

/// Whether it is one. No object here needs a destructor, which a jump would skip.
bool write(const char* mangled, Begin& begin) {
  begin.bytes = 0;
  if (setjmp(begin.full) != 0) return true;
  return __gcclibcxx_demangle_callback(mangled, &append, &begin) == 0;
}

}  // namespace

std::string readableName(std::string_view mangled) {
  std::string name(mangled);
  if (!name.starts_with("_Z") || name.size() > kMostMangled) return name;
  Begin begin;
  return write(name.c_str(), begin) ? std::string(begin.text.data(), begin.bytes) : name;
}

}  // namespace millpond
