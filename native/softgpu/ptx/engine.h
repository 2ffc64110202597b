// SPDX-License-Identifier: Apache-2.0
// The execution engine of the software GPU: PTX text in, grids executed on the host's cores out.
//
//   compile(ptx)  -> Program    decoded once, immutable, shared by all contexts
//   Module::create -> Module    its variables placed in device memory, its kernels ready to launch
//   Executor::run -> Result     one grid, to its end, on a pool of threads
//
// A device address is an address of this process. Nothing here throws; everything is safe to call from
// several threads at once, and several grids may run at the same time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "softgpu/ptx/fault_kind.h"
#include "softgpu/ptx/inspection.h"
#include "softgpu/ptx/texture.h"

namespace millpond::softgpu::ptx {

struct Dim3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

/// Threads of a warp, and the engine's own limits; the driver may advertise smaller ones.
inline constexpr uint32_t kWarpSize = 32;
inline constexpr uint32_t kMaxThreadsPerBlock = 1024;
inline constexpr uint32_t kMaxSharedBytesPerBlock = 227 * 1024;
inline constexpr uint32_t kMaxParameterBytes = 32764;

// ---------------------------------------------------------------------------------------------- programs

/// One kernel parameter: the position of its bytes in the parameter buffer of a launch.
struct ParameterInfo {
  uint32_t offset = 0;
  uint32_t bytes = 0;
  uint32_t alignment = 1;
};

/// Properties of a kernel that are known before its launch.
struct KernelInfo {
  std::string name;
  std::vector<ParameterInfo> parameters;
  uint32_t parameterBytes = 0;                // required length of a launch's parameter buffer
  uint32_t staticSharedBytes = 0;             // per block
  uint32_t registers = 0;                     // 32-bit registers per thread
  uint32_t localBytes = 0;                    // local memory per thread, including called functions if known
  uint32_t constBytes = 0;                    // constant variables of the whole program
  uint32_t maxThreads = kMaxThreadsPerBlock;  // per block: .maxntid and .reqntid
  std::optional<Dim3> requiredBlock;          // .reqntid
  bool usesDynamicShared = false;
  bool usesHeap = false;  // calls malloc() or free(), or may through a function pointer
  bool prints = false;    // calls printf(), or may
};

enum class VariableSpace : uint8_t { kGlobal, kConst };

struct VariableInfo {
  std::string name;
  VariableSpace space = VariableSpace::kGlobal;
  uint64_t bytes = 0;
  uint64_t alignment = 1;
  Reference reference = Reference::kNone;
  bool isManaged = false;  // for the host, too
  bool isVisible = false;  // .visible, .weak or .common: found by name from outside the module
};

class ProgramImpl;

/// A compiled PTX module. Immutable.
class Program {
 public:
  explicit Program(std::unique_ptr<const ProgramImpl> impl);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// In the order of the PTX text.
  std::span<const KernelInfo> kernels() const;
  /// Variables of the global and const state spaces, in the order of the PTX text.
  std::span<const VariableInfo> variables() const;
  /// `.version`, as 10 * major + minor; `.target`, as 10 * major + minor of its compute capability.
  uint32_t ptxVersion() const;
  uint32_t target() const;

  const ProgramImpl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const ProgramImpl> impl_;
};

struct CompileError {
  enum class Kind : uint8_t {
    kNotPtx,       // it does not begin like PTX
    kVersion,      // PTX of a later version than this engine knows
    kSyntax,       // malformed, undeclared or doubly declared names, wrong operands, unknown instruction
    kUnsupported,  // valid PTX, but an instruction, directive or target that this engine does not execute
    kUnresolved,   // an .extern symbol without a definition
    kMemory,       // more shared, const or parameter space than exists
  };
  Kind kind = Kind::kSyntax;
  uint32_t line = 0;    // of the PTX text, from 1; 0 if the error belongs to no line
  std::string message;  // complete for a reader; names the line and the instruction
};

struct Compiled {
  std::shared_ptr<const Program> program;  // null on failure
  CompileError error;
  explicit operator bool() const { return program != nullptr; }
};

/// Parses and decodes a PTX module. Text after a NUL byte is ignored. Never trusts its input.
Compiled compile(std::string_view ptx, Checks checks = {});

// ----------------------------------------------------------------------------------------------- modules

/// Allocates the memory of a module's variables.
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;
  /// Memory of the device, which kernels may read, and write if `writable`; 0: none is left. `alignment` is a power of
  /// two of at most 4096.
  virtual uint64_t allocate(uint64_t bytes, uint64_t alignment, bool writable) = 0;
  virtual void release(uint64_t address) = 0;
};

struct Symbol {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

/// A texture or surface reference. Valid as long as its module.
struct ReferenceSymbol {
  std::string_view name;
  Reference kind = Reference::kTexture;
  uint64_t address = 0;
};

class ModuleImpl;

/// A kernel of a module. Valid as long as its module.
class Kernel {
 public:
  Kernel(const ModuleImpl* module, uint32_t index) : module_(module), index_(index) {}
  const KernelInfo& info() const;
  const ModuleImpl& module() const { return *module_; }
  uint32_t index() const { return index_; }

 private:
  const ModuleImpl* module_;
  uint32_t index_;
};

/// A program with its variables in device memory, initialised. The allocator must outlive it.
class Module {
 public:
  static Result<std::unique_ptr<Module>> create(std::shared_ptr<const Program> program, DeviceAllocator& allocator);
  explicit Module(std::unique_ptr<ModuleImpl> impl);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const Program& program() const;
  /// Null if the program has no such kernel.
  const Kernel* kernel(std::string_view name) const;
  /// In the order of Program::kernels().
  std::span<const Kernel> kernels() const;
  /// Address and length of a global or const variable.
  std::optional<Symbol> variable(std::string_view name) const;
  /// In the order of Program::variables().
  std::vector<ReferenceSymbol> references() const;

 private:
  std::unique_ptr<ModuleImpl> impl_;
};

// ----------------------------------------------------------------------------------------------- running

/// The memory of this process that kernels may access.
class MemoryMap {
 public:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;  // begin == end: there is none
    bool writable = false;
  };
  virtual ~MemoryMap() = default;
  /// The accessible range (an allocation) that contains `address`, or an empty one. Called from many threads
  /// concurrently. Blocks keep results until they end: a returned range must stay mapped until the grids that ran at
  /// that time have ended.
  virtual Range find(uint64_t address) const = 0;
};

/// Allocates memory for malloc() in kernels. Called concurrently from many threads.
class DeviceHeap {
 public:
  virtual ~DeviceHeap() = default;
  /// Memory aligned to 16 bytes, which the launch's memory map includes from now on; 0: none is left.
  virtual uint64_t allocate(uint64_t bytes) = 0;
  /// False if the address was not returned by allocate(), or was already released. The memory must stay mapped until
  /// the grids that ran at that time have ended: a program that uses freed memory must not harm the process.
  virtual bool release(uint64_t address) = 0;
};

/// Conditions that control branches and loops outside of kernels. Called concurrently from many threads.
class Conditions {
 public:
  virtual ~Conditions() = default;
  virtual void set(uint64_t handle, uint32_t value) = 0;
};

struct Launch {
  Dim3 grid;
  Dim3 block;
  uint32_t dynamicSharedBytes = 0;
  std::span<const std::byte> parameters;  // at least KernelInfo::parameterBytes
  /// Local memory per thread for kernels whose call depth is unknown (recursion, function pointers).
  uint32_t stackBytes = 1024;
  /// All blocks of the grid make progress together (grid-wide barriers).
  bool cooperative = false;
  /// %envreg0 to %envreg31.
  std::array<uint32_t, 32> environment{};
  DeviceHeap* heap = nullptr;        // optional; without it malloc() in a kernel returns null
  Conditions* conditions = nullptr;  // optional; without it cudaGraphSetConditional() does nothing
  uint32_t multiprocessors = 1;      // %nsmid
  /// Optional; without it there are no texture and surface objects. References are found by their addresses.
  const TextureMap* textures = nullptr;
  const MemoryMap* memory = nullptr;          // required
  Inspector* inspector = nullptr;             // optional; receives what the checks of the program find
  const std::atomic<bool>* cancel = nullptr;  // optional; when it becomes true the grid ends soon
  /// Receives the kernel's output, one whole printf at a time, from one thread at a time; must not throw. Standard
  /// output if it is empty, as in a card's driver.
  std::function<void(std::string_view)> print;
};

/// Why and where a grid failed: the first fault of any thread.
struct Fault {
  using Kind = FaultKind;
  Kind kind = Kind::kTrap;
  Dim3 block{0, 0, 0};
  Dim3 thread{0, 0, 0};
  uint64_t address = 0;  // of the access; 0: there is none
  uint32_t bytes = 0;    // of the access
  bool isWrite = false;
  uint32_t line = 0;     // of the PTX text
  std::string function;  // in whose code
  std::string detail;
  bool isReported = false;  // the inspector has already reported it
};

/// Name of a fault kind, such as "illegal address".
std::string_view faultName(Fault::Kind kind);
/// One line: kind, function, line, block, thread, address.
std::string describe(const Fault& fault);

struct LaunchResult {
  enum class Status : uint8_t {
    kDone,
    kFault,      // `fault` has the reason; memory is left as it was at the fault
    kCancelled,  // the cancel flag was set
    kNoMemory,   // this process has no memory left for the registers or local memory of more threads
    kInvalid,    // nothing ran: `message` describes what is wrong with the launch
  };
  Status status = Status::kDone;
  Fault fault;
  std::string message;
  explicit operator bool() const { return status == Status::kDone; }
};

/// A pool of threads that runs grids. Its threads live as long as it does.
class Executor {
 public:
  /// `threads` 0: one per core that this process may use. The threads that call run() work too, so one fewer is
  /// started.
  explicit Executor(uint32_t threads = 0);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs a grid to its end and returns how it ended. Any number of threads may call it concurrently; their grids share
  /// the pool.
  LaunchResult run(const Kernel& kernel, const Launch& launch);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millpond::softgpu::ptx
