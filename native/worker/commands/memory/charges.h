// SPDX-License-Identifier: Apache-2.0
// Device memory that the driver allocates for a session is charged to its claim: before the call where the size is known;
// otherwise afterwards, by the difference in free memory, and the object is destroyed again if that exceeds the limit.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "worker/claim/driver_memory.h"
#include "worker/core/budgets.h"
#include "worker/core/host_charge.h"
#include "worker/core/session_part.h"
#include "worker/images/image_memory.h"

namespace millpond::worker {

class Charges : private SessionPart {
 public:
  using Of = DriverMemory::Of;

  Charges(SessionCore& session, Budgets& budgets, ClaimCounts& counts);

  const DriverCosts& costs(size_t device) const { return costs_[device]; }
  /// Bytes of a device that are charged.
  uint64_t bytesOn(size_t device) const { return charged_.bytesOn(device); }

  CUresult context(uint32_t number, uint16_t device);
  /// One more in the current context.
  CUresult stream();
  /// Charges the local memory of a function or kernel (`kind`), as the driver reports it, for every thread that the
  /// bound context's device can run at a time. Nothing is charged without a bound context or known costs.
  CUresult localMemory(HandleKind kind, void* function);
  /// Sets a limit of the current context, and charges the device memory for it.
  CUresult setLimit(CUlimit limit, uint64_t value);
  /// What a module needs, or a library in each context.
  CUresult module(uint64_t wire, const ImageMemory& memory);
  /// The driver's copy of a module's image, in host memory.
  CUresult image(uint64_t wire, uint64_t bytes);
  /// A module that the driver does not have.
  void dropModule(uint64_t wire);
  /// Charges the decrease of the device's free memory, at most `most`; destroys the object if that does not fit.
  CUresult measured(Of what, uint64_t number, uint16_t context, uint64_t most, const std::function<CUresult()>& make,
                    const std::function<void()>& unmake);
  void drop(Of what, uint64_t number);
  /// A context that the driver does not have.
  void dropContext(uint64_t number) { ended(retireContext(number, newEnding())); }

  // A charge is returned when the driver has released the memory, possibly after other commands: earlier, another
  // session could allocate the memory.

  uint64_t newEnding() { return ++lastEnding_; }
  void retireModule(uint64_t wire, uint64_t ending);
  /// Everything that ends with a context, except for its modules. Returns `ending`.
  uint64_t retireContext(uint64_t number, uint64_t ending);
  /// The driver has released it.
  void ended(uint64_t ending);

 private:
  /// Sets the device memory that the driver has allocated. Returns false, and logs a line, if it does not fit.
  bool charge(Of what, uint64_t number, uint16_t context, uint64_t bytes, const char* why);
  /// Every thread that the device can run has that much.
  CUresult stacks(uint16_t number, uint64_t bytesOfEach, const char* why);
  /// The memory that the driver keeps in a context from the first module on that calls these functions of the device's
  /// runtime. It remains charged to the context after the module has ended.
  bool runtime(uint32_t number, uint16_t device, const ImageMemory& memory);

  Budgets& budgets_;
  ClaimCounts& counts_;
  DriverMemory charged_;
  uint64_t lastEnding_ = 0;
  std::vector<DriverCosts> costs_;  ///< by device
  std::unordered_map<uint64_t, ImageMemory> libraries_;
  std::unordered_map<uint64_t, HostCharge> code_;  ///< by module
  uint64_t libraryBytes_ = 0;                      ///< variables of all of them, in one context
};

}  // namespace millpond::worker
