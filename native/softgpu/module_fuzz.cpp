// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as a program's code: fatbins, ELF, PTX text, plain and compressed, decoded to a program.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "image/fatbin.h"
#include "image/image.h"
#include "softgpu/ptx/engine.h"
#include "testing/check.h"

using namespace millpond::image;
namespace ptx = millpond::softgpu::ptx;

namespace {

/// Entries that findPtx does not choose are read too.
void readAll(Bytes image) {
  auto entries = readFatbin(image);
  if (!entries) return;
  for (const FatbinEntry& entry : *entries) {
    // Unpacking that much takes long in any case.
    if (entry.uncompressedSize > (uint64_t{1} << 20)) continue;
    if (auto content = readFatbinEntry(entry); !content) CHECK(!content.error().message.empty());
  }
}

void compileText(const std::string& text) {
  const ptx::Compiled compiled = ptx::compile(text);
  if (!compiled) {
    // Every refusal has a message.
    CHECK(!compiled.error.message.empty());
    return;
  }
  for (const ptx::KernelInfo& kernel : compiled.program->kernels()) {
    CHECK(kernel.parameterBytes <= ptx::kMaxParameterBytes);
    for (const ptx::ParameterInfo& parameter : kernel.parameters)
      CHECK(parameter.offset <= kernel.parameterBytes && parameter.bytes <= kernel.parameterBytes - parameter.offset);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes image = std::as_bytes(std::span(data, size));
  readAll(image);
  const PtxResult found = findPtx(image, 75);
  if (const auto* error = std::get_if<ImageError>(&found))
    CHECK(!error->message.empty());
  else
    compileText(std::get<std::string>(found));
  return 0;
}
