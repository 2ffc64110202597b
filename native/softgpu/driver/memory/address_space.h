// SPDX-License-Identifier: Apache-2.0
// The driver's knowledge of this process's addresses: every piece of memory that calls and kernels may name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

/// One allocation, mapping or registration.
struct Region {
  enum class Kind {
    allocated,   // cuMemAlloc and related calls
    variable,    // of a module
    mapped,      // cuMemMap
    host,        // cuMemHostAlloc and related calls
    registered,  // cuMemHostRegister
    heap,        // malloc() in kernels: only kernels use it; no call of the driver accepts it
  };
  Kind kind = Kind::allocated;
  uint64_t base = 0;
  uint64_t bytes = 0;    // requested size
  uint64_t reach = 0;    // bytes that kernels may access: at least `bytes`; real memory is allocated in larger pieces
  int device = -1;       // ordinal; -1 for host memory
  uint64_t context = 0;  // Context::id of the owner; 0 for mapped memory, which has none
  CUcontext contextHandle = nullptr;
  bool isReadable = true;     // by the device
  bool isWritable = true;     // by the device
  bool isManaged = false;     // a variable that the host can access, too
  unsigned hostFlags = 0;     // as passed to the call that created it
  unsigned long long id = 0;  // CU_POINTER_ATTRIBUTE_BUFFER_ID

  uint64_t end() const { return base + bytes; }
  bool isHost() const { return kind == Kind::host || kind == Kind::registered; }
};
using RegionPtr = std::shared_ptr<const Region>;

enum class Access { read, write };

class AddressSpace {
 public:
  /// Adds a region and assigns its ID. False if it overlaps another. A registration whose memory is gone is replaced.
  bool add(Region region);
  /// The region that contains `address`; null: there is none.
  RegionPtr find(uint64_t address) const;
  /// Removes the region that begins at `base`; null if there is none or it is of another kind.
  RegionPtr remove(uint64_t base, Region::Kind kind);
  std::vector<RegionPtr> removeOwnedBy(uint64_t context);
  /// Changes the device's access to the region that begins at `base`.
  void setAccess(uint64_t base, bool isReadable, bool isWritable);
  /// The region that begins at `base` is a managed variable.
  void setManaged(uint64_t base);
  bool overlaps(uint64_t address, uint64_t bytes) const;

  /// Whether all bytes are known memory, possibly of several adjacent regions, that allows the access. True for zero
  /// bytes.
  bool covers(uint64_t address, uint64_t bytes, Access access) const;
  /// The region around or nearest to an address; null if there is none within `reach` bytes.
  RegionPtr nearest(uint64_t address, uint64_t reach) const;
  /// Like findForKernel(), limited exactly to the requested size.
  ptx::MemoryMap::Range findExactly(uint64_t address, int device) const;
  /// The memory around `address` that a kernel on `device` may access.
  ptx::MemoryMap::Range findForKernel(uint64_t address, int device) const;

 private:
  using Regions = std::map<uint64_t, RegionPtr>;
  Regions::const_iterator locate(uint64_t address) const;

  mutable std::shared_mutex mutex_;
  Regions regions_;  // by base
  unsigned long long lastId_ = 0;
};

/// The memory that kernels of one device can access: that device's and the host's.
class KernelMemory final : public ptx::MemoryMap {
 public:
  KernelMemory(const AddressSpace& space, int device) : space_(space), device_(device) {}
  Range find(uint64_t address) const override { return space_.findForKernel(address, device_); }

 private:
  const AddressSpace& space_;
  const int device_;
};

}  // namespace millpond::softgpu
