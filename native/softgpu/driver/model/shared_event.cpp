// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/model/shared_event.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "softgpu/driver/host/ledger.h"
#include "softgpu/driver/host/pages.h"

namespace millpond::softgpu {
namespace {

/// The contents of a handle: the process and the number that name the page's file, and the page's nonce.
struct HandleBytes {
  uint64_t pid;
  uint64_t startTime;
  uint64_t number;
  uint64_t nonce;
  std::byte unused[32];
};
static_assert(sizeof(HandleBytes) == sizeof(CUipcEventHandle));

/// Files of shared memory, like those of the real driver: processes that may not access each other's memory can open
/// them.
constexpr std::string_view kPrefix = "softgpu-event.";

std::string nameOf(int pid, uint64_t number) {
  return "/" + std::string(kPrefix) + std::to_string(pid) + "." + std::to_string(number);
}

/// Removes the files of processes that were killed.
void removeStale() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/dev/shm"), ::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    std::string_view name = entry->d_name;
    if (!name.starts_with(kPrefix)) continue;
    name.remove_prefix(kPrefix.size());
    int pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && *end == '.' && processStartTime(pid) == 0) ::shm_unlink(entry->d_name);
  }
}

}  // namespace

struct SharedEvent::Page {
  uint64_t nonce;
  std::atomic<uint64_t> recorded;
  std::atomic<uint64_t> reached;
  /// Pid of the process that recorded last.
  std::atomic<uint64_t> pid;
  std::atomic<uint64_t> startTime;
};

SharedEvent::Page* SharedEvent::map(int file) {
  void* page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return page == MAP_FAILED ? nullptr : static_cast<Page*>(page);
}

std::shared_ptr<SharedEvent> SharedEvent::make() {
  static std::once_flag isTidy;
  std::call_once(isTidy, removeStale);
  static std::atomic<uint64_t> last{0};
  const uint64_t number = ++last;
  const std::string name = nameOf(::getpid(), number);
  UniqueFd file(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  Page* page = file && ::ftruncate(file.get(), kPageBytes) == 0 ? map(file.get()) : nullptr;
  if (!page) {
    if (file) ::shm_unlink(name.c_str());
    return nullptr;
  }
  // The nonce only distinguishes the file from a later one of the same name.
  if (::getrandom(&page->nonce, sizeof page->nonce, 0) != sizeof page->nonce) page->nonce = 0;
  return std::shared_ptr<SharedEvent>(new SharedEvent(page, number));
}

CUresult SharedEvent::open(const CUipcEventHandle& handle, std::shared_ptr<SharedEvent>* event) {
  HandleBytes bytes;
  std::memcpy(&bytes, &handle, sizeof bytes);
  const auto pid = static_cast<int>(bytes.pid);
  if (pid <= 0 || bytes.pid != static_cast<uint64_t>(pid) || processStartTime(pid) != bytes.startTime)
    return CUDA_ERROR_MAP_FAILED;
  if (pid == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  UniqueFd file(::shm_open(nameOf(pid, bytes.number).c_str(), O_RDWR | O_CLOEXEC, 0));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) != kPageBytes)
    return CUDA_ERROR_MAP_FAILED;
  Page* page = map(file.get());
  if (!page) return CUDA_ERROR_MAP_FAILED;
  std::shared_ptr<SharedEvent> opened(new SharedEvent(page, 0));
  if (page->nonce != bytes.nonce) return CUDA_ERROR_MAP_FAILED;
  *event = std::move(opened);
  return CUDA_SUCCESS;
}

SharedEvent::~SharedEvent() {
  ::munmap(page_, kPageBytes);
  if (isOwn()) ::shm_unlink(nameOf(::getpid(), number_).c_str());
}

CUipcEventHandle SharedEvent::handle() const {
  const auto pid = static_cast<uint64_t>(::getpid());
  const HandleBytes bytes{
      .pid = pid, .startTime = processStartTime(::getpid()), .number = number_, .nonce = page_->nonce, .unused = {}};
  CUipcEventHandle handle{};
  std::memcpy(&handle, &bytes, sizeof bytes);
  return handle;
}

uint64_t SharedEvent::record() {
  page_->startTime = processStartTime(::getpid());
  page_->pid = static_cast<uint64_t>(::getpid());
  return ++page_->recorded;
}

void SharedEvent::reach(uint64_t point) {
  uint64_t before = page_->reached;
  while (before < point && !page_->reached.compare_exchange_weak(before, point)) {
  }
}

uint64_t SharedEvent::last() const { return page_->recorded; }

bool SharedEvent::isReached(uint64_t point) const {
  if (page_->reached >= point) return true;
  return processStartTime(static_cast<int>(page_->pid.load())) != page_->startTime;
}

}  // namespace millpond::softgpu
