// SPDX-License-Identifier: Apache-2.0
// The state of an interprocess event that its processes share: a page of memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cuda/gen/cuda_api.h"

namespace millpond::softgpu {

class SharedEvent {
 public:
  /// Null if the system has no memory or descriptors left.
  static std::shared_ptr<SharedEvent> make();
  /// The event of another process, from its handle. CUDA_ERROR_MAP_FAILED if there is none, CUDA_ERROR_INVALID_CONTEXT
  /// if the handle is of this process.
  static CUresult open(const CUipcEventHandle& handle, std::shared_ptr<SharedEvent>* event);

  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  /// Whether this process created it: then it can export its handle.
  bool isOwn() const { return number_ != 0; }
  CUipcEventHandle handle() const;

  /// Number of a point that is being recorded now.
  uint64_t record();
  /// That point has been reached.
  void reach(uint64_t point);
  /// The point recorded last; 0: none.
  uint64_t last() const;
  /// Whether a point has been reached, or never will be because the process that recorded it has ended.
  bool isReached(uint64_t point) const;

 private:
  struct Page;
  SharedEvent(Page* page, uint64_t number) : page_(page), number_(number) {}
  static Page* map(int file);

  Page* const page_;
  const uint64_t number_;  ///< number of its file among those of this process; 0: another process created it
};

}  // namespace millpond::softgpu
