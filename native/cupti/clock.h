// SPDX-License-Identifier: Apache-2.0
// The time stamps of records: nanoseconds since 1970, or those of a function of the program.
#pragma once

#include <cstdint>
#include <mutex>

namespace millpond::profiler {

int64_t nowNs();

class Clock {
 public:
  using Callback = uint64_t (*)();

  /// Null: nanoseconds since 1970.
  void use(Callback callback);
  uint64_t now();

  /// Converts nanoseconds since 1970 to time stamps, based on the progress of both clocks from the beginning until now.
  class Conversion {
   public:
    uint64_t operator()(int64_t ns) const;

   private:
    friend class Clock;
    bool isNone_ = true;
    int64_t ns_ = 0;
    uint64_t stamp_ = 0;
    double rate_ = 1;  ///< stamps per nanosecond
  };
  Conversion conversion();

 private:
  struct Moment {
    int64_t ns = 0;
    uint64_t stamp = 0;
  };
  static Moment measure(Callback callback);

  std::mutex mutex_;
  Callback callback_ = nullptr;
  Moment first_;
};

}  // namespace millpond::profiler
