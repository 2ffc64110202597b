// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/host/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "softgpu/driver/host/log.h"

namespace millpond::softgpu {

struct Ledger::Entry {
  uint64_t pid;           // 0 = free
  uint64_t startTime;     // distinguishes the process from a later one with the same ID
  uint64_t pidNamespace;  // the IDs of another namespace mean nothing here
  uint64_t bytes;
};

namespace {

constexpr size_t kMostEntries = 4096;

uint64_t ownPidNamespace() {
  static const uint64_t inode = [] {
    struct stat status {};
    return ::stat("/proc/self/ns/pid", &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
  }();
  return inode;
}

}  // namespace

uint64_t processStartTime(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!file || !std::getline(file, line)) return 0;
  // The second field, a name in parentheses, may itself hold spaces and parentheses.
  const size_t nameEnd = line.rfind(')');
  if (nameEnd == std::string::npos) return 0;
  std::istringstream fields(line.substr(nameEnd + 1));
  std::string state;
  fields >> state;
  if (state == "Z" || state == "X") return 0;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  uint64_t startTime = 0;
  fields >> startTime;
  // A sandbox without this value may report 0; such a process still counts as alive.
  return fields ? startTime + 1 : 0;
}

/// The ledger's file, locked against this process's threads and other processes, and read.
class Ledger::Locked {
 public:
  explicit Locked(Ledger& ledger) : ledger_(ledger), guard_(ledger.mutex_) {
    int locked;
    do {
      locked = ::flock(ledger_.file_.get(), LOCK_EX);
    } while (locked != 0 && errno == EINTR);
    if (locked != 0) complain("lock");
    struct stat status {};
    if (::fstat(ledger_.file_.get(), &status) != 0) complain("inspect");
    const auto size = static_cast<size_t>(status.st_size);
    entries_.resize(std::min(size / sizeof(Entry), kMostEntries));
    const size_t wanted = entries_.size() * sizeof(Entry);
    if (wanted && ::pread(ledger_.file_.get(), entries_.data(), wanted, 0) != static_cast<ssize_t>(wanted)) {
      complain("read");
    }
  }
  ~Locked() { ::flock(ledger_.file_.get(), LOCK_UN); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  /// Sums up the other processes' use.
  uint64_t usedByOthers() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (i != ledger_.slot_) sum += entries_[i].bytes;
    }
    return sum;
  }

  /// Frees the entries of processes that no longer exist.
  void reclaim() {
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Entry& entry = entries_[i];
      if (entry.pid == 0 || i == ledger_.slot_ || entry.pidNamespace != ownPidNamespace()) continue;
      if (processStartTime(static_cast<int>(entry.pid)) == entry.startTime) continue;
      log(LogLevel::debug,
          "process " + std::to_string(entry.pid) + " is gone: reclaiming " + std::to_string(entry.bytes) + " bytes");
      write(i, Entry{});
    }
  }

  /// Writes this process's use, taking a free entry the first time. False if all entries are taken by living processes.
  bool writeOwn(uint64_t bytes) {
    if (ledger_.slot_ == UINT64_MAX) {
      size_t free = findFree();
      if (free == entries_.size()) {
        // Reuses the entry of a dead process rather than adding one: every process would read it from then on.
        reclaim();
        free = findFree();
      }
      if (free == kMostEntries) return false;
      if (free == entries_.size()) entries_.push_back(Entry{});
      ledger_.slot_ = free;
    }
    ledger_.own_ = bytes;
    const auto pid = static_cast<uint64_t>(ledger_.pid_);
    return write(ledger_.slot_, {pid, ledger_.startTime_, ownPidNamespace(), bytes});
  }

 private:
  size_t findFree() const {
    size_t free = 0;
    while (free < entries_.size() && entries_[free].pid != 0) ++free;
    return free;
  }
  bool write(size_t index, const Entry& entry) {
    if (index < entries_.size()) entries_[index] = entry;
    const auto offset = static_cast<off_t>(index * sizeof(Entry));
    if (::pwrite(ledger_.file_.get(), &entry, sizeof(entry), offset) == sizeof(entry)) return true;
    complain("write");
    return false;
  }
  void complain(const char* what) {
    log(LogLevel::error, std::string("cannot ") + what + " " + ledger_.path_ + ": " + std::strerror(errno));
  }

  Ledger& ledger_;
  std::lock_guard<std::mutex> guard_;
  std::vector<Entry> entries_;
};

Result<std::unique_ptr<Ledger>> Ledger::open(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Error{"cannot open " + path + ": " + std::strerror(errno)};
  return std::make_unique<Ledger>(std::move(file), path);
}

Ledger::Ledger(UniqueFd file, std::string path)
    : file_(std::move(file)), path_(std::move(path)), pid_(::getpid()), startTime_(processStartTime(pid_)) {}

Ledger::~Ledger() {
  if (slot_ == UINT64_MAX) return;
  Locked(*this).writeOwn(0);
}

bool Ledger::charge(uint64_t bytes, uint64_t capacity) {
  Locked locked(*this);
  const auto fits = [&] {
    const uint64_t used = locked.usedByOthers() + own_;
    return used <= capacity && bytes <= capacity - used;
  };
  if (!fits()) locked.reclaim();
  return fits() && locked.writeOwn(own_ + bytes);
}

void Ledger::release(uint64_t bytes) {
  Locked locked(*this);
  locked.writeOwn(bytes < own_ ? own_ - bytes : 0);
}

uint64_t Ledger::used() {
  Locked locked(*this);
  locked.reclaim();
  return locked.usedByOthers() + own_;
}

}  // namespace millpond::softgpu
