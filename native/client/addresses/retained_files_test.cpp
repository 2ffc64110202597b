// SPDX-License-Identifier: Apache-2.0
#include "client/addresses/retained_files.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing/check.h"

namespace millpond::client {
namespace {

UniqueFd file() { return UniqueFd(::memfd_create("kept", MFD_CLOEXEC)); }
bool isOpen(int number) {
  struct stat is {};
  return ::fstat(number, &is) == 0;
}

TEST("files are kept up to a number of them, and closed when they are dropped") {
  RetainedFiles files;
  CHECK(!files.keep(1, UniqueFd()));
  for (uint64_t i = 0; i < RetainedFiles::kMost; ++i) CHECK(files.keep(i, file()));
  CHECK(!files.keep(RetainedFiles::kMost, file()));
  const auto number = files.find(7);
  CHECK(number && isOpen(*number));
  files.drop(7);
  CHECK(!isOpen(*number));
  CHECK(!files.find(7));
  CHECK(files.keep(RetainedFiles::kMost, file()));
}

TEST("a number that the program has closed is not taken for the file, nor closed when it is another one's") {
  UniqueFd taken;
  {
    RetainedFiles files;
    CHECK(files.keep(1, file()));
    const int number = *files.find(1);
    const UniqueFd other = file();
    CHECK_EQ(::close(number), 0);
    CHECK(!files.find(1));
    taken = UniqueFd(::dup2(other.get(), number));
    CHECK_EQ(taken.get(), number);
    CHECK(!files.find(1));
  }
  CHECK(isOpen(taken.get()));
}

}  // namespace
}  // namespace millpond::client
