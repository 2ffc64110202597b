// SPDX-License-Identifier: Apache-2.0
#include "protocol/transport/tls_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <string>

namespace millpond {
namespace {

constexpr char kName[] = "libmillpond-tls.so";

/// The file that contains this code: the path by which the library was loaded, or the program's own.
std::string ownFile() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&tlsLibrary), &info) != 0 && info.dli_fname) {
    const std::string name = info.dli_fname;
    if (name.find(".so") != std::string::npos) return name;
  }
  char path[PATH_MAX];
  const ssize_t bytes = ::readlink("/proc/self/exe", path, sizeof(path));
  return bytes > 0 ? std::string(path, static_cast<size_t>(bytes)) : "";
}

std::string folderOf(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

Result<const MillpondTlsFunctions*> load() {
  const std::string file = ownFile();
  char real[PATH_MAX];
  const std::string target = ::realpath(file.c_str(), real) ? real : file;
  std::string why;
  // Beside it, beside the target of a symbolic link, or beside the client library.
  const std::string own = folderOf(target);
  for (const std::string& folder : {folderOf(file), own, own + "/client", own + "/../client"}) {
    const std::string path = folder + "/" + kName;
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* error = ::dlerror();
      if (why.empty() || ::access(path.c_str(), F_OK) == 0) why = error ? error : path;
      continue;
    }
    void* const entry = ::dlsym(library, "millpond_tls_2");
    if (!entry) return Error{path + " is of another version. Use files of one Millpond release"};
    return reinterpret_cast<decltype(&millpond_tls_2)>(entry)();
  }
  return Error{std::string("cannot load ") + kName + ", which encrypts connections to other hosts: " + why +
               ". It belongs beside " + file};
}

}  // namespace

Result<const MillpondTlsFunctions*> tlsLibrary() {
  static std::mutex mutex;
  static const MillpondTlsFunctions* loaded = nullptr;
  std::lock_guard lock(mutex);
  if (loaded) return loaded;
  auto library = load();
  if (library) loaded = *library;
  return library;
}

}  // namespace millpond
