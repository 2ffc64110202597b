// SPDX-License-Identifier: Apache-2.0
// Finds the PTX text in code that a program passes to the driver (fatbin, PTX, cubin).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "image/byte_reader.h"

namespace millpond::image {

/// Properties of an image for which the driver has an error code.
enum class ImageFault { malformed, noPtx };

struct ImageError {
  ImageFault fault;
  std::string message;
};

/// PTX, or the reason why there is none.
using PtxResult = std::variant<std::string, ImageError>;

/// The best PTX of an image: in a fatbin the entry for the highest architecture up to `arch`; PTX text itself (up to
/// its first NUL). `arch` is a compute capability as 10 * major + minor. An image with only machine code is `noPtx`. A
/// wrapper is refused: it holds addresses, not bytes; see locateImages.
PtxResult findPtx(Bytes image, unsigned arch);

/// The bytes behind an image pointer of the driver API. A wrapper is dereferenced; it may refer to several fatbins
/// (relocatable device code), the linked one first. The headers in memory are trusted, as by the real driver, which
/// gets no length either. Fails for null and for an unknown wrapper version.
Result<std::vector<Bytes>> locateImages(const void* image);

/// Whether an image pointer points to a wrapper. Must not be null.
bool isWrapper(const void* image);

}  // namespace millpond::image
