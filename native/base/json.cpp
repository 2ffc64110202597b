// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <charconv>

#include "base/utf8.h"

namespace millpond {

Json::Json() = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(Array items) : value_(std::move(items)) {}
Json::Json(Object members) : value_(std::move(members)) {}
Json::Json(Bool value) : value_(value) {}
Json::Json(Number value) : value_(std::move(value)) {}

bool Json::isNull() const { return std::holds_alternative<Null>(value_); }
bool Json::isNumber() const { return std::holds_alternative<Number>(value_); }

std::optional<bool> Json::boolean() const {
  const Bool* value = std::get_if<Bool>(&value_);
  if (!value) return std::nullopt;
  return value->value;
}

const std::string* Json::string() const { return std::get_if<std::string>(&value_); }
const Json::Array* Json::array() const { return std::get_if<Array>(&value_); }
const Json::Object* Json::object() const { return std::get_if<Object>(&value_); }

const std::string* Json::integerText() const {
  if (const Number* number = std::get_if<Number>(&value_)) return &number->text;
  return string();
}

namespace {
template <typename T>
std::optional<T> toInteger(const std::string* text) {
  if (!text) return std::nullopt;
  T value{};
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}
}  // namespace

std::optional<int64_t> Json::int64() const { return toInteger<int64_t>(integerText()); }
std::optional<uint64_t> Json::uint64() const { return toInteger<uint64_t>(integerText()); }

const Json* Json::find(std::string_view key) const {
  const Object* members = object();
  if (!members) return nullptr;
  for (const Member& member : *members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

void appendJsonString(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  while (!text.empty()) {
    const size_t length = utf8Length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      appendUtf8(out, 0xfffd);
      text.remove_prefix(1);
      continue;
    }
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(text[0]);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      out += "\\u00";
      out.push_back(kHex[c >> 4]);
      out.push_back(kHex[c & 15]);
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  out.push_back('"');
}

void Json::dumpTo(std::string& out) const {
  if (const Bool* flag = std::get_if<Bool>(&value_)) {
    out += flag->value ? "true" : "false";
  } else if (const Number* number = std::get_if<Number>(&value_)) {
    out += number->text;
  } else if (const std::string* text = string()) {
    appendJsonString(out, *text);
  } else if (const Array* items = array()) {
    out.push_back('[');
    for (size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out.push_back(',');
      (*items)[i].dumpTo(out);
    }
    out.push_back(']');
  } else if (const Object* members = object()) {
    out.push_back('{');
    for (size_t i = 0; i < members->size(); ++i) {
      if (i > 0) out.push_back(',');
      appendJsonString(out, (*members)[i].key);
      out.push_back(':');
      (*members)[i].value.dumpTo(out);
    }
    out.push_back('}');
  } else {
    out += "null";
  }
}

std::string Json::dump() const {
  std::string out;
  dumpTo(out);
  return out;
}

// Recursive descent; `depth` bounds the recursion. The first failure is kept in `problem_`.
class JsonParser {
 public:
  JsonParser(std::string_view text, int depth) : text_(text), depthLeft_(depth) {}

  Result<Json> run() {
    Json value;
    if (parseValue(value)) {
      skipSpace();
      if (at_ == text_.size()) return value;
      fail("text after the value");
    }
    return Error{"not JSON: " + std::string(problem_) + " at byte " + std::to_string(at_)};
  }

 private:
  bool fail(const char* problem) {
    if (!problem_) problem_ = problem;
    return false;
  }
  bool ended() const { return at_ >= text_.size(); }
  char peek() const { return ended() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (ended() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skipSpace() {
    while (!ended() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }
  bool takeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return fail("unknown word");
    at_ += word.size();
    return true;
  }

  bool parseValue(Json& out) {
    skipSpace();
    if (ended()) return fail("unexpected end");
    switch (peek()) {
      case '{': return parseObject(out);
      case '[': return parseArray(out);
      case '"': {
        std::string text;
        if (!parseString(text)) return false;
        out = Json(std::move(text));
        return true;
      }
      case 't': out = Json(true); return takeWord("true");
      case 'f': out = Json(false); return takeWord("false");
      case 'n': out = Json(); return takeWord("null");
      default: return parseNumber(out);
    }
  }

  bool parseObject(Json& out) {
    if (--depthLeft_ < 0) return fail("nested too deeply");
    ++at_;
    Json::Object members;
    skipSpace();
    if (!take('}')) {
      do {
        skipSpace();
        Json::Member member;
        if (peek() != '"') return fail("a key was expected");
        if (!parseString(member.key)) return false;
        for (const Json::Member& earlier : members) {
          if (earlier.key == member.key) return fail("duplicate key");
        }
        // Checking for duplicates is quadratic; no message of ours is large enough for that to matter.
        if (members.size() >= 1024) return fail("too many members");
        skipSpace();
        if (!take(':')) return fail("':' was expected");
        if (!parseValue(member.value)) return false;
        members.push_back(std::move(member));
        skipSpace();
      } while (take(','));
      if (!take('}')) return fail("',' or '}' was expected");
    }
    ++depthLeft_;
    out = Json(std::move(members));
    return true;
  }

  bool parseArray(Json& out) {
    if (--depthLeft_ < 0) return fail("nested too deeply");
    ++at_;
    Json::Array items;
    skipSpace();
    if (!take(']')) {
      do {
        Json item;
        if (!parseValue(item)) return false;
        items.push_back(std::move(item));
        skipSpace();
      } while (take(','));
      if (!take(']')) return fail("',' or ']' was expected");
    }
    ++depthLeft_;
    out = Json(std::move(items));
    return true;
  }

  bool takeDigits() {
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > start || fail("a digit was expected");
  }

  bool parseNumber(Json& out) {
    const size_t start = at_;
    const bool negative = take('-');
    if (!(peek() >= '0' && peek() <= '9')) return fail(negative ? "a digit was expected" : "unexpected character");
    if (!take('0') && !takeDigits()) return false;
    if (take('.') && !takeDigits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (!takeDigits()) return false;
    }
    out = Json(Json::Number{std::string(text_.substr(start, at_ - start))});
    return true;
  }

  bool parseHex4(uint32_t& code) {
    if (text_.size() - at_ < 4) return fail("unfinished \\u escape");
    const char* first = text_.data() + at_;
    const auto [stop, error] = std::from_chars(first, first + 4, code, 16);
    if (error != std::errc() || stop != first + 4) return fail("bad \\u escape");
    at_ += 4;
    return true;
  }

  bool parseEscape(std::string& out) {
    const char c = peek();
    ++at_;
    switch (c) {
      case '"':
      case '\\':
      case '/': out.push_back(c); return true;
      case 'b': out.push_back('\b'); return true;
      case 'f': out.push_back('\f'); return true;
      case 'n': out.push_back('\n'); return true;
      case 'r': out.push_back('\r'); return true;
      case 't': out.push_back('\t'); return true;
      case 'u': {
        uint32_t code = 0;
        if (!parseHex4(code)) return false;
        if (code >= 0xd800 && code <= 0xdfff) {
          uint32_t low = 0;
          if (code >= 0xdc00 || !take('\\') || !take('u') || !parseHex4(low) || low < 0xdc00 || low > 0xdfff) {
            return fail("lone surrogate");
          }
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        appendUtf8(out, code);
        return true;
      }
      default: --at_; return fail("unknown escape");
    }
  }

  bool parseString(std::string& out) {
    ++at_;
    while (!ended()) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') {
        ++at_;
        return true;
      }
      if (c == '\\') {
        ++at_;
        if (ended()) break;
        if (!parseEscape(out)) return false;
        continue;
      }
      if (c < 0x20) return fail("control character in a string");
      const size_t length = utf8Length(text_.substr(at_));
      if (length == 0) return fail("invalid UTF-8");
      out.append(text_.substr(at_, length));
      at_ += length;
    }
    return fail("unfinished string");
  }

  std::string_view text_;
  size_t at_ = 0;
  int depthLeft_;
  const char* problem_ = nullptr;
};

Result<Json> Json::parse(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return Error{"not accepted as JSON: " + std::to_string(text.size()) + " bytes, at most " +
                 std::to_string(limits.bytes) + " are read"};
  }
  return JsonParser(text, limits.depth).run();
}

}  // namespace millpond
