// SPDX-License-Identifier: Apache-2.0
// The driver of this process: its devices, and everything that handles stand for.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/graphs/graph_exec.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/memory/memory.h"
#include "softgpu/driver/memory/physical_memory.h"
#include "softgpu/driver/memory/texture_objects.h"
#include "softgpu/driver/memory/texture_reference.h"
#include "softgpu/driver/memory/virtual_memory.h"
#include "softgpu/driver/model/context.h"
#include "softgpu/driver/model/current_context.h"
#include "softgpu/driver/model/device.h"
#include "softgpu/driver/model/event.h"
#include "softgpu/driver/model/green_context.h"
#include "softgpu/driver/model/handle_table.h"
#include "softgpu/driver/model/stream.h"
#include "softgpu/driver/program/library.h"
#include "softgpu/driver/program/link.h"
#include "softgpu/driver/program/module.h"
#include "softgpu/driver/queue/dispatcher.h"
#include "softgpu/driver/sanitizer/sanitizer.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

class Driver {
 public:
  /// The one driver. It is never destroyed: its threads may run until the process is gone.
  static Driver& instance();

  /// cuInit: reads the environment and opens the devices, once.
  CUresult initialise();
  /// CUDA_SUCCESS after a successful initialise() in this process; a child of fork() has to start over with
  /// exec.
  CUresult ready() const;

  int deviceCount() const { return static_cast<int>(devices_.size()); }
  /// Null when there is no such device.
  Device* device(int ordinal) const;
  PhysicalStore& store(const Device& device) { return *stores_[device.ordinal()]; }

  Dispatcher& dispatcher() { return dispatcher_; }
  /// How much a stream takes before calls wait.
  size_t queueDepth() const { return queueDepth_; }
  Memory& memory() { return memory_; }
  VirtualMemory& virtualMemory() { return virtualMemory_; }
  /// Null where programs are not checked.
  Sanitizer* sanitizer() { return sanitizer_.get(); }
  /// Runs kernels; its threads start with the first use.
  ptx::Executor& executor();

  HandleTable<Context, CUcontext>& contexts() { return contexts_; }
  HandleTable<GreenContext, CUgreenCtx>& greens() { return greens_; }
  HandleTable<ResourceDescription, CUdevResourceDesc>& resourceDescriptions() { return resourceDescriptions_; }
  /// What a handle of a context, or of a green one as such, stands for; nothing in it when it is not known.
  Current findCurrent(CUcontext handle) const;
  HandleTable<Stream, CUstream>& streams() { return streams_; }
  HandleTable<Event, CUevent>& events() { return events_; }
  HandleTable<Module, CUmodule>& modules() { return modules_; }
  HandleTable<Function, CUfunction>& functions() { return functions_; }
  HandleTable<Library, CUlibrary>& libraries() { return libraries_; }
  HandleTable<LibraryKernel, CUkernel>& kernels() { return kernels_; }
  HandleTable<Array, CUarray>& arrays() { return arrays_; }
  HandleTable<MipmappedArray, CUmipmappedArray>& mipmappedArrays() { return mipmappedArrays_; }
  TextureObjects& textures() { return textures_; }
  HandleTable<TextureReference, CUtexref>& textureReferences() { return textureReferences_; }
  HandleTable<TextureReference, CUsurfref>& surfaceReferences() { return surfaceReferences_; }
  HandleTable<Graph, CUgraph>& graphs() { return graphs_; }
  HandleTable<GraphNode, CUgraphNode>& graphNodes() { return graphNodes_; }
  HandleTable<GraphExec, CUgraphExec>& graphExecs() { return graphExecs_; }
  HandleTable<UserObject, CUuserObject>& userObjects() { return userObjects_; }
  HandleTable<Link, CUlinkState>& links() { return links_; }

  /// Drops the handles of a module's contents.
  void forgetContents(const Module& module);
  /// Ends a context and everything that belongs to it.
  void destroyContext(const ContextPtr& context);

  /// Primary contexts live from the first retain to the last release, or to a reset, which takes back all
  /// retains.
  ContextPtr retainPrimary(Device& device);
  /// CUDA_ERROR_INVALID_CONTEXT when nothing is retained.
  CUresult releasePrimary(Device& device);
  void resetPrimary(Device& device);

 private:
  CUresult openDevices();

  std::mutex mutex_;
  std::atomic<bool> isReady_ = false;
  std::mutex primaryMutex_;
  std::map<unsigned, unsigned> primaryReferences_;  // by device
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<PhysicalStore>> stores_;
  std::unique_ptr<Sanitizer> sanitizer_;
  Dispatcher dispatcher_;
  size_t queueDepth_ = 0;
  Memory memory_;
  VirtualMemory virtualMemory_{memory_};
  std::once_flag executorOnce_;
  std::unique_ptr<ptx::Executor> executor_;

  HandleTable<Context, CUcontext> contexts_;
  HandleTable<GreenContext, CUgreenCtx> greens_;
  HandleTable<ResourceDescription, CUdevResourceDesc> resourceDescriptions_;
  HandleTable<Stream, CUstream> streams_;
  HandleTable<Event, CUevent> events_;
  HandleTable<Module, CUmodule> modules_;
  HandleTable<Function, CUfunction> functions_;
  HandleTable<Library, CUlibrary> libraries_;
  HandleTable<LibraryKernel, CUkernel> kernels_;
  HandleTable<Array, CUarray> arrays_;
  HandleTable<MipmappedArray, CUmipmappedArray> mipmappedArrays_;
  TextureObjects textures_;
  HandleTable<TextureReference, CUtexref> textureReferences_;
  HandleTable<TextureReference, CUsurfref> surfaceReferences_;
  HandleTable<Graph, CUgraph> graphs_;
  HandleTable<GraphNode, CUgraphNode> graphNodes_;
  HandleTable<GraphExec, CUgraphExec> graphExecs_;
  HandleTable<UserObject, CUuserObject> userObjects_;
  HandleTable<Link, CUlinkState> links_;
};

}  // namespace millpond::softgpu
