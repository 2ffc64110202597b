// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <cerrno>
#include <thread>

#include "base/log_request.h"
#include "testing/check.h"
#include "testing/stderr_capture.h"

using millpond::LogLevel;

using millpond::testing::captured;

TEST("levels by name") {
  CHECK(millpond::parseLogLevel("trace") == LogLevel::Trace);
  CHECK(millpond::parseLogLevel("off") == LogLevel::Off);
  CHECK(!millpond::parseLogLevel("WARN"));
  CHECK(!millpond::parseLogLevel(""));
}

TEST("a level, a file for the trace, or both") {
  const auto is = [](std::string_view text, LogLevel level, std::string_view file) {
    const auto request = millpond::parseLogRequest(text);
    return request && request->level == level && request->traceFile == file;
  };
  CHECK(is("debug", LogLevel::Debug, ""));
  CHECK(is("./calls.%p", LogLevel::Warn, "./calls.%p"));
  CHECK(is("off,/tmp/calls", LogLevel::Off, "/tmp/calls"));
  CHECK(is("info,./a,b", LogLevel::Info, "./a,b"));
  CHECK(is("./a,b", LogLevel::Warn, "./a,b"));
  CHECK(is("loud,./a", LogLevel::Warn, "loud,./a"));
  CHECK(!millpond::parseLogRequest("loud"));
  CHECK(!millpond::parseLogRequest(""));
  CHECK(!millpond::parseLogRequest("info,"));
  CHECK(!millpond::parseLogRequest("info,file"));
}

TEST("MILLPOND_LOG decides, an unknown level is said once") {
  ::setenv("MILLPOND_LOG", "loud", 1);
  const std::string text = captured([] {
    millpond::log(LogLevel::Info, "not wanted");
    millpond::log(LogLevel::Warn, "wanted %d", 1);
  });
  CHECK_EQ(
      text,
      "millpond: warn: MILLPOND_LOG=loud is not a level; use off, error, warn, info, debug or trace, or a file with a "
      "/ in its name\n"
      "millpond: warn: wanted 1\n");
}

TEST("one line a message, whatever it contains, and errno is kept") {
  millpond::setLogLevel(LogLevel::Info);
  const std::string text = captured([] {
    errno = EAGAIN;
    millpond::log(LogLevel::Error, "a\nb\x1b[31m%s", std::string(20000, 'x').c_str());
    CHECK_EQ(errno, EAGAIN);
    millpond::log(LogLevel::Debug, "quiet");
  });
  CHECK_EQ(text.size(), 8192u);
  CHECK_EQ(text.find('\n'), text.size() - 1);
  CHECK(text.starts_with("millpond: error: a b [31mxxx"));
}

TEST("off is off") {
  millpond::setLogLevel(LogLevel::Off);
  CHECK_EQ(captured([] { millpond::log(LogLevel::Error, "x"); }), "");
  CHECK_EQ(captured([] { millpond::log(LogLevel::Off, "x"); }), "");
}

TEST("logOnce says it once among many threads") {
  millpond::setLogLevel(LogLevel::Warn);
  static std::atomic<bool> said{false};
  const std::string text = captured([] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([] {
        for (int j = 0; j < 100; ++j) millpond::logOnce(said, LogLevel::Warn, "once");
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  CHECK_EQ(text, "millpond: warn: once\n");
}
