// SPDX-License-Identifier: Apache-2.0
#include "image/image.h"

#include <bit>
#include <cctype>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "image/decompression.h"
#include "image/fatbin.h"
#include "testing/check.h"

namespace millpond::image {
namespace {

// The same generators as in testdata/make.mjs.
class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed) {}
  uint32_t next() {
    state_ = state_ * 1664525 + 1013904223;
    return state_ >> 16;
  }

 private:
  uint32_t state_;
};

std::string words(size_t size, uint32_t seed) {
  const std::vector<std::string> vocabulary = {"ld.global.f32", "st.shared.u32", "mov.u32", "add.s32", "%r1", "%r2",
                                               "%f17",          "%rd4",          "bra",     "$L",      "\n"};
  std::string out;
  Numbers numbers(seed);
  while (out.size() < size) {
    uint32_t n = numbers.next();
    out += vocabulary[n % vocabulary.size()] + (n % 7 == 0 ? std::to_string(n) : "") + " ";
  }
  out.resize(size);
  return out;
}
std::string noise(size_t size, uint32_t seed) {
  std::string out(size, '\0');
  Numbers numbers(seed);
  for (char& c : out) c = static_cast<char>(numbers.next());
  return out;
}
std::string skewed(size_t size, uint32_t seed) {
  std::string out(size, '\0');
  Numbers numbers(seed);
  for (char& c : out) c = static_cast<char>(97 + std::countl_zero(numbers.next() << 16));
  return out;
}

std::string fixture(const std::string& name) {
  std::ifstream file(std::string(MILLPOND_IMAGE_TESTDATA "/") + name, std::ios::binary);
  CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Calls findPtx if only the message of a failure matters.
Result<std::string> extractPtx(Bytes image) {
  PtxResult result = findPtx(image, 75);
  if (auto* error = std::get_if<ImageError>(&result)) return Error{std::move(error->message)};
  return std::move(std::get<std::string>(result));
}

Bytes bytesOf(const std::string& text) { return std::as_bytes(std::span(text)); }

// A heap copy of exactly its size, so that the address sanitizer detects any read beyond it.
std::vector<std::byte> exactly(Bytes bytes) {
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  copy.shrink_to_fit();
  return copy;
}

Result<std::string> unzstd(Bytes frame, size_t limit) {
  std::string out(limit, '\0');
  Result<size_t> written = decompressZstd(frame, std::as_writable_bytes(std::span(out)));
  if (!written) return written.error();
  CHECK(*written <= limit);
  out.resize(*written);
  return out;
}

struct ZstdFixture {
  const char* name;
  std::vector<const char*> levels;
  std::string content;
};
std::vector<ZstdFixture> zstdFixtures() {
  return {
      {"empty", {"3"}, ""},
      {"one", {"3"}, "x"},
      {"zeros", {"1"}, std::string(300'000, '\0')},
      {"words", {"-5", "1", "3", "9", "19"}, words(20'000, 1)},
      {"long", {"1", "19"}, words(160'000, 2)},
      {"noise", {"3"}, noise(600, 3)},
      {"skewed", {"3", "19"}, skewed(8'000, 4)},
      {"mixed",
       {"1", "3", "19"},
       words(9'000, 5) + noise(300, 6) + std::string(140'000, 'A') + skewed(6'000, 7) + words(9'000, 5)},
  };
}

TEST("zstd frames of a real compressor decode to what was compressed") {
  for (const ZstdFixture& f : zstdFixtures()) {
    for (const char* level : f.levels) {
      std::string frame = fixture(std::string(f.name) + "-" + level + ".zst");
      Result<std::string> text = unzstd(bytesOf(frame), f.content.size());
      if (!text) std::fprintf(stderr, "%s-%s: %s\n", f.name, level, text.error().message.c_str());
      CHECK(text);
      CHECK(*text == f.content);
      if (f.content.empty()) continue;
      CHECK(!unzstd(bytesOf(frame), f.content.size() - 1));
    }
  }
}

TEST("a zstd frame that is cut off anywhere is refused") {
  for (const char* name : {"words-3.zst", "skewed-19.zst", "noise-3.zst", "mixed-19.zst", "one-3.zst", "zeros-1.zst"}) {
    std::string frame = fixture(name);
    const size_t step = frame.size() > 1000 ? 7 : 1;
    for (size_t size = 0; size < frame.size(); size += step) {
      std::vector<std::byte> cut = exactly(bytesOf(frame).first(size));
      CHECK(!unzstd(cut, 320'000));
    }
    CHECK(!unzstd(exactly(bytesOf(frame + "x")), 320'000));
  }
}

TEST("a zstd frame with flipped bits never writes outside, and its checksum tells") {
  for (const char* name :
       {"words-3.zst", "skewed-3.zst", "noise-3.zst", "words-19.zst", "long-1.zst", "skewed-19.zst"}) {
    const std::string frame = fixture(name);
    const std::string original = *unzstd(bytesOf(frame), 320'000);
    const bool hasChecksum = frame[4] & 4;
    Numbers numbers(7);
    for (int round = 0; round < 400; ++round) {
      std::string damaged = frame;
      const uint32_t flips = 1 + numbers.next() % 3;
      for (uint32_t i = 0; i < flips; ++i) {
        // Headers and tables come first, so they are damaged more often than the rest.
        const size_t range = round % 2 ? damaged.size() : std::min<size_t>(damaged.size(), 96);
        const size_t at = (size_t{numbers.next()} << 16 | numbers.next()) % range;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << numbers.next() % 8));
      }
      Result<std::string> text = unzstd(exactly(bytesOf(damaged)), original.size());
      if (text && hasChecksum && (damaged[4] & 4)) CHECK(*text == original);
    }
  }
}

TEST("bytes that are no zstd frame are refused") {
  CHECK(!unzstd({}, 10));
  CHECK(!unzstd(bytesOf("plain text"), 100));
  const std::string magic = "\x28\xB5\x2F\xFD";
  CHECK(!unzstd(bytesOf(magic), 10));
  // A frame that names dictionary 7.
  CHECK(!unzstd(bytesOf(magic + std::string("\x21\x07\x00\x01\x00\x00", 6)), 10));
  // A reserved block type.
  CHECK(!unzstd(bytesOf(magic + std::string("\x20\x00\x07\x00\x00", 5)), 10));
  // A whole frame by hand: one raw block of three bytes.
  Result<std::string> text = unzstd(bytesOf(magic + std::string("\x20\x03\x19\x00\x00"
                                                                "abc",
                                                                8)),
                                    3);
  CHECK(text);
  CHECK_EQ(*text, std::string("abc"));
}

Result<std::string> unlz4(Bytes block, size_t limit) {
  std::string out(limit, '\0');
  Result<size_t> written = decompressLz4Block(block, std::as_writable_bytes(std::span(out)));
  if (!written) return written.error();
  out.resize(*written);
  return out;
}

void putLz4Length(std::string& out, size_t length) {
  if (length < 15) return;
  for (length -= 15; length >= 255; length -= 255) out += '\xFF';
  out += static_cast<char>(length);
}

// The simplest valid encoder: the longest match among the last 64 KiB by brute force over a few candidates. As the
// format requires, the last match begins at least 12 bytes before the end, and the last 5 bytes are literals.
std::string lz4(const std::string& text) {
  std::string out;
  size_t literalStart = 0;
  size_t position = 0;
  auto emit = [&](size_t offset, size_t match) {
    const size_t literals = position - literalStart;
    const size_t matchField = match ? std::min<size_t>(match - 4, 15) : 0;
    out += static_cast<char>(std::min<size_t>(literals, 15) << 4 | matchField);
    putLz4Length(out, literals);
    out.append(text, literalStart, literals);
    if (!match) return;
    out += static_cast<char>(offset);
    out += static_cast<char>(offset >> 8);
    putLz4Length(out, match - 4);
  };
  while (position < text.size()) {
    size_t best = 0;
    size_t bestOffset = 0;
    for (size_t offset : {1, 2, 3, 14, 64, 300, 1000}) {
      if (offset > position) break;
      size_t length = 0;
      while (position + length + 5 < text.size() && text[position + length] == text[position + length - offset])
        ++length;
      if (length > best) best = length, bestOffset = offset;
    }
    if (best < 4 || position + 12 > text.size()) {
      ++position;
      continue;
    }
    emit(bestOffset, best);
    position += best;
    literalStart = position;
  }
  emit(0, 0);
  return out;
}

TEST("LZ4 blocks round trip, with overlapping matches and long lengths") {
  for (const std::string& text : {std::string(), std::string("a"), std::string(5000, 'z'), noise(3000, 9),
                                  skewed(3000, 10), noise(700, 11) + std::string(700, 'q') + noise(700, 11)}) {
    std::string block = lz4(text);
    Result<std::string> back = unlz4(exactly(bytesOf(block)), text.size());
    CHECK(back);
    CHECK(*back == text);
    for (size_t size = 0; size + 1 < block.size(); ++size) {
      Result<std::string> cut = unlz4(exactly(bytesOf(block).first(size)), text.size());
      CHECK(!cut || cut->size() < text.size());
    }
  }
  CHECK(!unlz4(bytesOf(std::string("\x10"
                                   "a\x02\x00",
                                   4)),
               100));  // before the start
  CHECK(!unlz4(bytesOf(std::string("\x10"
                                   "a\x00\x00",
                                   4)),
               100));  // offset 0
  CHECK(!unlz4(bytesOf("\x50"
                       "abcde"),
               4));  // too large
}

TEST("LZ4 blocks with flipped bits never write outside") {
  const std::string text = skewed(2000, 12) + std::string(2000, 'x');
  const std::string block = lz4(text);
  Numbers numbers(13);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = block;
    size_t at = numbers.next() % damaged.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << numbers.next() % 8));
    Result<std::string> back = unlz4(exactly(bytesOf(damaged)), text.size());
    if (back) CHECK(back->size() <= text.size());
  }
}

// The text from the first entry on, without white space.
std::string codeOf(const std::string& ptx) {
  std::string code = ptx.substr(ptx.find(".visible"));
  std::erase_if(code, [](unsigned char c) { return std::isspace(c); });
  return code;
}

TEST("fatbins of every compression mode of nvcc give the PTX for this device") {
  const std::string expected = fixture("scale.ptx");
  for (const char* mode : {"default", "size", "speed", "balance", "none"}) {
    std::string fatbin = fixture(std::string("scale-") + mode + ".fatbin");
    Result<std::string> ptx = extractPtx(exactly(bytesOf(fatbin)));
    if (!ptx) std::fprintf(stderr, "%s: %s\n", mode, ptx.error().message.c_str());
    CHECK(ptx);
    // Not byte for byte, because the compiler removes white space when it builds a fatbin.
    CHECK(ptx->find(".target sm_75") != std::string::npos);
    CHECK_EQ(codeOf(*ptx), codeOf(expected));

    PtxResult newer = findPtx(bytesOf(fatbin), 90);
    CHECK(std::get_if<std::string>(&newer));
    CHECK(std::get_if<std::string>(&newer)->find(".target sm_90") != std::string::npos);
    PtxResult older = findPtx(bytesOf(fatbin), 70);
    CHECK(std::get_if<ImageError>(&older));
    CHECK(std::get_if<ImageError>(&older)->fault == ImageFault::noPtx);
  }
}

TEST("machine code alone has no PTX, and says so") {
  for (const char* name : {"cubin-only.fatbin", "scale.cubin"}) {
    PtxResult result = findPtx(bytesOf(fixture(name)), 75);
    const auto* error = std::get_if<ImageError>(&result);
    CHECK(error);
    CHECK(error->fault == ImageFault::noPtx);
    CHECK(error->message.find("machine code") != std::string::npos);
  }
}

TEST("PTX text is taken as it is, up to its first NUL") {
  std::string text = fixture("scale.ptx");
  CHECK(*extractPtx(bytesOf(text)) == text);
  CHECK(*extractPtx(bytesOf(text + std::string(5, '\0') + "rest")) == text);
  CHECK(*extractPtx(bytesOf(".v")) == ".v");
  CHECK(!extractPtx({}));
}

TEST("fatbins that are cut off or damaged are refused or read, never crash") {
  for (const char* mode : {"size", "speed", "none"}) {
    const std::string fatbin = fixture(std::string("scale-") + mode + ".fatbin");
    for (size_t size = 4; size < fatbin.size(); ++size) {
      CHECK(!extractPtx(exactly(bytesOf(fatbin).first(size))));
    }
    Numbers numbers(14);
    for (int round = 0; round < 2000; ++round) {
      std::string damaged = fatbin;
      size_t at = 4 + numbers.next() % (round % 2 ? damaged.size() - 4 : 76);
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << numbers.next() % 8));
      (void)extractPtx(exactly(bytesOf(damaged)));
    }
  }
}

TEST("images are located behind pointers as the driver gets them") {
  std::string fatbin = fixture("scale-size.fatbin");
  std::string cubin = fixture("scale.cubin");
  const struct {
    uint32_t magic = 0x466243B1, version;
    const void* data;
    const void* auxiliary;
  } first = {.version = 1, .data = fatbin.data(), .auxiliary = "a file name"};
  Result<std::vector<Bytes>> images = locateImages(&first);
  CHECK(images);
  CHECK_EQ(images->size(), size_t{1});
  CHECK_EQ((*images)[0].size(), fatbin.size());
  CHECK((*images)[0].data() == bytesOf(fatbin).data());

  const void* list[] = {fatbin.data(), fatbin.data(), nullptr};
  const struct {
    uint32_t magic = 0x466243B1, version;
    const void* data;
    const void* auxiliary;
  } second = {.version = 2, .data = fatbin.data(), .auxiliary = list};
  images = locateImages(&second);
  CHECK(images);
  CHECK_EQ(images->size(), size_t{3});

  images = locateImages(cubin.data());
  CHECK(images);
  CHECK_EQ((*images)[0].size(), cubin.size());
  images = locateImages(".v");
  CHECK(images);
  CHECK_EQ((*images)[0].size(), size_t{2});
  CHECK(!locateImages(nullptr));
}

}  // namespace
}  // namespace millpond::image
