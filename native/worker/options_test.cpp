// SPDX-License-Identifier: Apache-2.0
#include "worker/options.h"

#include "protocol/handshake/handshake.h"
#include "testing/check.h"

namespace millpond::worker {
namespace {

Result<Options> parse(std::vector<std::string> words) {
  words.insert(words.begin(), "millpond-worker");
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  return Options::parse(arguments);
}

const std::vector<std::string> kGood = {"--driver", "libcuda.so.1", "--id", "w1", "--control", "c", "--data", "d"};

std::vector<std::string> with(std::vector<std::string> more) {
  auto words = kGood;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const char* kAssignment =
    R"({"type": "assign", "session": "s-1", "ticket": "mpt1.a.b", "expires": 1790000060,
        "devices": [{"uuid": "GPU-1", "memoryBytes": 536870912, "computePercent": 50},
                    {"uuid": "GPU-2", "memoryBytes": "68719476736", "computePercent": 0,
                     "serviceClass": "best-effort"}]})";

TEST("a full command line is understood") {
  auto o = parse(with({"--tcp", "127.0.0.1:7000", "--warm-device", "GPU-9", "--gates", "/run/gates", "--orphan-seconds",
                       "86400", "--reconnect-grace", "0", "--assign", kAssignment}));
  CHECK(bool(o));
  CHECK_EQ(o->driver, "libcuda.so.1");
  CHECK(!o->probe);
  CHECK_EQ(o->id, "w1");
  CHECK_EQ(o->controlPath, "c");
  CHECK_EQ(o->dataPath, "d");
  CHECK_EQ(*o->tcpHost, "127.0.0.1");
  CHECK_EQ(o->tcpPort, 7000);
  CHECK_EQ(o->gates, "/run/gates");
  CHECK_EQ(o->warmDevice, "GPU-9");
  CHECK_EQ(o->orphanSeconds, 86400);
  CHECK_EQ(o->reconnectGraceSeconds, 0u);
  const Assignment& a = *o->assignment;
  CHECK_EQ(a.session, "s-1");
  CHECK_EQ(a.ticket, "mpt1.a.b");
  CHECK(!a.secret);
  CHECK_EQ(a.expires, 1790000060);
  CHECK_EQ(a.devices.size(), 2u);
  CHECK_EQ(a.devices[0].uuid, "GPU-1");
  CHECK_EQ(a.devices[0].memoryBytes, 536870912u);
  CHECK_EQ(a.devices[0].computePercent, 50u);
  CHECK(a.devices[0].serviceClass == ServiceClass::kGuaranteed);
  CHECK(a.devices[1].serviceClass == ServiceClass::kBestEffort);
  CHECK_EQ(a.devices[1].memoryBytes, 68719476736u);
  CHECK(!a.group);
  CHECK_EQ(a.tenant, "");
}

TEST("the tenant of an assignment is the name of a folder, and no path") {
  const auto read = [](const std::string& tenant) {
    std::string text = kAssignment;
    text.insert(text.rfind('}'), ", \"tenant\": \"" + tenant + "\"");
    return parse(with({"--assign", text}));
  };
  const std::string digits(64, 'a');
  CHECK_EQ(read(digits)->assignment->tenant, digits);
  for (const std::string& bad : {std::string("team-a"), std::string(63, 'a'), "../" + std::string(61, 'a')})
    CHECK(!read(bad));
}

TEST("the group of an assignment is 64 hexadecimal digits, or none") {
  const auto groupOf = [](const std::string& group) {
    auto json =
        Json::parse(R"({"session": "s", "ticket": "t", "expires": 1, "devices": [{"uuid": "GPU-1", "memoryBytes": 1,
                             "computePercent": 1}], "group": ")" +
                    group + "\"}");
    CHECK(bool(json));
    return Assignment::parse(*json);
  };
  const auto none = groupOf("");
  CHECK(none && !none->group);
  const auto some = groupOf(std::string(62, '0') + "fE");
  CHECK(some && some->group);
  CHECK((*some->group)[0] == std::byte{0});
  CHECK((*some->group)[31] == std::byte{0xfe});
  for (const size_t digits : {1, 63, 65, 128}) CHECK(!groupOf(std::string(digits, 'a')));
  CHECK(!groupOf(std::string(63, 'a') + "g"));
  CHECK(!groupOf("0x" + std::string(62, 'a')));
  CHECK(!groupOf(std::string(62, 'a') + "+1"));
}

TEST("an assignment may have a secret for its connections") {
  const auto read = [](const std::string& member) {
    auto parsed =
        Assignment::parse(*Json::parse(R"({"session": "s", "ticket": "t", "expires": 1,)" + member +
                                       R"("devices": [{"uuid": "u", "memoryBytes": 1, "computePercent": 1}]})"));
    CHECK(bool(parsed));
    return parsed->secret;
  };
  CHECK(!read(""));
  CHECK(!read(R"("linkSecret": "",)"));
  const std::string digits(64, 'a');
  CHECK(read(R"("linkSecret": ")" + digits + R"(",)") == parseHex32(digits));
}

TEST("an assignment may say after how long its session is parked") {
  const auto read = [](const std::string& member) {
    return Assignment::parse(*Json::parse(R"({"session": "s", "ticket": "t", "expires": 1,)" + member +
                                          R"("devices": [{"uuid": "u", "memoryBytes": 1, "computePercent": 1}]})"));
  };
  CHECK_EQ(read("")->parkAfterNs, 0);
  CHECK_EQ(read(R"("parkAfterMs": 1500,)")->parkAfterNs, 1'500'000'000);
  for (const char* bad : {R"("parkAfterMs": -1,)", R"("parkAfterMs": true,)", R"("parkAfterMs": 99999999999,)"})
    CHECK(read(bad).error().message.starts_with("the parkAfterMs of an assignment is not a number"));
}

TEST("an assignment may say how much host memory the claim has") {
  const auto read = [](const std::string& member) {
    return Assignment::parse(*Json::parse(R"({"session": "s", "ticket": "t", "expires": 1,)" + member +
                                          R"("devices": [{"uuid": "u", "memoryBytes": 1, "computePercent": 1}]})"));
  };
  CHECK_EQ(read("")->claimHostBytes, 0u);
  CHECK_EQ(read(R"("claimHostBytes": 4294967296,)")->claimHostBytes, 4294967296u);
  for (const char* bad : {R"("claimHostBytes": -1,)", R"("claimHostBytes": "much",)"})
    CHECK_EQ(read(bad).error().message, "the claimHostBytes of an assignment is not a number");
}

TEST("an assignment names the memory of a context for each of its devices, or for none") {
  const auto read = [](const std::string& member) {
    return Assignment::parse(*Json::parse(R"({"session": "s", "ticket": "t", "expires": 1, )" + member +
                                          R"( "devices": [{"uuid": "GPU-1", "memoryBytes": 1, "computePercent": 50},
                                                          {"uuid": "GPU-2", "memoryBytes": 1, "computePercent": 50}]})"));
  };
  CHECK_EQ(read("")->devices[1].contextBytes, 0u);
  CHECK_EQ(read(R"("overheadBytes": [0, 553648128],)")->devices[1].contextBytes, 553648128u);
  for (const char* bad : {R"("overheadBytes": [1],)", R"("overheadBytes": 1,)", R"("overheadBytes": [1, -1],)",
                          R"("overheadBytes": [1, 2, 3],)"})
    CHECK(read(bad).error().message.starts_with("the overheadBytes of an assignment "));
}

TEST("a resize names its session, its revision and the sizes of all devices") {
  const auto read = [](const std::string& text) { return Resizing::parse(*Json::parse(text)); };
  const std::string device = R"({"uuid": "GPU-1", "memoryBytes": 1048576, "computePercent": 7})";
  auto good = read(R"({"type": "resize", "session": "s-1", "revision": 12, "devices": [)" + device + "]}");
  CHECK(bool(good));
  CHECK_EQ(good->session, "s-1");
  CHECK_EQ(good->revision, 12u);
  CHECK_EQ(good->devices.size(), 1u);
  CHECK_EQ(good->devices[0].memoryBytes, 1048576u);
  CHECK_EQ(good->devices[0].computePercent, 7u);
  CHECK(!read(R"({"revision": 12, "devices": [)" + device + "]}"));
  CHECK(!read(R"({"session": "s-1", "devices": [)" + device + "]}"));
  CHECK(!read(R"({"session": "s-1", "revision": -1, "devices": [)" + device + "]}"));
  CHECK(!read(R"({"session": "s-1", "revision": 12, "devices": []})"));
  CHECK(!read(R"({"session": "s-1", "revision": 12,
                  "devices": [{"uuid": "GPU-1", "memoryBytes": 0, "computePercent": 7}]})"));
  CHECK(!read(R"({"session": "s-1", "revision": 12,
                  "devices": [{"uuid": "GPU-1", "memoryBytes": 1048576, "computePercent": 101}]})"));
}

TEST("what is left out has its default") {
  auto o = parse(kGood);
  CHECK(bool(o));
  CHECK(!o->tcpHost && !o->assignment && o->warmDevice.empty());
  CHECK_EQ(o->orphanSeconds, 30);
  CHECK_EQ(o->reconnectGraceSeconds, 300u);
  auto probe = parse({"--probe", "--driver", "x"});
  CHECK(bool(probe));
  CHECK(probe->probe);
  auto costs = parse({"--costs", "--driver", "x"});
  CHECK(bool(costs));
  CHECK(costs->costs);
  CHECK_EQ(*parse(with({"--tcp", "127.0.0.1"}))->tcpHost, "127.0.0.1");
  CHECK_EQ(parse(with({"--tcp", "127.0.0.1:0"}))->tcpPort, 0);
  // With more than one colon it is an address without a port.
  CHECK_EQ(*parse(with({"--tcp", "::1"}))->tcpHost, "::1");
  CHECK_EQ(*parse(with({"--tcp", "[::1]:7000"}))->tcpHost, "::1");
  CHECK_EQ(parse(with({"--tcp", "[::1]:7000"}))->tcpPort, 7000);
  CHECK_EQ(*parse(with({"--tcp", "[::1]"}))->tcpHost, "::1");
  CHECK_EQ(parse(with({"--tcp", "[::1]:7000"}))->tcpLastPort, 7000);
  CHECK_EQ(parse(with({"--tcp", "[::1]:7000-7009"}))->tcpPort, 7000);
  CHECK_EQ(parse(with({"--tcp", "127.0.0.1:7000-65535"}))->tcpLastPort, 65535);
  CHECK_EQ(parse(with({"--tcp", "127.0.0.1:7000-7000"}))->tcpLastPort, 7000);
}

TEST("a bad command line is refused with what is wrong in it") {
  const struct {
    std::vector<std::string> words;
    const char* message;
  } cases[] = {
      {{}, "--driver is required"},
      {{"--probe"}, "--driver is required"},
      {{"--driver"}, "--driver is unknown or needs a value"},
      {{"--driver", ""}, "--driver is required"},
      {{"--driver", "x"}, "--id, --control and --data are required"},
      {{"--driver", "x", "--id", "a", "--control", "c"}, "--id, --control and --data are required"},
      {{"--driver", "x", "--id", "a", "--data", "d"}, "--id, --control and --data are required"},
      {{"--driver", "x", "--id", "", "--control", "c", "--data", "d"}, "--id, --control and --data are required"},
      {{"--driver", "--probe"}, "--driver needs a value, not --probe"},
      {{"--id", "--control", "c"}, "--id needs a value, not --control"},
      {{"--frobnicate"}, "--frobnicate is unknown or needs a value"},
      {{"--frobnicate", "1"}, "unknown option --frobnicate"},
      {{"driver", "x"}, "unknown option driver"},
      {with({"--tcp", "127.0.0.1:"}), "--tcp 127.0.0.1:: the port is not a number from 0 to 65535"},
      {with({"--tcp", "127.0.0.1:65536"}), "--tcp 127.0.0.1:65536: the port is not a number from 0 to 65535"},
      {with({"--tcp", "127.0.0.1:-1"}), "--tcp 127.0.0.1:-1: the port is not a number from 0 to 65535"},
      {with({"--tcp", "127.0.0.1:80x"}), "--tcp 127.0.0.1:80x: the port is not a number from 0 to 65535"},
      {with({"--tcp", "127.0.0.1:7000-"}), "--tcp 127.0.0.1:7000-: the ports are not a range such as 7200-7299"},
      {with({"--tcp", "127.0.0.1:7000-6999"}),
       "--tcp 127.0.0.1:7000-6999: the ports are not a range such as 7200-7299"},
      {with({"--tcp", "127.0.0.1:0-7000"}), "--tcp 127.0.0.1:0-7000: the ports are not a range such as 7200-7299"},
      {with({"--tcp", "127.0.0.1:7000-65536"}),
       "--tcp 127.0.0.1:7000-65536: the ports are not a range such as 7200-7299"},
      {with({"--tcp", "[::1]7000"}), "--tcp [::1]7000: expected HOST[:PORT]"},
      {with({"--tcp", "[::1"}), "--tcp [::1: expected HOST[:PORT]"},
      {with({"--orphan-seconds", "0"}), "--orphan-seconds 0: expected 1 to 86400"},
      {with({"--orphan-seconds", "86401"}), "--orphan-seconds 86401: expected 1 to 86400"},
      {with({"--orphan-seconds", "99999999999999999999"}),
       "--orphan-seconds 99999999999999999999: expected 1 to 86400"},
      {with({"--reconnect-grace", "86401"}), "--reconnect-grace 86401: expected 0 to 86400 seconds"},
      {with({"--reconnect-grace", "-1"}), "--reconnect-grace -1: expected 0 to 86400 seconds"},
      {with({"--orphan-seconds", "3s"}), "--orphan-seconds 3s: expected 1 to 86400"},
      {with({"--orphan-seconds", ""}), "--orphan-seconds : expected 1 to 86400"},
      {with({"--assign", "{}"}), "--assign: an assignment needs a session"},
  };
  for (const auto& c : cases) {
    auto o = parse(c.words);
    CHECK(!o);
    CHECK_EQ(o.error().message, c.message);
  }
  CHECK(parse(with({"--assign", "nonsense"})).error().message.starts_with("--assign: "));
}

TEST("a bad assignment is refused with what is wrong in it") {
  const std::string ticket = R"("session": "s", "ticket": "t", )";
  const std::string when = ticket + R"("expires": 1, )";
  const char* device = "a device of an assignment needs uuid, memoryBytes and computePercent from 1 to 100";
  const std::pair<std::string, std::string> cases[] = {
      {"[]", "an assignment needs a session"},
      {"7", "an assignment needs a session"},
      {R"({"session": 7})", "an assignment needs a session"},
      {R"({"session": ""})", "an assignment needs a session"},
      {R"({"session": "s"})", "an assignment needs a ticket of 1 to 8192 bytes"},
      {R"({"session": "s", "ticket": ""})", "an assignment needs a ticket of 1 to 8192 bytes"},
      {R"({"session": "s", "ticket": ")" + std::string(kMaxTicket + 1, 't') + "\"}",
       "an assignment needs a ticket of 1 to 8192 bytes"},
      {"{" + when + R"("linkSecret": "5ec2e7"})", "the link secret of an assignment is 64 hexadecimal digits"},
      {"{" + when + R"("linkSecret": 7})", "the link secret of an assignment is 64 hexadecimal digits"},
      {"{" + ticket + R"("devices": []})", "an assignment needs the time when it expires"},
      {"{" + ticket + R"("expires": "soon"})", "an assignment needs the time when it expires"},
      {"{" + ticket + R"("expires": 1.5})", "an assignment needs the time when it expires"},
      {"{" + when + R"("device": []})", "an assignment needs devices"},
      {"{" + when + R"("devices": {}})", "an assignment needs devices"},
      {"{" + when + R"("devices": []})", "an assignment needs 1 to 64 devices, not 0"},
      {"{" + when + R"("devices": [7]})", device},
      {"{" + when + R"("devices": [{"memoryBytes": 1, "computePercent": 1}]})", device},
      {"{" + when + R"("devices": [{"uuid": "u", "computePercent": 1}]})", device},
      {"{" + when + R"("devices": [{"uuid": "u", "memoryBytes": 1}]})", device},
      {"{" + when + R"("devices": [{"uuid": "u", "memoryBytes": -1, "computePercent": 1}]})", device},
      {"{" + when + R"("devices": [{"uuid": "u", "memoryBytes": 1, "computePercent": 0}]})", device},
      {"{" + when + R"("devices": [{"uuid": "u", "memoryBytes": 1, "computePercent": 101}]})", device},
      {"{" + when + R"("devices": [{"uuid": "u", "memoryBytes": 1, "computePercent": 1, "serviceClass": "gold"}]})",
       "the serviceClass of a device of an assignment is not one of guaranteed, burstable, best-effort"},
  };
  for (const auto& [text, message] : cases) {
    auto json = Json::parse(text);
    CHECK(bool(json));
    auto assignment = Assignment::parse(*json);
    CHECK(!assignment);
    CHECK_EQ(assignment.error().message, message);
  }
  Json::Array many(65, Json(Json::Object{{"uuid", "u"}, {"memoryBytes", 1}, {"computePercent", 1}}));
  CHECK_EQ(Assignment::parse(Json::Object{{"session", "s"}, {"ticket", "t"}, {"expires", 1}, {"devices", many}})
               .error()
               .message,
           "an assignment needs 1 to 64 devices, not 65");
}

}  // namespace
}  // namespace millpond::worker
