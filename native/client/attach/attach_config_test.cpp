// SPDX-License-Identifier: Apache-2.0
#include "client/attach/attach_config.h"

#include <string>

#include "testing/check.h"

using namespace millpond;
using namespace millpond::client;

TEST("the environment is checked before anything is asked") {
  const auto refused = [](auto change) {
    Environment e;
    e.controller = "http://127.0.0.1:1";
    change(e);
    const auto config = AttachConfig::from(e);
    return !config && config.error().message.ends_with("[MILLPOND_E_INVALID]");
  };
  CHECK(!refused([](Environment&) {}));
  CHECK(refused([](Environment& e) { e.controller = "controller"; }));
  CHECK(refused([](Environment& e) { e.controller = "https://controller#sha256=" + std::string(64, '0'); }));
  CHECK(refused([](Environment& e) { e.controller = "http://a:1,"; }));
  CHECK(refused([](Environment& e) { e.controller = "http://a:1,b"; }));
  CHECK(refused([](Environment& e) { e.token = "a\r\nX: y"; }));
  CHECK(refused([](Environment& e) { e.gpus = "0"; }));
  CHECK(refused([](Environment& e) { e.gpus = "65"; }));
  CHECK(refused([](Environment& e) { e.gpus = "-1"; }));
  CHECK(refused([](Environment& e) { e.gpus = "two"; }));
  CHECK(refused([](Environment& e) { e.memory = "lots"; }));
  CHECK(refused([](Environment& e) { e.compute = "0"; }));
  CHECK(refused([](Environment& e) { e.compute = "101"; }));
  CHECK(refused([](Environment& e) { e.compute = "1.5%"; }));
  CHECK(refused([](Environment& e) { e.transport = "rdma"; }));
  CHECK(refused([](Environment& e) { e.waitTimeout = "-1"; }));
  CHECK(refused([](Environment& e) { e.reconnectGrace = "-1"; }));
  CHECK(refused([](Environment& e) { e.reconnectGrace = "86401"; }));
  CHECK(refused([](Environment& e) { e.reconnectGrace = "60s"; }));
  for (const char* users : {"", "x", "1000,", ",1000", "1000 1001", "-1", "4294967295"})
    CHECK(refused([&](Environment& e) { e.trustedUsers = users; }));
  CHECK(refused([](Environment& e) { e.claim = std::string(64, 'a'); }));
  CHECK(AttachConfig::from(Environment{}).error().message.ends_with("[MILLPOND_E_NOT_CONFIGURED]"));
}

TEST("users who may serve on loopback are trusted as controllers, agents and workers") {
  Environment e;
  e.controller = "http://127.0.0.1:1";
  e.trustedUsers = "1000,4294967294";
  const TrustedUsers users{1000, 4'294'967'294};
  CHECK(AttachConfig::from(e)->trust.users == users);
  e.worker = "tcp:127.0.0.1:7";
  CHECK(AttachConfig::from(e)->worker->users == users);
}

TEST("memory sizes") {
  const auto bytes = [](const char* text) {
    const auto size = MemorySize::parse(text);
    return size ? size->bytes : 0;
  };
  const auto percent = [](const char* text) {
    const auto size = MemorySize::parse(text);
    return size ? size->percent : 0;
  };
  CHECK_EQ(bytes("512Mi"), 536870912u);
  CHECK_EQ(bytes("512MiB"), 536870912u);
  CHECK_EQ(bytes("8G"), 8'000'000'000u);
  CHECK_EQ(bytes("8GB"), 8'000'000'000u);
  CHECK_EQ(bytes("8Gi"), 8589934592u);
  CHECK_EQ(bytes("1.5Gi"), 1610612736u);
  CHECK_EQ(bytes("8192"), 8589934592u);
  CHECK_EQ(bytes("1"), 1048576u);
  CHECK_EQ(bytes("2Ti"), 2199023255552u);
  CHECK_EQ(percent("50%"), 50u);
  CHECK_EQ(percent("100%"), 100u);
  CHECK_EQ(percent("0.5"), 50u);
  CHECK_EQ(percent("0.01"), 1u);
  CHECK_EQ(percent("1.0"), 100u);
  CHECK_EQ(percent("0.290000000"), 29u);
  CHECK_EQ(bytes("1048577B"), 1048577u);
  CHECK_EQ(bytes("512mib"), 536870912u);
  CHECK_EQ(bytes("0.001953125Gi"), 2097152u);
  CHECK_EQ(bytes("1024Ti"), uint64_t{1} << 50);
  for (const char* bad : {"",          "0",
                          "0%",        "101%",
                          "1.5%",      "0.0",
                          "1.01",      "0.005",
                          "Mi",        "-1",
                          "1Ei",       "1X",
                          "1 Gi",      "1GiBB",
                          "1023Ki",    "1048575B",
                          "1025Ti",    "1024.5Ti",
                          "1.5B%",     "B",
                          "i",         "iB",
                          "8Pi",       "8GiGi",
                          "1..5G",     "99999999999999999999",
                          "2000000Ti", "1.2.3",
                          "1.",        ".5",
                          "5e3",       "0x10",
                          "%"}) {
    if (MemorySize::parse(bad)) millpond::testing::fail(__FILE__, __LINE__, std::string("accepted: ") + bad);
  }
}
