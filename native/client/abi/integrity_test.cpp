// SPDX-License-Identifier: Apache-2.0
#include "client/abi/integrity.h"

#include <algorithm>
#include <numeric>

#include "client/abi/md2.h"
#include "testing/check.h"

using namespace millpond::client;

namespace {

std::span<const uint8_t> bytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string hex(const Md2Digest& digest) {
  std::string out;
  char two[3];
  for (const uint8_t byte : digest) {
    std::snprintf(two, sizeof two, "%02x", byte);
    out += two;
  }
  return out;
}

// The first digits of pi, 3 included, by Machin's formula in base 10^9: 16 atan(1/5) - 4 atan(1/239).
std::vector<int> digitsOfPi(size_t count) {
  const size_t words = count / 9 + 4;
  using Number = std::vector<int64_t>;
  constexpr int64_t kBase = 1'000'000'000;
  const auto divide = [&](Number& number, int64_t by) {
    int64_t rest = 0;
    for (int64_t& word : number) {
      const int64_t value = rest * kBase + word;
      word = value / by;
      rest = value % by;
    }
  };
  Number pi(words, 0);
  const auto addArctan = [&](int64_t factor, int64_t inverse) {
    Number power(words, 0);
    power[0] = factor < 0 ? -factor : factor;
    divide(power, inverse);
    int64_t sign = factor < 0 ? -1 : 1;
    for (int64_t k = 1; std::any_of(power.begin(), power.end(), [](int64_t w) { return w != 0; }); k += 2) {
      Number term = power;
      divide(term, k);
      for (size_t i = 0; i < words; ++i) pi[i] += sign * term[i];
      divide(power, inverse * inverse);
      sign = -sign;
    }
  };
  addArctan(16, 5);
  addArctan(-4, 239);
  for (size_t i = words; i-- > 1;) {  // carries, of either sign
    int64_t carry = pi[i] / kBase;
    if (pi[i] % kBase < 0) --carry;
    pi[i] -= carry * kBase;
    pi[i - 1] += carry;
  }
  std::vector<int> digits{static_cast<int>(pi[0])};
  for (size_t i = 1; digits.size() < count; ++i) {
    for (int64_t scale = kBase / 10; scale > 0; scale /= 10) digits.push_back(static_cast<int>(pi[i] / scale % 10));
  }
  return digits;
}

// RFC 1319's permutation: a shuffle whose random numbers are taken from the digits of pi.
std::array<uint8_t, 256> permutationOfPi() {
  const std::vector<int> digits = digitsOfPi(800);
  size_t at = 0;
  const auto below = [&](int n) {
    for (;;) {
      int value = digits.at(at++);
      int range = 10;
      for (int limit = 10; n > limit; limit *= 10) {
        value = value * 10 + digits.at(at++);
        range *= 10;
      }
      if (value < range / n * n) return value % n;
    }
  };
  std::array<uint8_t, 256> table;
  std::iota(table.begin(), table.end(), uint8_t{0});
  for (int i = 2; i <= 256; ++i) std::swap(table[static_cast<size_t>(below(i))], table[static_cast<size_t>(i - 1)]);
  return table;
}

// A second, plain implementation of MD2 with the permutation above.
Md2Digest plainMd2(std::string_view text, const std::array<uint8_t, 256>& table) {
  std::vector<uint8_t> message(text.begin(), text.end());
  const auto padding = static_cast<uint8_t>(16 - message.size() % 16);
  message.insert(message.end(), padding, padding);
  std::array<uint8_t, 16> sum{};
  uint8_t last = 0;
  for (size_t i = 0; i < message.size(); ++i) {
    sum[i % 16] = static_cast<uint8_t>(sum[i % 16] ^ table[message[i] ^ last]);
    last = sum[i % 16];
  }
  message.insert(message.end(), sum.begin(), sum.end());
  std::array<uint8_t, 48> x{};
  for (size_t start = 0; start < message.size(); start += 16) {
    for (size_t i = 0; i < 16; ++i) {
      x[16 + i] = message[start + i];
      x[32 + i] = static_cast<uint8_t>(x[16 + i] ^ x[i]);
    }
    int t = 0;
    for (int round = 0; round < 18; ++round) {
      for (uint8_t& byte : x) {
        byte = static_cast<uint8_t>(byte ^ table[static_cast<size_t>(t)]);
        t = byte;
      }
      t = (t + round) % 256;
    }
  }
  Md2Digest digest;
  std::copy_n(x.begin(), 16, digest.begin());
  return digest;
}

}  // namespace

TEST("MD2: the test suite of RFC 1319") {
  CHECK_EQ(hex(md2(bytesOf(""))), "8350e5a3e24c153df2275c9f80692773");
  CHECK_EQ(hex(md2(bytesOf("a"))), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  CHECK_EQ(hex(md2(bytesOf("abc"))), "da853b0d3f88d99b30283a69e6ded6bb");
  CHECK_EQ(hex(md2(bytesOf("message digest"))), "ab4f496bfb2a530b219ff33031fe06b0");
  CHECK_EQ(hex(md2(bytesOf("abcdefghijklmnopqrstuvwxyz"))), "4e8ddff3650292ab5a4108c3aa47940b");
  CHECK_EQ(hex(md2(bytesOf("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"))),
           "da33def2a42df13975352846c30338cd");
  CHECK_EQ(hex(md2(bytesOf("12345678901234567890123456789012345678901234567890123456789012345678901234567890"))),
           "d5976f79d83d3a0dc9806c3c66f3efd8");
}

TEST("MD2: agrees with a second implementation over the digits of pi at every length") {
  const auto table = permutationOfPi();
  std::string text;
  for (int i = 0; i < 100; ++i) {
    CHECK_EQ(hex(md2(bytesOf(text))), hex(plainMd2(text, table)));
    text.push_back(static_cast<char>(i * 37 + 11));
  }
}

TEST("HMAC: as RFC 2104 builds it from the hash, for short and long keys") {
  const auto byDefinition = [](std::string key, const std::string& message) {
    if (key.size() > 16) {
      const Md2Digest digest = md2(bytesOf(key));
      key.assign(digest.begin(), digest.end());
    }
    key.resize(16, '\0');
    std::string inner;
    std::string outer;
    for (const char c : key) {
      inner.push_back(static_cast<char>(c ^ 0x36));
      outer.push_back(static_cast<char>(c ^ 0x5c));
    }
    const Md2Digest first = md2(bytesOf(inner + message));
    outer.append(first.begin(), first.end());
    return md2(bytesOf(outer));
  };
  for (const char* key : {"", "k", "0123456789abcdef", "0123456789abcdef0", "a key that is longer than one block"}) {
    for (const char* message : {"", "m", "what do ya want for nothing?"}) {
      CHECK_EQ(hex(hmacMd2(bytesOf(key), bytesOf(message))), hex(byDefinition(key, message)));
    }
  }
}

TEST("every field of the question changes the answer") {
  const std::vector<IntegrityDevice> devices{{.uuid = {1, 2, 3}, .pciDomain = 0, .pciBus = 1, .pciDevice = 0}};
  const IntegrityQuestion base{13000, 13002, 4711, 0x1234, 0x1000, 0x2000, 0x3000, 1'790'000'000};
  const auto answer = integrityAnswer(base, devices);
  const auto differs = [&](auto change) {
    IntegrityQuestion question = base;
    std::vector<IntegrityDevice> others = devices;
    change(question, others);
    return integrityAnswer(question, others) != answer;
  };
  using Q = IntegrityQuestion;
  using D = std::vector<IntegrityDevice>;
  CHECK(!differs([](Q&, D&) {}));
  CHECK(differs([](Q& q, D&) { q.driverVersion++; }));
  CHECK(differs([](Q& q, D&) { q.version++; }));
  CHECK(differs([](Q& q, D&) { q.pid++; }));
  CHECK(differs([](Q& q, D&) { q.thread++; }));
  CHECK(differs([](Q& q, D&) { q.runtimeTable += uint64_t{1} << 40; }));
  CHECK(differs([](Q& q, D&) { q.checkTable++; }));
  CHECK(differs([](Q& q, D&) { q.checkFunction++; }));
  CHECK(differs([](Q& q, D&) { q.unixSeconds++; }));
  CHECK(differs([](Q&, D& d) { d[0].uuid[15] = 1; }));
  CHECK(differs([](Q&, D& d) { d[0].pciDomain = 1; }));
  CHECK(differs([](Q&, D& d) { d[0].pciBus = 2; }));
  CHECK(differs([](Q&, D& d) { d[0].pciDevice = 1; }));
  CHECK(differs([](Q&, D& d) { d.push_back(d[0]); }));
  CHECK(differs([](Q&, D& d) { d.clear(); }));
}

TEST("runtimes of CUDA 11 get the answer of their method, which depends on nothing else") {
  const std::vector<IntegrityDevice> devices{{.uuid = {1, 2, 3}, .pciDomain = 0, .pciBus = 1, .pciDevice = 0}};
  IntegrityQuestion question{13000, 11080, 4711, 0x1234, 0x1000, 0x2000, 0x3000, 1'790'000'000};
  const auto first = integrityAnswer(question, devices);
  CHECK_EQ(first[0], 0x3341'181c'03cb'675cu);
  CHECK_EQ(first[1], 0x8ed3'83aa'1f4c'd1e8u);
  question.pid++;
  CHECK(integrityAnswer(question, {}) == first);
  question.version = 11081;
  CHECK(integrityAnswer(question, devices) != first);
  question.version = 11082;
  CHECK(integrityAnswer(question, devices) != integrityAnswer(question, {}));
}
