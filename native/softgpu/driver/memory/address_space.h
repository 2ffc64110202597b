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
    allocated,   // cuMemAlloc and its kin
    variable,    // of a module
    mapped,      // cuMemMap
    host,        // cuMemHostAlloc and its kin
    registered,  // cuMemHostRegister
    heap,        // of malloc() in kernels: for them alone, no call of the driver takes it
  };
  Kind kind = Kind::allocated;
  uint64_t base = 0;
  uint64_t bytes = 0;    // as asked for
  uint64_t reach = 0;    // bytes that kernels may touch: at least `bytes`; real memory comes in larger pieces
  int device = -1;       // ordinal; -1 for host memory
  uint64_t context = 0;  // Context::id of the owner; 0 for mapped memory, which has none
  CUcontext contextHandle = nullptr;
  bool isReadable = true;     // by the device
  bool isWritable = true;     // by the device
  bool isManaged = false;     // a variable that is the host's, too
  unsigned hostFlags = 0;     // as given to the call that made it
  unsigned long long id = 0;  // CU_POINTER_ATTRIBUTE_BUFFER_ID

  uint64_t end() const { return base + bytes; }
  bool isHost() const { return kind == Kind::host || kind == Kind::registered; }
};
using RegionPtr = std::shared_ptr<const Region>;

enum class Access { read, write };

class AddressSpace {
 public:
  /// Adds a region and gives it its ID. False when it overlaps another. A registration of memory that is gone
  /// gives way.
  bool add(Region region);
  /// The region whose bytes `address` is one of; null when there is none.
  RegionPtr find(uint64_t address) const;
  /// Takes out the region that begins at `base`; null when there is none or its kind is another.
  RegionPtr remove(uint64_t base, Region::Kind kind);
  std::vector<RegionPtr> removeOwnedBy(uint64_t context);
  /// Changes the device's access to the region that begins at `base`.
  void setAccess(uint64_t base, bool isReadable, bool isWritable);
  /// The region that begins at `base` is a managed variable.
  void setManaged(uint64_t base);
  bool overlaps(uint64_t address, uint64_t bytes) const;

  /// Whether all bytes are known memory, perhaps of several regions side by side, that allows the access.
  /// True for none.
  bool covers(uint64_t address, uint64_t bytes, Access access) const;
  /// The region nearest to an address, or around it; null when there is none at most `reach` bytes away.
  RegionPtr nearest(uint64_t address, uint64_t reach) const;
  /// As findForKernel(), limited to the requested size, to the byte.
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

/// The memory as kernels of one device see it: that device's and the host's.
class KernelMemory final : public ptx::MemoryMap {
 public:
  KernelMemory(const AddressSpace& space, int device) : space_(space), device_(device) {}
  Range find(uint64_t address) const override { return space_.findForKernel(address, device_); }

 private:
  const AddressSpace& space_;
  const int device_;
};

}  // namespace millpond::softgpu
