// SPDX-License-Identifier: Apache-2.0
#include "softgpu/ptx/decode/symbols.h"

#include <charconv>

namespace millpond::softgpu::ptx {

uint32_t Scopes::open(uint32_t parent) {
  scopes_.push_back({parent, {}, {}});
  return static_cast<uint32_t>(scopes_.size() - 1);
}

bool Scopes::declare(uint32_t scope, std::string_view name, const Binding& symbol) {
  return scopes_[scope].names.try_emplace(name, symbol).second;
}

bool Scopes::declareRange(uint32_t scope, std::string_view prefix, Type type, uint64_t count) {
  return scopes_[scope].ranges.try_emplace(prefix, Range{type, count}).second;
}

uint32_t Scopes::newRegister(Type type) {
  const auto index = static_cast<uint32_t>(widths_.size());
  if (type == Type::kB128)
    widths_.insert(widths_.end(), 2, registerWidth(Type::kB64));
  else
    widths_.push_back(registerWidth(type));
  return index;
}

const Binding* Scopes::find(uint32_t scope, std::string_view name) {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  for (uint32_t at = scope;; at = scopes_[at].parent) {
    Scope& here = scopes_[at];
    if (auto found = here.names.find(name); found != here.names.end()) return &found->second;
    // "%r12" may be the range "%r" or, with more digits in the prefix, "%r1".
    for (size_t split = digits; split < name.size() && !here.ranges.empty(); ++split) {
      auto range = here.ranges.find(name.substr(0, split));
      if (range == here.ranges.end()) continue;
      std::string_view number = name.substr(split);
      if (number.size() > 1 && number[0] == '0') continue;
      uint64_t index = 0;
      auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
      if (error != std::errc() || end != number.data() + number.size() || index >= range->second.count) continue;
      Binding symbol;
      symbol.kind = Binding::Kind::kRegister;
      symbol.type = range->second.type;
      symbol.index = newRegister(symbol.type);
      return &here.names.emplace(name, symbol).first->second;
    }
    if (at == 0) break;
  }
  auto found = module_.find(name);
  return found == module_.end() ? nullptr : &found->second;
}

}  // namespace millpond::softgpu::ptx
