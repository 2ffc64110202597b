// SPDX-License-Identifier: Apache-2.0
// A program that belongs to no context: the object behind a CUlibrary handle. It is loaded into each context that uses
// it, at the first use there.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "softgpu/driver/model/context.h"
#include "softgpu/driver/program/module.h"

namespace millpond::softgpu {

class Library;

/// A kernel of a library: the object behind a CUkernel handle.
class LibraryKernel {
 public:
  LibraryKernel(Library& library, size_t index, const ptx::KernelInfo& info)
      : library_(library), index_(index), info_(info) {}

  Library& library() const { return library_; }
  const ptx::KernelInfo& info() const { return info_; }

  CUresult attribute(const Device& device, CUfunction_attribute attribute, int* value);
  /// Applies to the device, in contexts where the library is already loaded and in later ones.
  CUresult setAttribute(const Device& device, CUfunction_attribute attribute, int value);
  /// The kernel as a function of a context.
  CUresult function(const ContextPtr& context, std::shared_ptr<Function>* function);

 private:
  friend class Library;
  FunctionSettings settingsOn(const Device& device);

  Library& library_;  // owns this
  const size_t index_;
  const ptx::KernelInfo& info_;
  std::mutex mutex_;
  std::map<unsigned, FunctionSettings> settings_;  // by device, where they have been changed
};

class Library : public std::enable_shared_from_this<Library> {
 public:
  explicit Library(std::shared_ptr<const ptx::Program> program);
  /// For an invalid image, whose error is reported at its first use.
  explicit Library(CUresult flaw) : flaw_(flaw) {}

  CUresult flaw() const { return flaw_; }
  const ptx::Program& program() const { return *program_; }
  size_t kernelCount() const { return kernels_.size(); }
  /// In the order of the PTX text. The kernel keeps the library alive.
  std::shared_ptr<LibraryKernel> kernel(size_t index);
  /// Null if there is no such kernel.
  std::shared_ptr<LibraryKernel> kernel(std::string_view name);

  /// The library as a module of a context, which must be alive, or the error of the image.
  CUresult instance(const ContextPtr& context, std::shared_ptr<Module>* module);
  /// Forgets the modules loaded into a context that has ended.
  void dropInstance(uint64_t context);
  std::vector<std::shared_ptr<Module>> instances();

 private:
  const std::shared_ptr<const ptx::Program> program_;
  const CUresult flaw_ = CUDA_SUCCESS;
  std::vector<std::unique_ptr<LibraryKernel>> kernels_;
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Module>> instances_;  // by context
};

}  // namespace millpond::softgpu
