// SPDX-License-Identifier: Apache-2.0
// The dotted parts of an opcode, taken one by one; remaining ones are not supported.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "softgpu/ptx/failure.h"
#include "softgpu/ptx/operations.h"
#include "softgpu/ptx/parse/ast.h"

namespace millpond::softgpu::ptx {

class Modifiers {
 public:
  explicit Modifiers(const InstructionNode& node) : node_(node) {
    if (node.modifiers.size() > 64) syntaxError(node.line, "too many modifiers");
  }

  /// Removes a modifier if it is present.
  bool take(std::string_view name) {
    for (size_t i = 0; i < node_.modifiers.size(); ++i) {
      if (isTaken(i) || node_.modifiers[i] != name) continue;
      taken_ |= uint64_t{1} << i;
      return true;
    }
    return false;
  }
  /// Removes all modifiers that begin with `prefix`.
  void takeAll(std::string_view prefix) {
    for (size_t i = 0; i < node_.modifiers.size(); ++i) {
      if (node_.modifiers[i].substr(0, prefix.size()) == prefix) taken_ |= uint64_t{1} << i;
    }
  }
  /// The first remaining type.
  std::optional<Type> takeType() {
    for (size_t i = 0; i < node_.modifiers.size(); ++i) {
      if (isTaken(i)) continue;
      if (std::optional<Type> type = typeNamed(node_.modifiers[i])) {
        taken_ |= uint64_t{1} << i;
        return type;
      }
    }
    return std::nullopt;
  }
  /// Removes the first remaining modifier that is one of the names; returns which.
  template <size_t kCount>
  std::optional<size_t> takeFirst(const std::string_view (&names)[kCount]) {
    for (size_t i = 0; i < node_.modifiers.size(); ++i) {
      for (size_t which = 0; which < kCount && !isTaken(i); ++which) {
        if (node_.modifiers[i] != names[which]) continue;
        taken_ |= uint64_t{1} << i;
        return which;
      }
    }
    return std::nullopt;
  }
  Type expectType() {
    std::optional<Type> type = takeType();
    if (!type) refuse();
    return *type;
  }
  /// .rn, .rz, .rm, .rp
  std::optional<Rounding> takeRounding() {
    if (take(".rn")) return Rounding::kNearestEven;
    if (take(".rz")) return Rounding::kZero;
    if (take(".rm")) return Rounding::kDown;
    if (take(".rp")) return Rounding::kUp;
    return std::nullopt;
  }
  std::optional<Space> takeSpace() {
    if (take(".global")) return Space::kGlobal;
    if (take(".shared") || take(".shared::cta")) return Space::kShared;
    if (take(".local")) return Space::kLocal;
    if (take(".const")) return Space::kConst;
    if (take(".param") || take(".param::entry") || take(".param::func")) return Space::kParam;
    return std::nullopt;
  }
  /// 1, 2 or 4.
  uint32_t takeVector() { return take(".v2") ? 2 : take(".v4") ? 4 : 1; }
  /// .cta, .cluster, .gpu, .sys: all the same here, because every order is treated as the strictest one.
  void takeScope() {
    for (std::string_view scope : {".cta", ".cluster", ".gpu", ".sys"}) take(scope);
  }
  /// Cache hints, which have no effect.
  void takeCacheHints() {
    for (std::string_view hint : {".ca", ".cg", ".cs", ".lu", ".cv", ".wb", ".wt", ".nc"}) take(hint);
    takeAll(".L1::");
    takeAll(".L2::");
    takeAll(".level::");
  }

  void finish() const {
    for (size_t i = 0; i < node_.modifiers.size(); ++i) {
      if (!isTaken(i)) refuse();
    }
  }
  [[noreturn]] void refuse() const { unsupported(node_.line, "the instruction " + quoted(node_.fullName())); }

 private:
  bool isTaken(size_t i) const { return taken_ >> i & 1; }

  const InstructionNode& node_;
  uint64_t taken_ = 0;
};

}  // namespace millpond::softgpu::ptx
