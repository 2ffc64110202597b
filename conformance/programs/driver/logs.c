// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "driver.h"

// A driver may log more than the failure itself; other lines are ignored.
static const char kBegin[] = "Returning ";

static void told(void* data, CUlogLevel level, char* message, size_t length) {
  if (strncmp(message, kBegin, strlen(kBegin)) != 0) return;
  say("%s is told, level %d, %zu bytes: %s", (const char*)data, level, length, message);
}

/// Prints the lines of a log that report the result of a call, without the time and the thread.
static void see_lines(const char* text) {
  for (const char* line = text; *line; line = strchr(line, '\n') + 1) {
    const char* head = strstr(line, "[CUDA]");
    const char* end = strchr(line, '\n');
    if (!end) return;
    if (!head || head > end || strncmp(head + 10, kBegin, strlen(kBegin)) != 0) continue;
    say("  %.*s", (int)(end - head), head);
  }
}

PROGRAM("logs", "failed calls in the log, told to functions, read into memory and into a file") {
  CUlogsCallbackHandle first, second;
  SEE(cuLogsRegisterCallback(told, "the first", &first));
  primary();
  CUlogIterator begin, end;
  SEE(cuLogsCurrent(&begin, 0));
  SEE(cuLogsCurrent(NULL, 0));
  CUdeviceptr memory;
  SEE(cuMemAlloc_v2(&memory, 0));
  SEE(cuLogsRegisterCallback(told, "the second", &second));
  SEE(cuEventQuery(NULL));
  SEE(cuLogsUnregisterCallback(first));
  CUfunction function;
  CUmodule module = kernels();
  SEE(cuModuleGetFunction(&function, module, "there is none"));
  SEE(cuLogsUnregisterCallback(second));
  SEE(cuLogsRegisterCallback(NULL, NULL, &first));

  char text[25600];
  size_t bytes = sizeof text;
  SEE(cuLogsDumpToMemory(&begin, text, &bytes, 0));
  say("as long as its text: %s", yes(bytes == strlen(text)));
  see_lines(text);
  CHECK(cuLogsCurrent(&end, 0));
  say("at the end: %s", yes(begin == end));
  bytes = sizeof text;
  SEE(cuLogsDumpToMemory(&begin, text, &bytes, 0));
  say("nothing more: %zu", bytes);
  bytes = 5;
  SEE(cuLogsDumpToMemory(NULL, text, &bytes, 0));
  say("no room: %zu", bytes);
  SEE(cuLogsDumpToMemory(NULL, NULL, &bytes, 0));
  SEE(cuLogsDumpToMemory(NULL, text, NULL, 0));
  SEE(cuLogsDumpToFile(NULL, "/nonexistent/log", 0));
  char path[] = "/tmp/conformance-logs-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) exit(1);
  SEE(cuLogsDumpToFile(NULL, path, 0));
  const ssize_t length = read(file, text, sizeof text - 1);
  text[length > 0 ? length : 0] = 0;
  close(file);
  unlink(path);
  see_lines(text);
  for (int i = 0; i < 150; ++i) cuMemAlloc_v2(&memory, 0);
  bytes = sizeof text;
  SEE(cuLogsDumpToMemory(NULL, text, &bytes, 0));
  say("rolled over: %s", yes(strstr(text, "rolled over") != NULL));
  CHECK(cuModuleUnload(module));
}
