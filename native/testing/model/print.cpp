// SPDX-License-Identifier: Apache-2.0
#include "testing/model/print.h"

#include <algorithm>

namespace millpond::model {
namespace {

std::string number(size_t value) { return std::to_string(value); }

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {
    for (size_t i = 0; i < program.buffers.size(); ++i) allocate(i);
    for (size_t i = 0; i < program.streams.size(); ++i)
      line("CUstream s" + number(i) + "; cuStreamCreate(&s" + number(i) + ", " +
           (program.streams[i].isBlocking ? "CU_STREAM_DEFAULT" : "CU_STREAM_NON_BLOCKING") + ");");
    if (usesWords(program))
      line("volatile uint32_t* words; cuMemHostAlloc((void**)&words, 4096, CU_MEMHOSTALLOC_DEVICEMAP);");
    for (const Op& op : program.ops) {
      if (program.threads > 1) text_ += "/* thread " + number(op.thread) + " */ ";
      print(op, op.isSynchronous ? "" : streamOf(op));
    }
    line("cuCtxSynchronize();");
  }
  std::string text() && { return std::move(text_); }

 private:
  void line(const std::string& text) { text_ += text + "\n"; }

  void allocate(size_t i) {
    const Buffer& buffer = program_.buffers[i];
    const std::string name = "b" + number(i);
    const std::string bytes = number(buffer.slots * size_t{buffer.words} * 4);
    const std::string sizes = "  // " + number(buffer.slots) + " slots of " + number(buffer.words) + " words";
    const std::string asks = buffer.isAsked ? " cuMemHostGetDevicePointer(…, " + name + ", 0);" : "";
    switch (buffer.memory) {
      case Memory::device: return line("CUdeviceptr " + name + "; cuMemAlloc(&" + name + ", " + bytes + ");" + sizes);
      case Memory::pool:
        return line("CUdeviceptr " + name + "; cuMemAllocAsync(&" + name + ", " + bytes + ", 0);" + sizes);
      case Memory::peer:
        return line("CUdeviceptr " + name + "; /* device 1 */ cuMemAlloc(&" + name + ", " + bytes + ");" + sizes);
      case Memory::managed:
        return line("char* " + name + "; cuMemAllocManaged((CUdeviceptr*)&" + name + ", " + bytes +
                    ", CU_MEM_ATTACH_GLOBAL);" + sizes);
      case Memory::pinned:
        return line("char* " + name + "; cuMemHostAlloc((void**)&" + name + ", " + bytes +
                    ", CU_MEMHOSTALLOC_DEVICEMAP);" + asks + sizes);
      case Memory::registered:
        return line("char* " + name + " = aligned_alloc(4096, roundUp(" + bytes + ")); cuMemHostRegister(" + name +
                    ", roundUp(" + bytes + "), CU_MEMHOSTREGISTER_DEVICEMAP);" + asks + sizes);
      case Memory::pageable: return line("char* " + name + " = malloc(" + bytes + ");" + sizes);
    }
  }

  std::string slot(int which) const {
    const SlotPlace place = placeOf(program_, which);
    const size_t offset = place.index * size_t{program_.buffers[place.buffer].words} * 4;
    return "b" + number(place.buffer) + (offset ? " + " + number(offset) : "");
  }
  std::string streamOf(const Op& op) const {
    if (op.stream == kLegacy) return "CU_STREAM_LEGACY";
    if (op.stream == kPerThread) return "CU_STREAM_PER_THREAD";
    return "s" + number(op.stream - kFirstStream);
  }
  size_t wordsOf(const Op& op) const {
    const size_t to = bufferOf(program_, op.to).words;
    return op.from < 0 ? to : std::min<size_t>(to, bufferOf(program_, op.from).words);
  }

  void print(const Op& op, const std::string& stream) {
    const std::string async = stream.empty() ? "" : "Async";
    const std::string last = stream.empty() ? ");" : ", " + stream + ");";
    const std::string object = number(op.object);
    switch (op.kind) {
      case OpKind::launch: {
        constexpr const char* kHow[] = {"mix", "mixTable", "mixPacked"};
        const std::string many = op.count == 1 ? "" : "for (int i = 0; i < " + number(op.count) + "; i++) ";
        return line(many + kHow[static_cast<size_t>(op.variant)] + "<<<" + number((wordsOf(op) + 127) / 128) +
                    ", 128, 0, " + stream + ">>>(" + slot(op.to) + ", " + slot(op.from) + ", " + number(wordsOf(op)) +
                    ", " + number(op.value) + ");  // to = 3 to + from + value");
      }
      case OpKind::copy: return copy(op, async, last);
      case OpKind::fill:
        if (op.variant == Variant::rows)
          return line("cuMemsetD2D32" + async + "(" + slot(op.to) + ", 64, " + number(op.value) + ", 15, " +
                      number(wordsOf(op) / 16) + last);
        return line("cuMemsetD32" + async + "(" + slot(op.to) + ", " + number(op.value) + ", " + number(wordsOf(op)) +
                    last);
      case OpKind::record: return line("cuEventRecord(e" + object + ", " + stream + ");");
      case OpKind::waitEvent: return line("cuStreamWaitEvent(" + stream + ", e" + object + ", 0);");
      case OpKind::syncEvent: return line("cuEventSynchronize(e" + object + ");");
      case OpKind::queryEvent: return line("assert(cuEventQuery(e" + object + ") == CUDA_SUCCESS);");
      case OpKind::syncStream: return line("cuStreamSynchronize(" + stream + ");");
      case OpKind::queryStream: return line("assert(cuStreamQuery(" + stream + ") == CUDA_ERROR_NOT_READY);");
      case OpKind::syncContext: return line("cuCtxSynchronize();");
      case OpKind::hostFunction: {
        std::string does;
        if (op.count != 0) does += " sleep " + number(op.count) + " ms;";
        if (op.object != kNone) does += " wait for promise " + object + ";";
        if (op.to >= 0) does += " " + slot(op.to) + " = 5 * it + " + number(op.value) + ";";
        return line("cuLaunchHostFunc(" + stream + ", {" + does + " });");
      }
      case OpKind::waitValue:
        return line("cuStreamWaitValue32(" + stream + ", &words[" + number(op.object * 16) +
                    "], 1, CU_STREAM_WAIT_VALUE_GEQ);");
      case OpKind::writeValue:
        return line("cuStreamWriteValue32(" + stream + ", &words[" + number(op.object * 16) + "], 1, 0);");
      case OpKind::storeWord: return line("words[" + number(op.object * 16) + "] = 1;");
      case OpKind::fulfil: return line("fulfil promise " + object + ";");
      case OpKind::hostUpdate: return line(slot(op.to) + " = 5 * it + " + number(op.value) + ";  // each word");
      case OpKind::hostCheck: return line("check(" + slot(op.from) + ");");
      case OpKind::send: return line("raise signal " + object + ";");
      case OpKind::receive: return line("wait for signal " + object + ";");
      case OpKind::graph:
        line("begin capture of g" + object + " on c0, forked to c1");
        for (const Op& each : op.body) {
          text_ += each.joins ? "  /* join and fork */ " : "  ";
          print(each, "c" + number(each.branch));
        }
        return line("join, end capture, instantiate g" + object);
      case OpKind::launchGraph: return line("cuGraphLaunch(g" + object + ", " + stream + ");");
      case OpKind::updateGraph: return line("cuGraphExecUpdate(g" + object + ", graph " + number(op.count) + ");");
      case OpKind::ask: return line("cuMemGetInfo; cuEventElapsedTime of two old events; cuMemAlloc;");
    }
  }

  void copy(const Op& op, const std::string& async, const std::string& last) {
    const Memory from = bufferOf(program_, op.from).memory;
    const Memory to = bufferOf(program_, op.to).memory;
    const std::string ends = "(" + slot(op.to) + ", " + slot(op.from) + ", ";
    const std::string bytes = number(wordsOf(op) * 4);
    if (op.variant == Variant::rows)
      return line("cuMemcpy2D" + async + ends + "pitch 64, width 60, height " + number(wordsOf(op) / 16) + last);
    if (op.variant == Variant::box)
      return line("cuMemcpy3D" + async + ends + "pitch 64, width 60, height " + number(wordsOf(op) / 32) + ", depth 2" +
                  last);
    if (op.variant == Variant::pooled)
      return line("cuMemAllocAsync(&t, " + bytes + last + " cuMemcpyAsync" + "(t, " + slot(op.from) + ", " + bytes +
                  last + " cuMemcpyAsync(" + slot(op.to) + ", t, " + bytes + last + " cuMemFreeAsync(t" + last);
    if (op.variant == Variant::freed)
      return line("cuMemAlloc(&t, " + bytes + "); cuMemcpyAsync(t, " + slot(op.from) + ", " + bytes + last +
                  " cuMemcpyAsync(" + slot(op.to) + ", t, " + bytes + last + " cuMemFree(t);");
    const bool isPeer = !isHost(from) && !isHost(to) && (from == Memory::peer) != (to == Memory::peer);
    if (isPeer) return line("cuMemcpyPeer" + async + ends + bytes + last);
    if (op.variant == Variant::unified || isHost(from) == isHost(to))
      return line("cuMemcpy" + async + ends + bytes + last);
    line((isHost(from) ? "cuMemcpyHtoD" : "cuMemcpyDtoH") + async + ends + bytes + last);
  }

  const Program& program_;
  std::string text_;
};

}  // namespace

std::string printProgram(const Program& program) { return std::move(Printer(program)).text(); }

}  // namespace millpond::model
