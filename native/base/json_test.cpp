// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <random>

#include "testing/check.h"

using millpond::Json;

namespace {
Json parsed(std::string_view text) {
  auto value = Json::parse(text);
  if (!value) millpond::testing::fail(__FILE__, __LINE__, std::string(text) + ": " + value.error().message);
  return *value;
}
bool refused(std::string_view text) { return !Json::parse(text); }
}  // namespace

TEST("reads the values of a message") {
  const Json json = parsed(R"( {"a": 1, "b": "18446744073709551615", "c": [true, false, null], "d": {"e": "x"}} )");
  CHECK_EQ(*json.find("a")->int64(), 1);
  CHECK_EQ(*json.find("b")->uint64(), UINT64_MAX);
  CHECK(!json.find("b")->int64());
  CHECK_EQ(json.find("c")->array()->size(), 3u);
  CHECK_EQ(*(*json.find("c")->array())[0].boolean(), true);
  CHECK((*json.find("c")->array())[2].isNull());
  CHECK_EQ(*json.find("d")->find("e")->string(), "x");
  CHECK(json.find("z") == nullptr);
  CHECK(json.find("a")->find("z") == nullptr);
}

TEST("integers keep all 64 bits and nothing else passes for one") {
  CHECK_EQ(*parsed("-9223372036854775808").int64(), INT64_MIN);
  CHECK_EQ(*parsed("9223372036854775807").int64(), INT64_MAX);
  CHECK_EQ(*parsed("18446744073709551615").uint64(), UINT64_MAX);
  CHECK(!parsed("18446744073709551616").uint64());
  CHECK(!parsed("-1").uint64());
  CHECK(!parsed("1.0").int64());
  CHECK(!parsed("1e3").int64());
  CHECK(!parsed("\"1x\"").int64());
  CHECK(!parsed("\"\"").int64());
  CHECK(!parsed("\" 1\"").int64());
  CHECK(!parsed("true").int64());
  CHECK(!parsed("null").int64());
  CHECK(parsed("1.5e-7").isNumber());
}

TEST("strings: escapes, surrogate pairs, UTF-8 as it is") {
  CHECK_EQ(*parsed(R"("\"\\\/\b\f\n\r\t\u0041")").string(), "\"\\/\b\f\n\r\tA");
  CHECK_EQ(*parsed(R"("\ud83d\ude00")").string(), "\xf0\x9f\x98\x80");
  CHECK_EQ(*parsed("\"gr\xc3\xbc\xc3\x9f\"").string(), "gr\xc3\xbc\xc3\x9f");
  CHECK_EQ(*parsed(R"("a\u0000b")").string(), std::string("a\0b", 3));
}

TEST("refuses what is not JSON") {
  for (const char* text : {"",
                           " ",
                           "{",
                           "}",
                           "[",
                           "]",
                           "[1,]",
                           "[1 2]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{'a':1}",
                           "01",
                           "-",
                           "+1",
                           "1.",
                           ".5",
                           "1e",
                           "1e+",
                           "0x10",
                           "tru",
                           "True",
                           "nul",
                           "NaN",
                           "Infinity",
                           "\"",
                           "\"\\",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u12g4\"",
                           "\"\\u-123\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "\"a\nb\"",
                           "1 2",
                           "{\"a\":1}x",
                           "{\"a\":1,\"a\":2}",
                           "\"\xff\"",
                           "\"\xc0\xaf\"",
                           "\"\xed\xa0\x80\"",
                           "\"\xe2\x82\"",
                           "// c\n1",
                           "\xef\xbb\xbf{}"}) {
    if (!refused(text)) millpond::testing::fail(__FILE__, __LINE__, std::string("accepted: ") + text);
  }
  CHECK(refused(std::string_view("1\0", 2)));
  CHECK(refused(std::string_view("\0", 1)));
}

TEST("depth and size are bounded") {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  CHECK(!refused(nested(32)));
  CHECK(refused(nested(33)));
  CHECK(refused(std::string(500000, '[')));
  CHECK(refused(std::string(500000, '{')));
  CHECK(!refused("[[],[[]],[[],[]]]"));
  CHECK(refused(std::string((1 << 20) + 1, ' ') + "1"));
  CHECK(!Json::parse("[1,2]", {.bytes = 4, .depth = 32}));
  std::string wide = "{";
  for (int i = 0; i < 5000; ++i) wide += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
  CHECK(refused(wide + "}"));
}

TEST("the message says where") {
  CHECK_EQ(Json::parse("{\"a\": tru}").error().message, "not JSON: unknown word at byte 6");
}

TEST("writes what it reads") {
  const Json json(Json::Object{{"text", "a\"\\\n\x01 \xc3\xbc"},
                               {"big", uint64_t{18446744073709551615u}},
                               {"small", -3},
                               {"yes", true},
                               {"none", Json()},
                               {"list", Json::Array{1, "two", Json::Array{}, Json::Object{}}}});
  const std::string text = json.dump();
  CHECK_EQ(text,
           "{\"text\":\"a\\\"\\\\\\n\\u0001 \xc3\xbc\",\"big\":18446744073709551615,\"small\":-3,\"yes\":true,"
           "\"none\":null,\"list\":[1,\"two\",[],{}]}");
  CHECK_EQ(parsed(text).dump(), text);
  CHECK_EQ(Json("a\xff\xc3").dump(), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
}

TEST("hostile bytes never crash it, and what it accepts round-trips") {
  const std::string seed = R"({"a":[1,-2.5e3,"x\u00e9\n",{"b":null,"c":true}],"d":"\ud83d\ude00"})";
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 40000; ++round) {
    std::string text = seed;
    for (unsigned edits = random() % 4; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = static_cast<char>(random() % 256); break;
        case 1: text.erase(at, 1 + random() % 3); break;
        default: text.insert(at, 1, "{}[]\",:\\0u-e."[random() % 13]);
      }
      if (text.empty()) text.push_back('0');
    }
    if (const auto value = Json::parse(text)) {
      ++accepted;
      const std::string again = value->dump();
      CHECK_EQ(parsed(again).dump(), again);
    }
  }
  CHECK(accepted > 1000);
}
