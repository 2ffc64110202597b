// SPDX-License-Identifier: Apache-2.0
#include "tls/record_key.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "testing/check.h"
#include "tls/tls.h"

namespace {

using Bytes = std::vector<std::byte>;

Bytes bytesOf(std::string_view hex) {
  Bytes out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return out;
}

const unsigned char* raw(const Bytes& bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

/// The secrets of the "Simple 1-RTT Handshake" of RFC 8448, section 3.
const Bytes kClientSecret = bytesOf("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
const Bytes kServerSecret = bytesOf("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");

/// A whole record.
Bytes sealed(RecordKey& key, RecordKey::Content content, const Bytes& plain) {
  Bytes out(plain.size() + kTlsRecordOverhead);
  out.resize(key.seal(content, plain.data(), plain.size(), out.data()));
  CHECK(!out.empty());
  return out;
}

constexpr RecordKey::Cipher kCiphers[] = {RecordKey::Cipher::kFastest, RecordKey::Cipher::kOpenSsl};

void followTrace(RecordKey::Cipher cipher) {
  Bytes counting(50);
  for (size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<std::byte>(i);
  RecordKey client, server;
  CHECK(client.begin(raw(kClientSecret), cipher));
  CHECK(server.begin(raw(kServerSecret), cipher));
  CHECK(
      sealed(client, RecordKey::kData, counting) ==
      bytesOf(
          "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2"
          "977014bd1e3deae63aeebb21694915e4"));
  CHECK(sealed(client, RecordKey::kAlert, bytesOf("0100")) ==
        bytesOf("1703030013c9872760655666b74d7ff1153efd6db6d0b0e3"));
  // The server's ticket comes first.
  (void)sealed(server, RecordKey::kHandshake, counting);
  CHECK(
      sealed(server, RecordKey::kData, counting) ==
      bytesOf(
          "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a59a8fcc49c4bf2e5f0a21c"
          "0047c2abf332540dd032e167c2955d"));
}

TEST("records are those of the trace in RFC 8448") {
  for (const auto cipher : kCiphers) followTrace(cipher);
}

TEST("what was sealed is opened, whatever its length and however often the key is changed") {
  std::minstd_rand random(1);
  std::optional<RecordKey> from, to;
  for (int i = 0; i < 1000; ++i) {
    // Each cipher with each.
    if (i % 250 == 0) {
      CHECK(from.emplace().begin(raw(kClientSecret), kCiphers[i / 250 % 2]));
      CHECK(to.emplace().begin(raw(kClientSecret), kCiphers[i / 500]));
    }
    Bytes plain(i % 5 == 0 ? kTlsRecordBytes - random() % 300 : random() % 700);
    for (auto& each : plain) each = static_cast<std::byte>(random() >> 8);
    // Something precedes it, so that every alignment occurs.
    const size_t shift = random() % 64;
    Bytes record = sealed(*from, RecordKey::kData, plain);
    record.insert(record.begin(), shift, std::byte{0x55});
    const size_t length = RecordKey::length(record.data() + shift, record.size() - shift);
    CHECK_EQ(length, record.size() - shift);
    const auto opened = to->open(record.data() + shift, length);
    CHECK(opened.isWhole);
    CHECK_EQ(int{opened.content}, int{RecordKey::kData});
    CHECK(std::ranges::equal(std::span(opened.plain, opened.bytes), plain));
    if (random() % 20 == 0) CHECK(from->update() && to->update());
  }
}

TEST("a record of which any bit is another one is not opened") {
  std::minstd_rand random(2);
  for (int i = 0; i < 400; ++i) {
    RecordKey from, to;
    CHECK(from.begin(raw(kClientSecret)) && to.begin(raw(kClientSecret), kCiphers[i % 2]));
    Bytes record = sealed(from, RecordKey::kData, Bytes(random() % 2000, std::byte{7}));
    record[random() % record.size()] ^= static_cast<std::byte>(1 << random() % 8);
    const size_t length = RecordKey::length(record.data(), record.size());
    if (length == RecordKey::kNoRecord || length > record.size()) continue;
    CHECK(!to.open(record.data(), length).isWhole);
  }
}

TEST("lengths that no record has are refused by the header alone") {
  for (const auto& [header, length] : {std::pair{"1703030011", size_t{5 + 17}},
                                       {"1703030010", RecordKey::kNoRecord},
                                       {"1703030000", RecordKey::kNoRecord},
                                       {"1703034100", size_t{5 + 16640}},
                                       {"1703034101", RecordKey::kNoRecord},
                                       {"170303ffff", RecordKey::kNoRecord},
                                       {"1603030020", RecordKey::kNoRecord},
                                       {"1403030001", RecordKey::kNoRecord},
                                       {"1702030020", RecordKey::kNoRecord},
                                       {"17030300", size_t{0}}}) {
    const Bytes bytes = bytesOf(header);
    CHECK_EQ(RecordKey::length(bytes.data(), bytes.size()), length);
  }
}

}  // namespace
