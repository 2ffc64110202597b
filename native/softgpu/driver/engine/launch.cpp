// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/engine/launch.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "softgpu/driver/engine/occupancy.h"
#include "softgpu/driver/host/signals.h"
#include "softgpu/driver/memory/device_memory.h"
#include "softgpu/driver/model/device.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/driver/queue/activities.h"
#include "softgpu/driver/sanitizer/sanitizer.h"

namespace millpond::softgpu {
namespace {

CUresult checkShape(const Function& function, const LaunchShape& shape) {
  const ptx::Dim3& grid = shape.grid;
  const ptx::Dim3& block = shape.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ) return CUDA_ERROR_INVALID_VALUE;
  if (block.x > kMaxBlockXY || block.y > kMaxBlockXY || block.z > kMaxBlockZ ||
      block.count() > ptx::kMaxThreadsPerBlock) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const ptx::KernelInfo& info = function.info();
  if (shape.dynamicSharedBytes > function.settings().maxDynamicShared()) return CUDA_ERROR_INVALID_VALUE;
  if (uint64_t{info.staticSharedBytes} + shape.dynamicSharedBytes > kSharedBytesPerBlockOptIn) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A block beyond the function's declared maximum is an invalid value, not a lack of resources.
  if (block.count() > info.maxThreads) return CUDA_ERROR_INVALID_VALUE;
  if (info.requiredBlock &&
      (info.requiredBlock->x != block.x || info.requiredBlock->y != block.y || info.requiredBlock->z != block.z)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!shape.isCooperative) return CUDA_SUCCESS;
  const auto threads = static_cast<unsigned>(block.count());
  const auto resident = static_cast<uint64_t>(blocksPerMultiprocessor(function, threads, shape.dynamicSharedBytes)) *
                        function.module().context()->device().multiprocessors();
  return grid.count() <= resident ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

CUresult packExtra(const ptx::KernelInfo& info, void** extra, std::vector<std::byte>* buffer) {
  const void* bytes = nullptr;
  const size_t* size = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      bytes = extra[1];
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const size_t given = size ? *size : 0;
  if (given > info.parameterBytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (info.parameterBytes == 0) return CUDA_SUCCESS;
  if (given == 0 || !bytes) return CUDA_ERROR_INVALID_VALUE;
  // As on a card, the buffer may be short: the rest is zero.
  std::memcpy(buffer->data(), bytes, given);
  return CUDA_SUCCESS;
}

CUresult packParameters(const ptx::KernelInfo& info, void** parameters, void** extra, std::vector<std::byte>* buffer) {
  buffer->assign(info.parameterBytes, std::byte{});
  if (parameters && extra) return CUDA_ERROR_INVALID_VALUE;
  if (extra) return packExtra(info, extra, buffer);
  if (info.parameterBytes == 0) return CUDA_SUCCESS;
  if (!parameters) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    const ptx::ParameterInfo& parameter = info.parameters[i];
    if (!parameters[i]) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(buffer->data() + parameter.offset, parameters[i], parameter.bytes);
  }
  return CUDA_SUCCESS;
}

/// Registers through which cooperative groups find where blocks meet; 0 means that blocks cannot meet.
constexpr size_t kWorkspaceHigh = 1;
constexpr size_t kWorkspaceLow = 2;

/// A workspace for the duration of a grid.
class Workspace {
 public:
  Workspace(Context& context, bool isWanted) : context_(context), address_(isWanted ? take(context) : 0) {}
  ~Workspace() {
    if (address_ != 0) context_.gridWorkspaces().giveBack(address_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  uint64_t address() const { return address_; }

 private:
  static uint64_t take(Context& context) {
    return context.gridWorkspaces().take([&](uint64_t bytes) {
      return DeviceMemory::instance().memory().allocateVariable(context, bytes, bytes, true);
    });
  }

  Context& context_;
  const uint64_t address_;
};

/// Runs kernels; its threads start with the first use, and run until the process ends.
ptx::Executor& executor() {
  static ptx::Executor* const one = [] {
    const SignalsBlocked blocked;
    return std::make_unique<ptx::Executor>().release();
  }();
  return *one;
}

/// The environment of a grid in addition to its launch parameters.
struct Surroundings {
  size_t stackBytes = 0;
  std::shared_ptr<ptx::DeviceHeap> heap;
  std::shared_ptr<ptx::Conditions> conditions;
  uint64_t madeAt = 0;  ///< of the launch, on the sanitizer's clock
  Call call;            ///< of the program, that made the launch
};

void runGrid(Context& context, const PreparedLaunch& prepared, const Surroundings& with) {
  DeviceMemory& device = DeviceMemory::instance();
  const Function& function = *prepared.function;
  const LaunchShape& shape = prepared.shape;
  Sanitizer* const sanitizer = Sanitizer::instance();
  const Quiescence::Use use(device.memory().quiescence());
  const KernelMemory memory(device.memory().space(), static_cast<int>(context.device().ordinal()));
  ptx::Launch launch;
  launch.grid = shape.grid;
  launch.block = shape.block;
  launch.dynamicSharedBytes = shape.dynamicSharedBytes;
  launch.parameters = prepared.parameters;
  launch.stackBytes = static_cast<uint32_t>(with.stackBytes);
  launch.heap = with.heap.get();
  launch.conditions = with.conditions.get();
  launch.memory = &memory;
  launch.multiprocessors = context.device().multiprocessors();
  launch.textures = prepared.textures ? prepared.textures.get() : &device.textures();
  launch.cancel = &context.isCancelled();
  const std::string kernel = "kernel " + function.info().name + ": ";
  const Workspace workspace(context, shape.isCooperative);
  if (shape.isCooperative && workspace.address() == 0)
    return context.fail(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, kernel + "the device has no memory left for its barrier");
  launch.cooperative = shape.isCooperative;
  launch.environment[kWorkspaceHigh] = static_cast<uint32_t>(workspace.address() >> 32);
  launch.environment[kWorkspaceLow] = static_cast<uint32_t>(workspace.address());
  std::optional<LaunchInspector> inspector;
  if (sanitizer) sanitizer->launched(function.info().name);
  if (sanitizer)
    launch.inspector = &inspector.emplace(*sanitizer, device.memory().space(),
                                          static_cast<int>(context.device().ordinal()), with.madeAt, with.call);
  const bool isNoted = Activities::instance().notes(cupti::Kind::kConcurrentKernel);
  const uint64_t start = isNoted ? Activities::now() : 0;
  const ptx::LaunchResult result = executor().run(function.kernel(), launch);
  if (isNoted)
    Activities::instance().kernel(start, function.info().name,
                                  {.grid = {shape.grid.x, shape.grid.y, shape.grid.z},
                                   .block = {shape.block.x, shape.block.y, shape.block.z},
                                   .registers = function.info().registers,
                                   .staticSharedBytes = function.info().staticSharedBytes,
                                   .dynamicSharedBytes = static_cast<uint32_t>(shape.dynamicSharedBytes)});
  switch (result.status) {
    case ptx::LaunchResult::Status::kDone:
    case ptx::LaunchResult::Status::kCancelled: return;
    case ptx::LaunchResult::Status::kFault:
      if (sanitizer && !result.fault.isReported) sanitizer->faulted(function.info().name, result.fault, with.call);
      context.fail(faultCode(result.fault.kind), kernel + ptx::describe(result.fault));
      return;
    case ptx::LaunchResult::Status::kNoMemory:
      context.fail(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                   kernel + "this process has no memory left for the registers of its threads");
      return;
    case ptx::LaunchResult::Status::kInvalid: context.fail(CUDA_ERROR_LAUNCH_FAILED, kernel + result.message); return;
  }
}

}  // namespace

bool isCooperative(std::span<const CUlaunchAttribute> attributes) {
  return std::any_of(attributes.begin(), attributes.end(), [](const CUlaunchAttribute& each) {
    return each.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && each.value.cooperative != 0;
  });
}

CUresult faultCode(ptx::Fault::Kind kind) {
  switch (kind) {
    case ptx::Fault::Kind::kIllegalAddress:
    case ptx::Fault::Kind::kSharedOutOfRange:
    case ptx::Fault::Kind::kLocalOutOfRange:
    case ptx::Fault::Kind::kConstOutOfRange: return CUDA_ERROR_ILLEGAL_ADDRESS;
    case ptx::Fault::Kind::kMisalignedAddress: return CUDA_ERROR_MISALIGNED_ADDRESS;
    case ptx::Fault::Kind::kStackOverflow: return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case ptx::Fault::Kind::kIllegalInstruction: return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case ptx::Fault::Kind::kTrap: return CUDA_ERROR_LAUNCH_FAILED;
    case ptx::Fault::Kind::kAssert: return CUDA_ERROR_ASSERT;
    case ptx::Fault::Kind::kDeadlock: return CUDA_ERROR_LAUNCH_TIMEOUT;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

CUresult prepareLaunch(const ContextPtr& context, const std::shared_ptr<Function>& function, const LaunchShape& shape,
                       void** parameters, void** extra, PreparedLaunch* prepared) {
  if (function->contextId() != context->id()) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult result = checkShape(*function, shape)) return result;
  prepared->textures = function->module().boundReferences();
  prepared->function = function;
  prepared->shape = shape;
  return packParameters(function->info(), parameters, extra, &prepared->parameters);
}

std::function<void()> launchBody(const ContextPtr& context, const PreparedLaunch& launch,
                                 std::shared_ptr<ptx::Conditions> conditions) {
  Surroundings with;
  context->limit(CU_LIMIT_STACK_SIZE, &with.stackBytes);
  if (launch.function->info().usesHeap) with.heap = DeviceMemory::instance().memory().kernelHeap(*context);
  with.conditions = std::move(conditions);
  if (Sanitizer* const sanitizer = Sanitizer::instance()) {
    with.madeAt = sanitizer->allocations().now();
    with.call = sanitizer->currentCall();
  }
  return [context, launch, with = std::move(with)] { runGrid(*context, launch, with); };
}

}  // namespace millpond::softgpu
