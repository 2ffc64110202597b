// SPDX-License-Identifier: Apache-2.0
// The functions of modules and the kernels of libraries that the program has looked up.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "worker/commands/memory/charges.h"
#include "worker/core/session_part.h"

namespace millpond::worker {

struct FunctionInfo {
  uint32_t parameterBytes = 0;
  /// The driver's functions of a kernel, one in each context in which it was used, by the context's number.
  std::vector<CUfunction> inContext;
  std::vector<uint32_t> layout;  ///< offset and size of each parameter
};

class Functions : private SessionPart {
 public:
  Functions(SessionCore& session, Charges& charges) : SessionPart(session), charges_(charges) {}

  /// The function behind the number of a function, or of a kernel in the current context. Null if the claim has no
  /// memory for it.
  bool functionOrKernel(uint64_t wire, CUfunction& out);
  /// The entry of a function that `functionOrKernel` has found.
  const FunctionInfo& info(uint64_t wire) { return all_[wire]; }
  void add(uint64_t wire, FunctionInfo info);
  void remove(uint64_t wire) { all_.erase(wire); }
  /// The number of the driver's function or kernel; 0: it has none.
  uint64_t wireOf(CUfunction function, CUkernel kernel);
  /// Loads the kernels that the program has looked up onto the device before a function of the client can be pending:
  /// their first launch would wait for that function, whose return only the launching thread receives. Later kernels
  /// are loaded when looked up.
  void load();
  void forgetContext(uint16_t number);

 private:
  void loadKernel(uint64_t wire);

  Charges& charges_;
  std::unordered_map<uint64_t, FunctionInfo> all_;
  bool loadsAll_ = false;  ///< the program has given streams functions
};

}  // namespace millpond::worker
