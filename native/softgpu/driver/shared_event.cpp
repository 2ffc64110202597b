// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/shared_event.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "softgpu/driver/ledger.h"
#include "softgpu/driver/pages.h"

namespace millpond::softgpu {
namespace {

/// What a handle says: where the page is open, and what is written in it.
struct HandleBytes {
  uint64_t pid;
  uint64_t startTime;
  uint64_t file;
  uint64_t nonce;
  std::byte unused[32];
};
static_assert(sizeof(HandleBytes) == sizeof(CUipcEventHandle));

}  // namespace

struct SharedEvent::Page {
  uint64_t nonce;
  std::atomic<uint64_t> recorded;
  std::atomic<uint64_t> reached;
  /// Of the process that recorded last.
  std::atomic<uint64_t> pid;
  std::atomic<uint64_t> startTime;
};

SharedEvent::Page* SharedEvent::map(int file) {
  void* page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return page == MAP_FAILED ? nullptr : static_cast<Page*>(page);
}

std::shared_ptr<SharedEvent> SharedEvent::make() {
  UniqueFd file(::memfd_create("softgpu-event", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), kPageBytes) != 0) return nullptr;
  Page* page = map(file.get());
  if (!page) return nullptr;
  // Only so that a file of that number which is another one is told from it.
  if (::getrandom(&page->nonce, sizeof page->nonce, 0) != sizeof page->nonce) page->nonce = 0;
  return std::shared_ptr<SharedEvent>(new SharedEvent(std::move(file), page, true));
}

CUresult SharedEvent::open(const CUipcEventHandle& handle, std::shared_ptr<SharedEvent>* event) {
  HandleBytes bytes;
  std::memcpy(&bytes, &handle, sizeof bytes);
  const auto pid = static_cast<int>(bytes.pid);
  if (pid <= 0 || bytes.pid != static_cast<uint64_t>(pid) || processStartTime(pid) != bytes.startTime)
    return CUDA_ERROR_MAP_FAILED;
  if (pid == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(bytes.file);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) != kPageBytes)
    return CUDA_ERROR_MAP_FAILED;
  Page* page = map(file.get());
  if (!page) return CUDA_ERROR_MAP_FAILED;
  std::shared_ptr<SharedEvent> opened(new SharedEvent(std::move(file), page, false));
  if (page->nonce != bytes.nonce) return CUDA_ERROR_MAP_FAILED;
  *event = std::move(opened);
  return CUDA_SUCCESS;
}

SharedEvent::~SharedEvent() { ::munmap(page_, kPageBytes); }

CUipcEventHandle SharedEvent::handle() const {
  const auto pid = static_cast<uint64_t>(::getpid());
  const HandleBytes bytes{.pid = pid,
                          .startTime = processStartTime(::getpid()),
                          .file = static_cast<uint64_t>(file_.get()),
                          .nonce = page_->nonce,
                          .unused = {}};
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
