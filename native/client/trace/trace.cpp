// SPDX-License-Identifier: Apache-2.0
#include "client/trace/trace.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/log_request.h"
#include "base/thread_owned.h"
#include "client/process/client.h"
#include "client/process/threads.h"
#include "client/session/remote.h"
#include "client/trace/stacks.h"
#include "client/trace/trace_line.h"
#include "client/trace/trace_tables.h"
#include "protocol/client/session_client.h"

namespace millpond::client::trace {
namespace {

/// The open file. Written by the thread that opens it, before `state` says so; each line is then appended by one
/// write(), so that there is nothing to lock or flush, and no line of another process is overwritten.
struct File {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;
  pid_t process = 0;
  int64_t start = 0;
  bool isOfProfile = false;
  bool hasStacks = false;
};
File file;

/// Lines of a profile that are not written yet. A forked child has its own: a thread of the parent may have been using
/// this one.
struct Kept {
  std::mutex mutex;
  std::string lines;
};
std::atomic<Kept*> kept{nullptr};
constexpr size_t kMostKept = size_t{64} << 10;

std::atomic<Observer> observer{nullptr};

struct OfThread {
  Notes notes;
  /// The process id, which the kernel is asked for only once in a process.
  long number = 0;
  pid_t process = 0;
};

long threadId() noexcept {
  OfThread& own = threadOwned<OfThread>();
  if (own.process != file.process) {
    own.number = ::syscall(SYS_gettid);
    own.process = file.process;
  }
  return own.number;
}

int64_t clockNs(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// The name with %p, %h and %% replaced.
std::string expand(std::string_view pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'p') {
      name += std::to_string(::getpid());
    } else if (next == 'h') {
      char host[HOST_NAME_MAX + 1] = {};
      ::gethostname(host, sizeof host - 1);
      name += host;
    } else {
      name += pattern[i];
      if (next != '%') continue;
    }
    ++i;
  }
  return name;
}

/// Writes a line if the descriptor still refers to the trace file: programs that become daemons close all descriptors, after
/// which the number may refer to another file.
bool append(std::string_view line) noexcept {
  struct stat now {};
  if (::fstat(file.fd, &now) != 0 || now.st_dev != file.device || now.st_ino != file.inode) return false;
  ssize_t written;
  do {
    written = ::write(file.fd, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(line.size());
}

std::string programLine() {
  std::array<char, 400> text{};
  const int fd = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const ssize_t got = ::read(fd, text.data(), text.size());
  ::close(fd);
  std::string program(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  while (!program.empty() && program.back() == '\0') program.pop_back();
  for (char& c : program)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return program;
}

/// The line before a process's calls.
std::string header() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  std::array<char, 120> text;
  std::snprintf(text.data(), text.size(),
                "# millpond trace 1, process %d, started %04d-%02d-%02dT%02d:%02d:%02d.%06ldZ, program ", ::getpid(),
                utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                now.tv_nsec / 1000);
  return text.data() + programLine() + '\n';
}

/// Writes a line now, or with others.
bool put(std::string_view line) noexcept {
  Kept* const own = kept.load(std::memory_order_acquire);
  if (!own) return append(line);
  const std::lock_guard lock(own->mutex);
  own->lines += line;
  if (own->lines.size() < kMostKept) return true;
  const bool isWritten = append(own->lines);
  own->lines.clear();
  return isWritten;
}

/// Whether the file is written. Even without it, calls may be observed.
std::atomic<bool> writes{false};

void endHere() noexcept {
  if (!writes.exchange(false)) return;
  log(LogLevel::Error, "the trace ends here: its file is full or closed");
  State on = State::kOn;
  if (!observer.load(std::memory_order_acquire)) state.compare_exchange_strong(on, State::kOff);
}

/// The child has its own file, or at least its own lines; unfinished work of a parent's thread does not concern it.
void afterForkInChild() {
  if (state.load(std::memory_order_relaxed) == State::kOff) return;
  // The parent's profiler has no session here.
  observer.store(nullptr, std::memory_order_relaxed);
  if (writes.exchange(false)) ::close(file.fd);
  kept.store(nullptr, std::memory_order_relaxed);
  if (file.hasStacks) forgetStacks();
  state.store(State::kUnread, std::memory_order_relaxed);
}

void watchForks() noexcept {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &afterForkInChild);
  (void)registered;
}

bool open() noexcept {
  const char* text = std::getenv("MILLPOND_LOG");
  const auto request = parseLogRequest(text ? text : "");
  if (!request || request->traceFile.empty()) return false;
  const std::string name = expand(request->traceFile);
  file.fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
  struct stat opened {};
  if (file.fd < 0 || ::fstat(file.fd, &opened) != 0) {
    log(LogLevel::Error, "no trace: %s: %s", name.c_str(), std::strerror(errno));
    return false;
  }
  file.device = opened.st_dev;
  file.inode = opened.st_ino;
  watchForks();
  file.process = ::getpid();
  file.start = clockNs(CLOCK_MONOTONIC);
  const char* const profile = std::getenv("MILLPOND_PROFILE");
  file.isOfProfile = profile && *profile;
  // Never deleted: threads write until the process ends.
  if (file.isOfProfile) kept.store(std::make_unique<Kept>().release(), std::memory_order_release);
  const char* stacks = std::getenv("MILLPOND_TRACE_STACKS");
  file.hasStacks = stacks && std::strcmp(stacks, "1") == 0;
  if (append(header())) return true;
  log(LogLevel::Error, "no trace: cannot write %s: %s", name.c_str(), std::strerror(errno));
  return false;
}

const FunctionInfo* function(uint64_t handle) {
  if (Client::check() != CUDA_SUCCESS) return nullptr;
  const auto kind = handle::kind(handle);
  if (kind != HandleKind::kFunction && kind != HandleKind::kKernel) return nullptr;
  const HandleTable::Slot* slot = Remote::instance().handles.find(handle);
  return slot ? slot->function.get() : nullptr;
}

/// Offset behind all commands of the process; 0: it has no session yet.
uint64_t endOfStream() { return Client::check() == CUDA_SUCCESS ? Client::instance().session().appended() : 0; }

int64_t nowNs() noexcept { return clockNs(CLOCK_REALTIME); }

/// Whether the call is observed although it has sent the worker nothing: it waits for something that may already be
/// done.
bool isWait(uint32_t symbol) {
  static const std::vector<bool> waits = [] {
    std::vector<bool> all(kSymbolCount);
    for (uint32_t i = 0; i < kSymbolCount; ++i) {
      const std::string_view name = kWords + kSymbols[i].name;
      for (const std::string_view each :
           {"cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cuStreamWaitEvent"})
        if (name.starts_with(each)) all[i] = true;
    }
    return all;
  }();
  return waits[symbol];
}

/// Passes a call that took `took` ns to the observer.
void tell(Observer called, uint32_t symbol, CUresult result, std::span<const uint64_t> words, const Notes& told,
          int64_t took) noexcept {
  ObservedCall call;
  const Symbol& entry = kSymbols[symbol];
  call.name = kWords + entry.name;
  call.end = nowNs();
  call.start = call.end - took;
  call.result = result;
  call.waits = told.waits;
  call.hasWorked = told.hasWorked;
  if (told.hasWorked) {
    call.thread = threadNumber();
    call.streamBegin = told.streamBegin;
    call.streamEnd = endOfStream();
  }
  for (size_t i = 0; i < entry.count && i < words.size(); ++i) {
    const Item& parameter = kParameters[entry.first + i];
    if (parameter.kind != Kind::kStream || parameter.shape != Shape::kValue) continue;
    call.hasStream = true;
    call.stream = words[i];
    break;
  }
  called(&call);
}

/// The commands of the session that a call has sent, and its call stack.
std::string callerNotes(uint64_t streamBegin) {
  std::array<char, 120> text;
  std::string notes;
  const uint64_t end = endOfStream();
  if (end > streamBegin) {
    std::snprintf(text.data(), text.size(), "; commands %u/%llu-%llu", threadNumber(),
                  static_cast<unsigned long long>(streamBegin), static_cast<unsigned long long>(end));
    notes += text.data();
  }
  const KnownStack stack = currentStack();
  if (!stack.line.empty()) append(stack.line);
  if (stack.number != 0) {
    std::snprintf(text.data(), text.size(), "; stack %u", stack.number);
    notes += text.data();
  }
  return notes;
}

}  // namespace

void observe(Observer called) noexcept {
  watchForks();
  observer.store(called, std::memory_order_release);
  if (called) {
    // Before the first call of the process, that call decides.
    State off = State::kOff;
    state.compare_exchange_strong(off, State::kOn);
  } else if (!writes.load(std::memory_order_acquire)) {
    State on = State::kOn;
    state.compare_exchange_strong(on, State::kOff);
  }
}

Notes& notes() noexcept { return threadOwned<OfThread>().notes; }

int64_t begin() noexcept {
  State now = state.load(std::memory_order_acquire);
  while (now != State::kOn) {
    if (now == State::kOff) return -1;
    if (now == State::kUnread && state.compare_exchange_strong(now, State::kOpening)) {
      const int saved = errno;
      const bool isOpen = open();
      writes.store(isOpen, std::memory_order_release);
      now = isOpen || observer.load(std::memory_order_acquire) ? State::kOn : State::kOff;
      errno = saved;
      state.store(now, std::memory_order_release);
      continue;
    }
    // Another thread opens the file, which takes microseconds and happens only once.
    ::sched_yield();
    now = state.load(std::memory_order_acquire);
  }
  notes() = {};
  if (file.hasStacks || observer.load(std::memory_order_acquire)) notes().streamBegin = endOfStream();
  return clockNs(CLOCK_MONOTONIC);
}

void write(int64_t start, uint32_t symbol, CUresult result, std::span<const uint64_t> words) noexcept {
  // A call during which the process forked, in a function of the program, began in the parent.
  if (start < 0 || state.load(std::memory_order_acquire) != State::kOn || start < file.start) return;
  const Notes told = notes();
  Observer called = observer.load(std::memory_order_acquire);
  // A framework makes many more calls that only query this process.
  if (called && !told.hasWorked && !isWait(symbol)) called = nullptr;
  const bool isWritten = writes.load(std::memory_order_acquire) && (!file.isOfProfile || told.hasWorked);
  if (!called && !isWritten) return;
  const int64_t took = clockNs(CLOCK_MONOTONIC) - start;
  const int saved = errno;
  if (called) tell(called, symbol, result, words, told, took);
  if (!isWritten) {
    errno = saved;
    return;
  }
  Line line;
  line.putMicroseconds(start - file.start, 14);
  line.put(" +");
  line.putMicroseconds(took);
  line.put(' ');
  line.putSigned(file.process);
  line.put('/');
  line.putSigned(threadId());
  line.put(' ');
  line.putCall({symbol, result, words, file.isOfProfile}, &function);
  std::array<char, 200> tail;
  int length = 0;
  if (told.waits > 0) length = std::snprintf(tail.data(), tail.size(), "; waits %u", told.waits);
  if (told.isEarlierFailure && result != CUDA_SUCCESS)
    length += std::snprintf(&tail[static_cast<size_t>(length)], tail.size() - static_cast<size_t>(length),
                            "; of an earlier call");
  if (file.hasStacks)
    length += std::snprintf(&tail[static_cast<size_t>(length)], tail.size() - static_cast<size_t>(length), "%s",
                            callerNotes(told.streamBegin).c_str());
  if (!put(line.end({tail.data(), static_cast<size_t>(length)}))) endHere();
  errno = saved;
}

namespace {

void writeOut(Kept& own) noexcept {
  const std::lock_guard lock(own.mutex);
  if (!own.lines.empty() && writes.load(std::memory_order_acquire) && !append(own.lines)) endHere();
  own.lines.clear();
}

}  // namespace

void flush() noexcept {
  if (Kept* const own = kept.load(std::memory_order_acquire)) writeOut(*own);
}

void finish() noexcept {
  if (Kept* const own = kept.exchange(nullptr, std::memory_order_acq_rel)) writeOut(*own);
}

}  // namespace millpond::client::trace
