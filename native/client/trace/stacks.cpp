// SPDX-License-Identifier: Apache-2.0
#include "client/trace/stacks.h"

#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

namespace millpond::client::trace {
namespace {

constexpr int kMostFrames = 64;
constexpr size_t kMostStacks = 65536;

/// Never destroyed: programs call the driver while they exit.
struct Stacks {
  std::mutex mutex;
  std::map<std::vector<void*>, uint32_t> numbers;
};
Stacks& stacks() {
  static Stacks& all = *new Stacks();
  return all;
}

/// The file of a module and the offset at which it was loaded; none if no module contains the address.
bool moduleOf(void* address, std::string& file, uintptr_t& moved, std::string& symbol) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || !info.dli_fbase) return false;
  file = info.dli_fname ? info.dli_fname : "";
  symbol = info.dli_sname ? info.dli_sname : "";
  // dladdr1 would return the distance; the C libraries with which this one must load have it under different versions.
  const auto* header = static_cast<const Elf64_Ehdr*>(info.dli_fbase);
  const auto base = reinterpret_cast<uintptr_t>(header);
  moved = header->e_type == ET_EXEC ? 0 : base;
  if (::getauxval(AT_PHDR) != base + header->e_phoff) return true;
  // The program itself is known by the name with which it was started, which may be relative.
  std::array<char, PATH_MAX> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length > 0) file.assign(path.data(), static_cast<size_t>(length));
  return true;
}

void putQuoted(std::string& out, const std::string& text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  out += '"';
}

std::string describe(uint32_t number, const std::vector<void*>& frames) {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), "# stack %d/%u", ::getpid(), number);
  std::string out = text.data();
  for (void* frame : frames) {
    // The call instruction lies before the return address.
    void* const at = static_cast<char*>(frame) - 1;
    std::string file, symbol;
    uintptr_t moved = 0;
    out += ' ';
    putQuoted(out, moduleOf(at, file, moved, symbol) ? file : "");
    std::snprintf(text.data(), text.size(), "+0x%llx",
                  static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(at) - moved));
    out += text.data();
    if (symbol.empty()) continue;
    out += ':';
    putQuoted(out, symbol);
  }
  out += '\n';
  return out;
}

/// Whether an address is in this library.
bool isOwn(void* address) {
  Dl_info own{}, info{};
  static int here;
  return ::dladdr(&here, &own) != 0 && ::dladdr(address, &info) != 0 && own.dli_fbase == info.dli_fbase;
}

}  // namespace

KnownStack currentStack() {
  std::array<void*, kMostFrames> all;
  const int count = ::backtrace(all.data(), kMostFrames);
  int first = 0;
  while (first < count && isOwn(all[static_cast<size_t>(first)])) ++first;
  if (first == count) return {};
  std::vector<void*> frames(all.begin() + first, all.begin() + count);
  Stacks& known = stacks();
  std::lock_guard lock(known.mutex);
  const auto found = known.numbers.find(frames);
  if (found != known.numbers.end()) return {found->second, ""};
  if (known.numbers.size() == kMostStacks) return {};
  const auto number = static_cast<uint32_t>(known.numbers.size()) + 1;
  std::string line = describe(number, frames);
  known.numbers.emplace(std::move(frames), number);
  return {number, std::move(line)};
}

// In a forked child, which has no other thread: one of the parent's may have held the mutex.
void forgetStacks() noexcept {
  Stacks& known = stacks();
  new (&known.mutex) std::mutex();
  known.numbers.clear();
}

}  // namespace millpond::client::trace
