// SPDX-License-Identifier: Apache-2.0
// Strict JSON (RFC 8259) for small messages between the parts: bounded in size and depth, no exceptions.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace millpond {

/// Limits of a parser for untrusted text.
struct JsonLimits {
  size_t bytes = size_t{1} << 20;  ///< longest text
  int depth = 32;                  ///< deepest nesting of arrays and objects
};

/// One JSON value. Numbers keep their text, so that 64-bit integers survive; there are no doubles here.
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json();
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  Json(std::same_as<bool> auto value) : Json(Bool{value}) {}
  template <std::integral T>
  requires(!std::same_as<T, bool> && !std::same_as<T, char>) Json(T value) : Json(Number{std::to_string(value)}) {}
  Json(std::string text);
  Json(std::string_view text);
  Json(const char* text);
  Json(Array items);
  Json(Object members);

  bool isNull() const;
  bool isNumber() const;
  std::optional<bool> boolean() const;
  /// The text of a JSON string; nullptr for other values.
  const std::string* string() const;
  /// An integer, written as a number without fraction or exponent or as a string of one; none if it does not fit.
  std::optional<int64_t> int64() const;
  std::optional<uint64_t> uint64() const;
  const Array* array() const;
  const Object* object() const;
  /// The value of a member; nullptr if this is not an object or has no such member.
  const Json* find(std::string_view key) const;

  /// Compact text. Bytes of strings that are not UTF-8 become U+FFFD.
  std::string dump() const;

  /// Parses `text` as one value. Refuses duplicate keys, invalid UTF-8, lone surrogates and anything beyond `limits`;
  /// the message names the byte of the error.
  static Result<Json> parse(std::string_view text, const JsonLimits& limits = {});

 private:
  friend class JsonParser;
  struct Null {};
  struct Bool {
    bool value;
  };
  struct Number {
    std::string text;
  };
  explicit Json(Bool value);
  explicit Json(Number value);
  const std::string* integerText() const;
  void dumpTo(std::string& out) const;

  std::variant<Null, Bool, Number, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

/// Appends `text` as a quoted JSON string; bytes that are not UTF-8 become U+FFFD.
void appendJsonString(std::string& out, std::string_view text);

}  // namespace millpond
