// SPDX-License-Identifier: Apache-2.0
// How the arguments of every call are shown in a trace: the tables of gen/trace_tables.cpp.
#pragma once

#include <cstdint>

namespace millpond::client::trace {

/// The type of a value, or of a pointer's target.
enum class Kind : uint8_t {
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF32,
  kF64,
  kBits32,
  kBits64,
  kHex64,  ///< an address or a handle
  kEnum,
  kStruct,
  kResult,            ///< CUresult
  kStream,            ///< CUstream, some of which have a meaning of their own
  kFunction,          ///< CUfunction or CUkernel, shown with its name
  kUuid,              ///< CUuuid
  kText,              ///< characters up to a zero
  kTextPointer,       ///< a pointer to such characters
  kKernelParameters,  ///< the `void**` of a launch, for the function among the call's arguments
  kOpaque,            ///< cannot be shown
};

/// Where the value is.
enum class Shape : uint8_t {
  kValue,    ///< the argument itself
  kRead,     ///< where the argument points, valid before the call
  kWritten,  ///< where the argument points, valid after the call has succeeded
  kInPlace,  ///< in the struct, or passed as one
};

/// A parameter, or a field of a struct.
struct Item {
  uint16_t name;    ///< in kWords
  uint16_t of;      ///< in kStructs or kEnums
  uint16_t offset;  ///< of a field
  Kind kind;
  Shape shape;
};

/// An exported function.
struct Symbol {
  uint16_t name;   ///< in kWords
  uint16_t first;  ///< in kParameters
  uint16_t count;
};

struct Range {
  uint16_t first;
  uint16_t count;
};

struct Enum {
  uint16_t first;  ///< in kEnumValues
  uint16_t count;
  uint16_t prefix;  ///< in kWords: the common prefix of all its names
};

struct EnumValue {
  int32_t value;
  uint16_t rest;  ///< in kWords: its name without the prefix
};

extern const char kWords[];
extern const Item kParameters[];
extern const Symbol kSymbols[];
extern const uint32_t kSymbolCount;
extern const Item kFields[];
extern const Range kStructs[];
extern const Enum kEnums[];
extern const EnumValue kEnumValues[];

}  // namespace millpond::client::trace
