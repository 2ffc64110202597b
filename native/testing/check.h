// SPDX-License-Identifier: Apache-2.0
// The whole test framework: cases that register themselves and checks that report the compared values.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace millpond::testing {

struct Case {
  const char* file;
  const char* name;
  void (*run)();
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
struct Register {
  Register(const char* file, const char* name, void (*run)()) { cases().push_back({file, name, run}); }
};

template <typename T>
std::string show(const T& value) {
  if constexpr (requires(std::ostream & o) { o << value; }) {
    std::ostringstream out;
    out << value;
    return out.str();
  } else {
    return "<value>";
  }
}
[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::fflush(nullptr);
#ifdef MILLPOND_FUZZING
  std::abort();  // so that the input is kept
#else
  std::_Exit(1);
#endif
}
template <typename A, typename B>
void equal(const char* file, int line, const char* text, const A& a, const B& b) {
  if (!(a == b)) fail(file, line, std::string(text) + "\n  left:  " + show(a) + "\n  right: " + show(b));
}

/// Runs the cases whose file is argv[1] ("ring_test") and whose name contains argv[2]; all of them without.
inline int run(int argc, char** argv) {
  size_t done = 0;
  for (const Case& c : cases()) {
    const char* file = std::strrchr(c.file, '/');
    file = file ? file + 1 : c.file;
    if (argc > 1 && std::strcmp(file, (std::string(argv[1]) + ".cpp").c_str()) != 0) continue;
    if (argc > 2 && !std::strstr(c.name, argv[2])) continue;
    std::fprintf(stderr, "· %s\n", c.name);
    c.run();
    ++done;
  }
  std::fprintf(stderr, "%zu cases passed\n", done);
  return done ? 0 : 1;
}

}  // namespace millpond::testing

#define MP_JOIN2(a, b) a##b
#define MP_JOIN(a, b) MP_JOIN2(a, b)
// Numbered, and not named by their lines, because several files may be compiled as one.
#define MP_TEST(name, id)                                                                                 \
  static void MP_JOIN(test_, id)();                                                                       \
  static const ::millpond::testing::Register MP_JOIN(register_, id)(__FILE__, name, &MP_JOIN(test_, id)); \
  static void MP_JOIN(test_, id)()
#define TEST(name) MP_TEST(name, __COUNTER__)
#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) ::millpond::testing::fail(__FILE__, __LINE__, "CHECK(" #condition ") failed"); \
  } while (0)
#define CHECK_EQ(a, b) ::millpond::testing::equal(__FILE__, __LINE__, "CHECK_EQ(" #a ", " #b ") failed", (a), (b))
