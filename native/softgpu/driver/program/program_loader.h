// SPDX-License-Identifier: Apache-2.0
// From an image to a program, with the options of the just-in-time compiler.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/gen/cuda_api.h"
#include "image/byte_reader.h"
#include "softgpu/ptx/engine.h"

namespace millpond::softgpu {

/// The options of cuModuleLoadDataEx and cuLibraryLoadData. Only those with an output have an effect: the logs and the
/// time; the others control a compiler that this device does not have.
struct JitOptions {
  unsigned count = 0;
  const CUjit_option* options = nullptr;
  void** values = nullptr;
};

/// Loads the image behind a pointer of the driver API. Writes the reason of a refusal to standard error and to the error
/// log of the options. CUDA_ERROR_NO_BINARY_FOR_GPU without PTX for this device, CUDA_ERROR_INVALID_IMAGE for a damaged
/// container, CUDA_ERROR_INVALID_PTX for invalid PTX, CUDA_ERROR_NOT_SUPPORTED for instructions that the engine does not
/// execute.
CUresult loadProgram(const void* image, const JitOptions& options, std::shared_ptr<const ptx::Program>* program);

/// The PTX of an input of a link: of text itself, of a fatbin or of the output of an earlier link.
/// CUDA_ERROR_NOT_SUPPORTED for host objects and libraries, whose device code is machine code.
CUresult readLinkInput(CUjitInputType type, image::Bytes data, const JitOptions& options, std::string* text);

/// Joins PTX texts into one in which each finds the definitions of the others. The result is that of loading it.
CUresult linkPrograms(const std::vector<std::string>& texts, const JitOptions& options, std::string* linked);

/// Like loadProgram, for the contents of a file. CUDA_ERROR_FILE_NOT_FOUND if it cannot be read.
CUresult loadProgramFile(const char* path, const JitOptions& options, std::shared_ptr<const ptx::Program>* program);

}  // namespace millpond::softgpu
