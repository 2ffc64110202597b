// SPDX-License-Identifier: Apache-2.0
#include "worker/images/image_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "testing/check.h"

using namespace millpond;
using namespace millpond::worker;

namespace {

struct Directory {
  std::string path = (std::filesystem::temp_directory_path() / "millpond-images-XXXXXX").string();
  Directory() { CHECK(::mkdtemp(path.data()) != nullptr); }
  ~Directory() { std::filesystem::remove_all(path); }
};

std::vector<std::byte> image(char of, size_t bytes) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(of));
}

void age(const Directory& directory, const Sha256& hash, int64_t seconds) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  CHECK_EQ(::utimensat(AT_FDCWD, (directory.path + "/" + hex(hash)).c_str(), times, 0), 0);
}

}  // namespace

TEST("an image is found by its hash, by this worker and the next one, with a zero behind it") {
  Directory directory;
  const auto bytes = image('x', 10'000);
  const Sha256 hash = sha256(bytes);
  {
    ImageCache cache(directory.path, 1 << 20);
    CHECK(!cache.find(hash, bytes.size()));
    cache.keep(hash, bytes);
    cache.settle();
    CHECK(cache.find(hash, bytes.size()).has_value());
  }
  ImageCache other(directory.path, 1 << 20);
  CHECK(!other.find(hash, bytes.size() - 1));
  const auto found = other.find(hash, bytes.size());
  CHECK(found.has_value());
  CHECK_EQ(found->bytes(), bytes.size());
  CHECK_EQ(std::memcmp(found->data(), bytes.data(), bytes.size()), 0);
  CHECK(found->data()[bytes.size()] == std::byte{0});
}

TEST("an image of one tenant is not there for another one, nor for a session without a tenant") {
  Directory directory;
  const auto bytes = image('x', 10'000);
  const Sha256 hash = sha256(bytes);
  const auto has = [&](const std::string& tenant) {
    ImageCache cache(directory.path, 1 << 20);
    cache.enter(tenant);
    const bool found = cache.find(hash, bytes.size()).has_value();
    cache.keep(hash, bytes);
    return found;
  };
  CHECK(!has("a"));
  CHECK(!has("b"));
  CHECK(!has(""));
  CHECK(!has(""));
  CHECK(has("a"));
  CHECK(has("b"));
}

TEST("an image is kept for all users of a tenant, whatever a worker that was killed has left there") {
  Directory directory;
  ImageCache cache(directory.path, 1 << 20);
  const auto bytes = image('x', 10'000);
  const std::string draft = directory.path + "/draft-" + std::to_string(::getpid());
  CHECK(::close(::open(draft.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0400)) == 0);
  cache.keep(sha256(bytes), bytes);
  cache.settle();
  struct stat info {};
  CHECK_EQ(::stat((directory.path + "/" + hex(sha256(bytes))).c_str(), &info), 0);
  CHECK_EQ(info.st_mode, mode_t{S_IFREG | 0666});
}

TEST("an image that another worker has replaced is not found, and one that it changes later stays as it was") {
  Directory directory;
  ImageCache cache(directory.path, 1 << 20);
  const auto bytes = image('x', 10'000);
  const Sha256 hash = sha256(bytes);
  cache.keep(hash, bytes);
  cache.settle();
  const auto before = cache.find(hash, bytes.size());
  CHECK(before.has_value());
  const int file = ::open((directory.path + "/" + hex(hash)).c_str(), O_WRONLY);
  CHECK(file >= 0);
  CHECK_EQ(::pwrite(file, "evil", 4, 5000), 4);
  ::close(file);
  CHECK(!cache.find(hash, bytes.size()));
  CHECK_EQ(std::memcmp(before->data(), bytes.data(), bytes.size()), 0);
}

TEST("an image under another one's hash is not kept") {
  Directory directory;
  ImageCache cache(directory.path, 1 << 20);
  const Sha256 hash = sha256(image('a', 100));
  cache.keep(hash, image('b', 100));
  cache.settle();
  CHECK(!cache.find(hash, 100));
  CHECK(std::filesystem::is_empty(directory.path));
}

TEST("the longest unused make room, and what is too large is not kept") {
  Directory directory;
  ImageCache cache(directory.path, 10'000);
  std::vector<Sha256> hashes;
  for (const char of : {'1', '2', '3'}) {
    hashes.push_back(sha256(image(of, 3000)));
    cache.keep(hashes.back(), image(of, 3000));
    cache.settle();
  }
  age(directory, hashes[0], 2000);
  age(directory, hashes[1], 1000);
  age(directory, hashes[2], 3000);
  CHECK(cache.find(hashes[1], 3000).has_value());  // used now
  const Sha256 fourth = sha256(image('4', 3000));
  cache.keep(fourth, image('4', 3000));
  cache.settle();
  CHECK(!cache.find(hashes[0], 3000));
  CHECK(cache.find(hashes[1], 3000).has_value());
  CHECK(cache.find(hashes[2], 3000).has_value());
  CHECK(cache.find(fourth, 3000).has_value());
  const Sha256 large = sha256(image('5', 6000));
  cache.keep(large, image('5', 6000));
  cache.settle();
  CHECK(!cache.find(large, 6000));
}

TEST("without a directory nothing is kept") {
  ImageCache cache("", 1 << 20);
  const Sha256 hash = sha256(image('a', 100));
  cache.keep(hash, image('a', 100));
  CHECK(!cache.find(hash, 100));
}
