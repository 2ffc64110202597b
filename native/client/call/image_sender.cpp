// SPDX-License-Identifier: Apache-2.0
#include "client/call/image_sender.h"

#include <cstdio>
#include <memory>

#include "client/session/image_transfer.h"

namespace millpond::client {

CUresult sendImage(Call& call, uint64_t handle, std::span<const std::span<const std::byte>> parts,
                   ImagePlaces& places) {
  places.clear();
  if (parts.size() == 1) return sendImageBytes(call, call.session().remote(), handle, parts.front());
  std::vector<std::byte> whole;
  for (const auto part : parts) {
    whole.resize((whole.size() + 7) / 8 * 8);
    places.push_back(whole.size());
    whole.insert(whole.end(), part.begin(), part.end());
  }
  return sendImageBytes(call, call.session().remote(), handle, whole);
}

CUresult readImageFile(const char* path, std::vector<char>& bytes) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // C++ streams would pull half of the C++ library into foreign programs.
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), &std::fclose);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  char chunk[65536];
  while (const size_t n = std::fread(chunk, 1, sizeof chunk, file.get())) bytes.insert(bytes.end(), chunk, chunk + n);
  if (std::ferror(file.get())) return CUDA_ERROR_INVALID_IMAGE;
  bytes.push_back('\0');
  return CUDA_SUCCESS;
}

}  // namespace millpond::client
