// SPDX-License-Identifier: Apache-2.0
// The driver of this process: its devices, and everything that handles stand for.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/graphs/graph_exec.h"
#include "softgpu/driver/graphs/graph_handles.h"
#include "softgpu/driver/memory/device_memory.h"
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

namespace millpond::softgpu {

class Driver {
 public:
  /// The only driver. It is never destroyed: its threads may run until the process ends.
  static Driver& instance();

  /// cuInit: reads the environment and opens the devices, once.
  CUresult initialise();
  /// CUDA_SUCCESS after a successful initialise() in this process; a child of fork() must start over with exec.
  CUresult ready() const;

  int deviceCount() const { return static_cast<int>(devices_.size()); }
  /// Null if there is no such device.
  Device* device(int ordinal) const;

  Dispatcher& dispatcher() { return dispatcher_; }
  /// Null if programs are not checked.
  Sanitizer* sanitizer() { return Sanitizer::instance(); }
  DeviceMemory& deviceMemory() { return DeviceMemory::instance(); }
  Memory& memory() { return deviceMemory().memory(); }
  VirtualMemory& virtualMemory() { return deviceMemory().virtualMemory(); }

  HandleTable<Context, CUcontext>& contexts() { return contexts_; }
  HandleTable<GreenContext, CUgreenCtx>& greens() { return greens_; }
  HandleTable<ResourceDescription, CUdevResourceDesc>& resourceDescriptions() { return resourceDescriptions_; }
  /// The object for the handle of a context, or of a green context as such; empty if unknown.
  Current findCurrent(CUcontext handle) const;
  HandleTable<Stream, CUstream>& streams() { return streams_; }
  HandleTable<Event, CUevent>& events() { return events_; }
  HandleTable<Module, CUmodule>& modules() { return modules_; }
  HandleTable<Function, CUfunction>& functions() { return functions_; }
  HandleTable<Library, CUlibrary>& libraries() { return libraries_; }
  HandleTable<LibraryKernel, CUkernel>& kernels() { return kernels_; }
  HandleTable<Array, CUarray>& arrays() { return deviceMemory().arrays(); }
  HandleTable<MipmappedArray, CUmipmappedArray>& mipmappedArrays() { return deviceMemory().mipmappedArrays(); }
  TextureObjects& textures() { return deviceMemory().textures(); }
  HandleTable<TextureReference, CUtexref>& textureReferences() { return deviceMemory().textureReferences(); }
  HandleTable<TextureReference, CUsurfref>& surfaceReferences() { return deviceMemory().surfaceReferences(); }
  HandleTable<Graph, CUgraph>& graphs() { return GraphHandles::instance().graphs; }
  HandleTable<GraphNode, CUgraphNode>& graphNodes() { return GraphHandles::instance().nodes; }
  HandleTable<GraphExec, CUgraphExec>& graphExecs() { return GraphHandles::instance().executables; }
  HandleTable<UserObject, CUuserObject>& userObjects() { return GraphHandles::instance().userObjects; }
  HandleTable<Link, CUlinkState>& links() { return links_; }

  /// Drops the handles of a module's contents.
  void forgetContents(const Module& module);
  /// Ends a context and everything that belongs to it.
  void destroyContext(const ContextPtr& context);

  /// Primary contexts live from the first retain to the last release, or to a reset, which undoes all retains. Null if
  /// the device has no memory for one.
  ContextPtr retainPrimary(Device& device);
  /// CUDA_ERROR_INVALID_CONTEXT if nothing is retained.
  CUresult releasePrimary(Device& device);
  void resetPrimary(Device& device);

 private:
  CUresult openDevices();

  std::mutex mutex_;
  std::atomic<bool> isReady_ = false;
  std::mutex primaryMutex_;
  std::map<unsigned, unsigned> primaryReferences_;  // by device
  std::vector<std::unique_ptr<Device>> devices_;
  Dispatcher dispatcher_;

  HandleTable<Context, CUcontext> contexts_;
  HandleTable<GreenContext, CUgreenCtx> greens_;
  HandleTable<ResourceDescription, CUdevResourceDesc> resourceDescriptions_;
  HandleTable<Stream, CUstream> streams_;
  HandleTable<Event, CUevent> events_;
  HandleTable<Module, CUmodule> modules_;
  HandleTable<Function, CUfunction> functions_;
  HandleTable<Library, CUlibrary> libraries_;
  HandleTable<LibraryKernel, CUkernel> kernels_;
  HandleTable<Link, CUlinkState> links_;
};

}  // namespace millpond::softgpu
