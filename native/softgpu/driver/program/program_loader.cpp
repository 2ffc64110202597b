// SPDX-License-Identifier: Apache-2.0
#include "softgpu/driver/program/program_loader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "image/image.h"
#include "softgpu/driver/host/log.h"
#include "softgpu/driver/model/device.h"
#include "softgpu/driver/sanitizer/sanitizer.h"

namespace millpond::softgpu {

using image::Bytes;
using image::findPtx;
using image::ImageError;
using image::ImageFault;
using image::locateImages;
using image::PtxResult;

namespace {

/// The compute capability of the software device, as 10 * major + minor.
constexpr unsigned kDeviceArch = 10 * kComputeMajor + kComputeMinor;
/// The latest compute capability for which a module may be.
constexpr unsigned kLatestArch = 129;

/// The best PTX of an image for this device. If all of it is for later devices, the PTX for the earliest of these: what
/// it has beyond this target are instructions, and the engine refuses by name those that it does not execute.
PtxResult findDevicePtx(Bytes image) {
  PtxResult found = findPtx(image, kDeviceArch);
  const auto* error = std::get_if<ImageError>(&found);
  if (!error || error->fault != ImageFault::noPtx) return found;
  for (unsigned arch = kDeviceArch + 1; arch <= kLatestArch; ++arch) {
    PtxResult later = findPtx(image, arch);
    if (std::holds_alternative<std::string>(later)) return later;
  }
  return found;
}

/// The outputs among the options.
class JitOutputs {
 public:
  explicit JitOutputs(const JitOptions& options) : options_(options) {}

  void write(const std::string& error, std::chrono::steady_clock::duration time) {
    writeLog(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
    writeLog(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error);
    if (void** value = find(CU_JIT_WALL_TIME)) {
      const float milliseconds = std::chrono::duration<float, std::milli>(time).count();
      std::memcpy(value, &milliseconds, sizeof(milliseconds));
    }
  }

 private:
  void** find(CUjit_option option) {
    for (unsigned i = 0; i < options_.count; ++i) {
      if (options_.options[i] == option) return &options_.values[i];
    }
    return nullptr;
  }
  // The size is in the option's value, not in memory that it points to, and is replaced by the size of the text.
  void writeLog(CUjit_option bufferOption, CUjit_option sizeOption, const std::string& text) {
    void** buffer = find(bufferOption);
    void** size = find(sizeOption);
    if (!buffer || !*buffer || !size) return;
    const auto capacity = static_cast<size_t>(static_cast<unsigned>(reinterpret_cast<uintptr_t>(*size)));
    if (capacity == 0) return;
    const size_t length = std::min(text.size(), capacity - 1);
    std::memcpy(*buffer, text.data(), length);
    static_cast<char*>(*buffer)[length] = '\0';
    *size = reinterpret_cast<void*>(length);
  }

  const JitOptions& options_;
};

struct Outcome {
  CUresult code = CUDA_SUCCESS;
  std::string message;
  std::shared_ptr<const ptx::Program> program;
};

Outcome unreadable(const ImageError& error) {
  const bool isDamaged = error.fault == ImageFault::malformed;
  return {isDamaged ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_NO_BINARY_FOR_GPU, error.message, nullptr};
}

CUresult codeOf(ptx::CompileError::Kind kind) {
  switch (kind) {
    case ptx::CompileError::Kind::kNotPtx: return CUDA_ERROR_INVALID_IMAGE;
    case ptx::CompileError::Kind::kVersion: return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    case ptx::CompileError::Kind::kUnsupported: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_PTX;
  }
}

Outcome compileText(const std::string& text) {
  const Sanitizer* sanitizer = Sanitizer::instance();
  ptx::Compiled compiled = ptx::compile(text, sanitizer ? sanitizer->checks() : ptx::Checks{});
  if (compiled) return {CUDA_SUCCESS, "", std::move(compiled.program)};
  return {codeOf(compiled.error.kind), compiled.error.message, nullptr};
}

Outcome compile(Bytes image) {
  PtxResult text = findDevicePtx(image);
  if (const auto* error = std::get_if<ImageError>(&text)) return unreadable(*error);
  return compileText(*std::get_if<std::string>(&text));
}

// Directives of a module may be anywhere in a text, and a later text may define an .extern declaration of an earlier
// one.
std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text.substr(0, text.find('\0')) + '\n';
  return all;
}

using FindText = PtxResult (*)(Bytes image);

/// The texts that a program is linked from. A wrapper of relocatable device code names the linked code, which holds all the
/// others, and the fatbins that it was linked from.
std::vector<std::string> findTexts(const std::vector<Bytes>& images, FindText find) {
  std::vector<std::string> texts;
  for (const Bytes image : images) {
    PtxResult text = find(image);
    if (!std::holds_alternative<std::string>(text)) continue;
    texts.push_back(std::move(*std::get_if<std::string>(&text)));
    if (image.data() == images.front().data()) break;
  }
  return texts;
}

// PTX of later targets only if no image has other PTX: every program with relocatable device code is linked with the
// device runtime, whose later variants call functions that only a driver has.
Outcome compileAny(const std::vector<Bytes>& images) {
  if (images.size() == 1) return compile(images.front());
  std::vector<std::string> texts = findTexts(images, [](Bytes image) { return findPtx(image, kDeviceArch); });
  if (texts.empty()) texts = findTexts(images, findDevicePtx);
  return texts.empty() ? compile(images.front()) : compileText(joined(texts));
}

template <typename Compile>
CUresult load(const JitOptions& options, std::shared_ptr<const ptx::Program>* program, Compile compileImage) {
  if (options.count > 0 && (!options.options || !options.values)) return CUDA_ERROR_INVALID_VALUE;
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome = compileImage();
  JitOutputs(options).write(outcome.message, std::chrono::steady_clock::now() - start);
  if (outcome.code != CUDA_SUCCESS) {
    log(LogLevel::warn, "cannot load an image: " + outcome.message);
    if (Sanitizer* const sanitizer = Sanitizer::instance()) sanitizer->refused(outcome.message);
    return outcome.code;
  }
  *program = std::move(outcome.program);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult loadProgram(const void* image, const JitOptions& options, std::shared_ptr<const ptx::Program>* program) {
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  return load(options, program, [&]() -> Outcome {
    Result<std::vector<Bytes>> images = locateImages(image);
    if (!images) return {CUDA_ERROR_INVALID_IMAGE, images.error().message, nullptr};
    return compileAny(*images);
  });
}

CUresult readLinkInput(CUjitInputType type, Bytes data, const JitOptions& options, std::string* text) {
  if (data.empty() || type >= CU_JIT_NUM_INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  Outcome outcome;
  if (type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY || type == CU_JIT_INPUT_NVVM) {
    outcome = {CUDA_ERROR_NOT_SUPPORTED, "only PTX, fatbins and images linked from them can be linked", nullptr};
  } else {
    PtxResult found = findDevicePtx(data);
    if (auto* error = std::get_if<ImageError>(&found))
      outcome = unreadable(*error);
    else
      *text = std::move(*std::get_if<std::string>(&found));
  }
  if (outcome.code != CUDA_SUCCESS) {
    JitOutputs(options).write(outcome.message, {});
    log(LogLevel::warn, "cannot link: " + outcome.message);
  }
  return outcome.code;
}

CUresult linkPrograms(const std::vector<std::string>& texts, const JitOptions& options, std::string* linked) {
  *linked = joined(texts);
  std::shared_ptr<const ptx::Program> program;
  return load(options, &program, [&] {
    Outcome outcome = compileText(*linked);
    // The caller declared the input as PTX.
    if (outcome.code == CUDA_ERROR_INVALID_IMAGE) outcome.code = CUDA_ERROR_INVALID_PTX;
    return outcome;
  });
}

CUresult loadProgramFile(const char* path, const JitOptions& options, std::shared_ptr<const ptx::Program>* program) {
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return CUDA_ERROR_FILE_NOT_FOUND;
  return load(options, program, [&] { return compile(std::as_bytes(std::span(content))); });
}

}  // namespace millpond::softgpu
