// SPDX-License-Identifier: Apache-2.0
// A compiled module as the executor sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "softgpu/ptx/call_site.h"
#include "softgpu/ptx/engine.h"
#include "softgpu/ptx/instruction.h"
#include "softgpu/ptx/matrix.h"

namespace millpond::softgpu::ptx {

struct FunctionCode {
  std::string name;
  bool isEntry = false;
  bool hasBody = false;
  std::vector<Instruction> code;
  uint32_t registerBytes = 0;  // of a frame, for a warp
  uint32_t localBytes = 0;     // of a frame, for a thread
  uint32_t registers = 0;      // as a compiler for a real device would count them
  uint64_t signature = 0;      // sizes of return values and parameters, to check indirect calls
  // Data that instructions refer to.
  std::vector<std::vector<CallValue>> callValues;
  std::vector<std::unique_ptr<CallSite>> callSites;
  std::vector<std::vector<const Instruction*>> tableTargets;
  std::vector<std::unique_ptr<BranchTable>> tables;
  std::vector<std::unique_ptr<MatrixSite>> matrices;
};

/// An initial value that is an address: written when the variables have their addresses.
struct Relocation {
  uint64_t offset = 0;  // where, in the variable
  uint32_t bytes = 8;   // how many bytes are written
  uint32_t shift = 0;   // which part of the address, in bits from the lowest
  uint64_t addend = 0;
  bool isFunction = false;  // `target` is a function, not a variable
  uint32_t target = 0;
};

struct VariableImage {
  std::vector<std::byte> bytes;  // the initialised head; zero after it
  std::vector<Relocation> relocations;
};

/// A broadcast constant that is the address of a variable.
struct ConstantRelocation {
  uint32_t offset = 0;  // in the constants
  uint32_t bytes = 8;
  uint32_t variable = 0;
  uint64_t addend = 0;
};

struct KernelCode {
  uint32_t function = 0;
  uint32_t dynamicSharedStart = 0;
  /// Local memory of a thread for the deepest chain of calls; none if that cannot be known.
  std::optional<uint32_t> stackBytes;
};

/// A line of the source to which the instructions from a line of the PTX text on belong.
struct SourceMark {
  uint32_t line = 0;
  std::string file;  // empty: none
  uint32_t fileLine = 0;
};

/// A variable of shared memory, where the kernels lie that use it.
struct SharedPlace {
  std::string name;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::vector<uint32_t> functions;  // of those kernels
};

class ProgramImpl {
 public:
  /// Null if the PTX does not name it.
  const SourceMark* sourceOf(uint32_t line) const;
  const SharedPlace* sharedAt(const KernelCode& kernel, uint64_t offset) const;

  uint32_t ptxVersion = 0;
  uint32_t target = 0;
  std::vector<KernelInfo> kernels;
  std::vector<KernelCode> kernelCode;
  std::vector<VariableInfo> variables;
  std::vector<VariableImage> images;
  std::vector<FunctionCode> functions;
  /// Constants broadcast to all lanes; addresses of variables are still missing.
  std::vector<std::byte> constants;
  std::vector<ConstantRelocation> constantRelocations;
  Checks checks;
  // For what checks find.
  std::vector<SourceMark> sources;  // by line
  std::vector<SharedPlace> sharedPlaces;
};

}  // namespace millpond::softgpu::ptx
