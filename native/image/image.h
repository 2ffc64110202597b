// SPDX-License-Identifier: Apache-2.0
// From whatever a program hands to the driver as code (fatbin, PTX, cubin) to PTX text.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "image/byte_reader.h"

namespace millpond::image {

/// What can be said about an image beside its text: the driver has a code for each.
enum class ImageFault { malformed, noPtx };

struct ImageError {
  ImageFault fault;
  std::string message;
};

/// PTX or the reason why there is none.
using PtxResult = std::variant<std::string, ImageError>;

/// The best PTX of an image: of a fatbin the entry of the highest architecture up to `arch`, of PTX text
/// itself (up to its first NUL). `arch` is a compute capability as 10 * major + minor. Machine code alone is `noPtx`. A wrapper is refused: it holds addresses, not
/// bytes; see locateImages.
PtxResult findPtx(Bytes image, unsigned arch);

/// The bytes that an image pointer of the driver API stands for. A wrapper is followed; it may name several
/// fatbins (relocatable device code): the linked one first. The memory is trusted to be what its first words
/// say, as with the real driver, which gets no length either. Fails for null and for a wrapper version that
/// is not known.
Result<std::vector<Bytes>> locateImages(const void* image);

/// Whether an image pointer leads to a wrapper. Must not be null.
bool isWrapper(const void* image);

}  // namespace millpond::image
