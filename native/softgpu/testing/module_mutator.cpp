// SPDX-License-Identifier: Apache-2.0
// How libFuzzer changes an image: PTX text word by word and line by line, everything else as it sees fit.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t maxSize);

namespace {

/// Tokens of PTX that a small corpus may lack.
// clang-format off
constexpr auto kWords = std::to_array<std::string_view>({
    ".1d", ".2d", ".3d", ".a1d", ".a2d", ".acq_rel", ".acquire", ".add", ".align 16", ".aligned", ".all", ".and",
    ".any", ".approx", ".arrive", ".atom", ".b16", ".b32", ".b4e", ".b64", ".b8", ".ballot", ".bf16", ".bf16x2", ".bfly",
    ".branchtargets", ".ca", ".callprototype", ".calltargets", ".cas", ".cc", ".cg", ".clamp", ".cluster", ".common",
    ".const", ".cs", ".cta", ".cv", ".dec", ".down", ".entry", ".eq", ".exch", ".extern", ".f16", ".f16x2", ".f32",
    ".f4e", ".f64", ".finite", ".ftz", ".full", ".func", ".ge", ".geu", ".gl", ".global", ".gpu", ".gt", ".gtu", ".hi",
    ".idx", ".inc", ".infinite", ".l", ".le", ".leu", ".lo", ".loc", ".local", ".lt", ".ltu", ".managed", ".max",
    ".maxnreg", ".maxntid", ".min", ".nan", ".nc", ".ne", ".neu", ".noreturn", ".normal", ".num", ".number", ".or",
    ".param", ".popc", ".pragma", ".pred", ".ptr", ".r", ".rc16", ".rc8", ".red", ".reg", ".relaxed", ".release",
    ".relu", ".reqntid", ".rm", ".rmi", ".rn", ".rna", ".rni", ".rp", ".rpi", ".rz", ".rzi", ".s16", ".s32", ".s64",
    ".s8", ".sat", ".section", ".shared", ".shiftamt", ".subnormal", ".surfref", ".sync", ".sys", ".target", ".texref",
    ".to", ".trap", ".u16", ".u32", ".u64", ".u8", ".uni", ".up", ".v2", ".v4", ".v8", ".version", ".visible",
    ".volatile", ".warp", ".wb", ".weak", ".wide", ".wrap", ".wt", ".xor", ".zero", "%clock64", "%ctaid.x",
    "%dynamic_smem_size", "%envreg3", "%laneid", "%lanemask_lt", "%nctaid.y", "%ntid.x", "%tid.x", "%warpid", "%p1",
    "%r1", "%rd1", "%f1", "%fd1", "abs", "activemask", "add", "addc", "and", "atom", "bar", "barrier", "bfe", "bfi",
    "bfind", "bmsk", "bra", "brev", "brkpt", "brx", "call", "clz", "cnot", "copysign", "cos", "cvt", "cvta", "discard",
    "div", "dp2a", "dp4a", "elect", "ex2", "exit", "fence", "fma", "fns", "free", "generic", "isspacep", "ld", "ldu",
    "lg2", "lop3", "mad", "mad24", "madc", "malloc", "match", "max", "membar", "min", "mov", "mul", "mul24", "nanosleep",
    "neg", "not", "or", "pmevent", "popc", "prefetch", "prmt", "rcp", "red", "redux", "rem", "ret", "rsqrt", "sad",
    "selp", "set", "setp", "shf", "shfl", "shl", "shr", "sin", "slct", "sqrt", "st", "sub", "subc", "suld", "sust",
    "szext", "tanh", "testp", "tex", "tld4", "trap", "vabsdiff", "vadd", "vadd2", "vavrg4", "vmax2", "vmin4", "vote",
    "vprintf", "vsub4", "xor", "0", "1", "31", "32", "65535", "-1", "4294967296", "18446744073709551615",
    "0x7fffffffffffffff", "0f7F800000", "0d0000000000000000", "{", "}", "(", ")", "[", "]", ",", ";", ":", "+", "-", "=",
    "_", "|", "!", "@", "<", ">", "\"", "/*", "//", "WARP_SZ",
});
// clang-format on

bool isWordByte(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }

/// Words with their leading dot, single punctuation marks, and runs of blanks.
std::vector<std::string_view> wordsOf(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    size_t end = 1;
    if (isWordByte(text[0]) || text[0] == '.')
      while (end < text.size() && isWordByte(text[end])) ++end;
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

class TextMutator {
 public:
  TextMutator(std::string text, uint32_t seed) : random_(seed), text_(std::move(text)) {}
  const std::string& text() const { return text_; }

  void change() {
    if (below(2))
      changeWord();
    else
      changeLine();
  }

 private:
  uint32_t below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }

  void changeWord() {
    const auto words = wordsOf(text_);
    if (words.empty()) return;
    const std::string_view at = words[below(words.size())];
    const auto begin = static_cast<size_t>(at.data() - text_.data());
    const std::string other(below(2) ? kWords[below(kWords.size())] : words[below(words.size())]);
    switch (below(5)) {
      case 0: text_.erase(begin, at.size()); break;
      case 1: text_.insert(begin, other); break;
      case 2: text_.replace(begin, at.size(), std::to_string(uint64_t{random_()} << below(40))); break;
      default: text_.replace(begin, at.size(), other);
    }
  }

  std::pair<size_t, size_t> anyLine() {
    const size_t inside = below(text_.size() + 1);
    const size_t before = inside == 0 ? std::string::npos : text_.rfind('\n', inside - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    const size_t end = text_.find('\n', begin);
    return {begin, (end == std::string::npos ? text_.size() : end + 1) - begin};
  }
  void changeLine() {
    const auto [begin, length] = anyLine();
    const std::string line = text_.substr(begin, length);
    switch (below(3)) {
      case 0: text_.erase(begin, length); break;
      case 1: text_.insert(anyLine().first, line); break;
      default: text_.erase(begin, length); text_.insert(anyLine().first, line);
    }
  }

  std::minstd_rand random_;
  std::string text_;
};

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t maxSize, unsigned seed) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool isText =
      text.find(".version") != std::string_view::npos && std::isprint(static_cast<unsigned char>(text[0]));
  if (!isText || seed % 8 == 0) return LLVMFuzzerMutate(data, size, maxSize);
  TextMutator mutator(std::string(text), seed);
  for (unsigned i = 0; i <= seed % 4; ++i) mutator.change();
  const size_t written = std::min(mutator.text().size(), maxSize);
  std::memcpy(data, mutator.text().data(), written);
  return written;
}
