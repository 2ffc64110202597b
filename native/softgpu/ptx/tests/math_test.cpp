// SPDX-License-Identifier: Apache-2.0
// The mathematical library within the bounds of the CUDA guide, mixed integer arithmetic exactly.
#include <bit>
#include <cmath>
#include <random>

#include "softgpu/ptx/tests/fixture.h"

using namespace millpond::softgpu::ptx;
using namespace millpond::softgpu::ptx::testing;

namespace {

Device& mathDevice() {
  static Device made(readKernelFile("math.ptx"));
  return made;
}

constexpr size_t kCount = 4000;

template <typename T>
struct Function {
  int which;
  long double (*exact)(long double, long double);
  double ulps;
  double low;
  double high;
};

template <typename T>
void check(const char* kernel, const Function<T>& f) {
  std::mt19937_64 random(31);
  std::uniform_real_distribution<double> pick(f.low, f.high);
  std::vector<T> a(kCount);
  std::vector<T> b(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<T>(pick(random));
    b[i] = static_cast<T>(pick(random));
  }
  const T edges[] = {T(0), T(1), std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN(),
                     std::numeric_limits<T>::min()};
  for (size_t i = 0; i < std::size(edges); ++i) a[i] = edges[i];
  Array<T> in(mathDevice().memory, a);
  Array<T> second(mathDevice().memory, b);
  Array<T> out(mathDevice().memory, kCount);
  mathDevice().run(kernel, {32, 1, 1}, {128, 1, 1}, Parameters(f.which, in, second, out, static_cast<int>(kCount)));
  for (size_t i = 0; i < kCount; ++i) {
    long double want = f.exact(static_cast<long double>(a[i]), static_cast<long double>(b[i]));
    T nearest = static_cast<T>(want);
    bool isRight;
    if (want != want) {
      isRight = out[i] != out[i];
    } else if (std::isinf(nearest)) {
      isRight = out[i] == nearest;
    } else {
      long double ulp = static_cast<long double>(
          std::nextafter(std::fabs(nearest), std::numeric_limits<T>::infinity()) - std::fabs(nearest));
      isRight = std::fabs(static_cast<long double>(out[i]) - want) <= static_cast<long double>(f.ulps) * ulp;
    }
    if (isRight) continue;
    ::millpond::testing::fail(__FILE__, __LINE__,
                              std::string(kernel) + " " + std::to_string(f.which) + " of " + std::to_string(a[i]) +
                                  ", " + std::to_string(b[i]) + " is " + std::to_string(out[i]) + ", not " +
                                  std::to_string(nearest));
  }
}

using L = long double;

}  // namespace

TEST("functions of float") {
  const Function<float> kFunctions[] = {
      {0, [](L x, L) { return std::exp(x); }, 2, -80, 80},
      {1, [](L x, L) { return std::log(x); }, 2, 0, 1000},
      {2, [](L x, L) { return std::sin(x); }, 2, -1e6, 1e6},
      {3, [](L x, L) { return std::cos(x); }, 2, -100, 100},
      {4, [](L x, L) { return std::tan(x); }, 4, -100, 100},
      {5, [](L x, L y) { return std::pow(x, y); }, 4, 0, 15},
      {6, [](L x, L) { return std::sqrt(x); }, 0.5, 0, 1e9},
      {7, [](L x, L) { return 1 / std::sqrt(x); }, 2, 0, 1e9},
      {8, [](L x, L) { return std::erf(x); }, 2, -4, 4},
      {9, [](L x, L) { return std::tanh(x); }, 2, -10, 10},
      {10, [](L x, L y) { return std::atan2(x, y); }, 3, -5, 5},
      {11, [](L x, L y) { return std::fmod(x, y); }, 0, 0.1, 1000},
      {12, [](L x, L) { return std::log2(x); }, 2, 0, 1000},
      {13, [](L x, L y) { return x / y; }, 0.5, -100, 100},
      {14, [](L x, L) { return std::exp(x); }, 100, -80, 80},
      {15, [](L x, L y) { return x / y; }, 2, -100, 100},
  };
  for (const Function<float>& f : kFunctions) check<float>("math_float", f);
}

TEST("functions of double") {
  const Function<double> kFunctions[] = {
      {0, [](L x, L) { return std::exp(x); }, 1, -700, 700},
      {1, [](L x, L) { return std::log(x); }, 1, 0, 1e6},
      {2, [](L x, L) { return std::sin(x); }, 2, -1e12, 1e12},
      {3, [](L x, L y) { return std::pow(x, y); }, 2, 0, 40},
      {4, [](L x, L) { return std::sqrt(x); }, 0.501, 0, 1e9},
      {5, [](L x, L y) { return x / y; }, 0.501, -100, 100},
      {6, [](L x, L y) { return std::fmod(x, y); }, 0, 0.1, 1e6},
      {7, [](L x, L) { return 1 / std::sqrt(x); }, 1, 0, 1e9},
  };
  for (const Function<double>& f : kFunctions) check<double>("math_double", f);
}

TEST("half precision as the headers have it") {
  Array<float> a(mathDevice().memory, std::vector<float>{1.0f, 0.1f, -3.5f, 65504.0f, 1e-8f, 1000.6f});
  Array<float> b(mathDevice().memory, std::vector<float>{2.0f, 0.2f, 7.25f, 1.0f, -1e-8f, 3.14159f});
  Array<float> out(mathDevice().memory, 18);
  mathDevice().run("half_math", {1, 1, 1}, {32, 1, 1}, Parameters(a, b, out, 6));
  const float expected[18] = {3,        5,        1,     1.2001953f, 1.4003906f, 0.10009765625f, -6,   1.25f, -3.5f,
                              INFINITY, INFINITY, 65536, 1,          1,          1.0012e-08f,    2002, 2005,  1000};
  for (size_t i = 0; i < 18; ++i)
    CHECK(out[i] == expected[i] || std::fabs(out[i] - expected[i]) <= std::fabs(expected[i]) * 2e-3f);
  CHECK_EQ(out[0], 3.0f);
  CHECK_EQ(out[6], -6.0f);
  CHECK_EQ(out[11], 65536.0f);
}

TEST("integers of all widths mixed") {
  std::mt19937_64 random(77);
  constexpr size_t kNumbers = 500;
  std::vector<long long> a(kNumbers);
  std::vector<long long> b(kNumbers);
  for (size_t i = 0; i < kNumbers; ++i) {
    a[i] = static_cast<long long>(random() >> (random() % 60));
    b[i] = static_cast<long long>(random() >> (random() % 60)) | 1;
    if (i % 3 == 0) a[i] = -a[i];
    if (i % 4 == 0) b[i] = -b[i];
    if (static_cast<int>(b[i] | 1) == -1 || b[i] == -1) b[i] = 7;  // quotients that do not fit
  }
  Array<long long> x(mathDevice().memory, a);
  Array<long long> y(mathDevice().memory, b);
  Array<long long> out(mathDevice().memory, 12 * kNumbers);
  mathDevice().run("integer_mix", {4, 1, 1}, {128, 1, 1}, Parameters(x, y, out, static_cast<int>(kNumbers)));
  using U = unsigned long long;
  for (size_t i = 0; i < kNumbers; ++i) {
    const long long* got = &out[12 * i];
    long long p = a[i];
    long long q = b[i];
    U up = static_cast<U>(p);
    U uq = static_cast<U>(q);
    unsigned wp = static_cast<unsigned>(up);
    unsigned wq = static_cast<unsigned>(uq);
    CHECK_EQ(got[0], p / q);
    CHECK_EQ(got[1], p % q);
    CHECK_EQ(got[2], static_cast<long long>(up / uq));
    CHECK_EQ(got[3], static_cast<long long>(up % uq));
    CHECK_EQ(got[4], static_cast<long long>((static_cast<__int128>(p) * q) >> 64));
    CHECK_EQ(got[5], static_cast<long long>((static_cast<unsigned __int128>(up) * uq) >> 64));
    CHECK_EQ(got[6],
             static_cast<int>(p) / static_cast<int>(q | 1) + static_cast<short>(p) * static_cast<signed char>(q));
    CHECK_EQ(got[7], static_cast<long long>(wp % (wq | 1) + (static_cast<unsigned short>(p) >> 3) +
                                            static_cast<unsigned>(static_cast<unsigned char>(q) << 5)));
    unsigned reversed = 0;
    for (int k = 0; k < 32; ++k) reversed |= (wp >> k & 1) << (31 - k);
    CHECK_EQ(got[8], static_cast<long long>(
                         static_cast<unsigned>(std::popcount(up) + std::countl_zero(up) + std::countr_zero(uq) + 1) +
                         reversed));
    unsigned bytes = (wp & 0xff) | (wq & 0xff) << 8 | (wp >> 8 & 0xff) << 16 | (wq >> 8 & 0xff) << 24;
    CHECK_EQ(got[9], static_cast<long long>((wq << 9 | wp >> 23) + bytes));
    CHECK_EQ(got[10], (p >> (q & 63)) ^ static_cast<long long>(up << (q & 63)));
    CHECK_EQ(got[11], static_cast<long long>((static_cast<__int128>(p) * q) >> 32));
  }
}
