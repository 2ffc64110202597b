// SPDX-License-Identifier: Apache-2.0
// Every loop here ends by a count of its own, whatever a driver makes of the conditions.
#include "conformance.h"

namespace {

using Handle = cudaGraphConditionalHandle;

__global__ void choose(const int* value, Handle handle) { cudaGraphSetConditional(handle, static_cast<unsigned>(*value)); }
__global__ void mark(int* out, int by) { *out += by; }
/// One iteration of a loop of `most` iterations; counts iterations in `rounds` and, over all loops, in `all`.
__global__ void turn(int* rounds, int* all, int most, Handle handle) {
  *all += 1;
  *rounds += 1;
  const bool goesOn = *rounds < most && *all < 1000;
  if (!goesOn) *rounds = 0;
  cudaGraphSetConditional(handle, goesOn);
}
__global__ void parity(const int* value, Handle handle) { cudaGraphSetConditional(handle, *value % 2 == 0); }
/// Only one thread of many decides.
__global__ void chooseInOne(const int* value, Handle handle) {
  if (blockIdx.x == 1 && threadIdx.x == 33) cudaGraphSetConditional(handle, static_cast<unsigned>(*value));
}

cudaGraph_t newGraph() {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  return graph;
}
Handle newHandle(cudaGraph_t graph, unsigned initial = 0, unsigned flags = 0) {
  Handle handle;
  CHECK(cudaGraphConditionalHandleCreate(&handle, graph, initial, flags));
  return handle;
}

struct Condition {
  cudaGraphNode_t node = nullptr;
  std::vector<cudaGraph_t> bodies;
};
cudaError_t tryCondition(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after, Handle handle,
                         cudaGraphConditionalNodeType type, unsigned size, Condition* made) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = size;
  const cudaError_t status = cudaGraphAddNode(&made->node, graph, after.data(), nullptr, after.size(), &params);
  if (status == cudaSuccess) made->bodies.assign(params.conditional.phGraph_out, params.conditional.phGraph_out + size);
  return status;
}
Condition condition(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after, Handle handle,
                    cudaGraphConditionalNodeType type, unsigned size) {
  Condition made;
  CHECK(tryCondition(graph, after, handle, type, size, &made));
  return made;
}

template <class... Parameters, class... Given>
cudaKernelNodeParams kernelParams(void (*kernel)(Parameters...), std::vector<void*>& pointers, dim3 grid, dim3 block, Given&... given) {
  pointers = {const_cast<void*>(static_cast<const void*>(&given))...};
  cudaKernelNodeParams params = {};
  params.func = reinterpret_cast<void*>(kernel);
  params.gridDim = grid;
  params.blockDim = block;
  params.kernelParams = pointers.data();
  return params;
}
/// Excludes the parameter from the deduction of the template argument.
template <class T>
struct Same {
  using type = T;
};

template <class... Parameters>
cudaGraphNode_t kernel(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after, void (*function)(Parameters...),
                       typename Same<Parameters>::type... given) {
  std::vector<void*> pointers;
  const cudaKernelNodeParams params = kernelParams(function, pointers, dim3(1), dim3(1), given...);
  cudaGraphNode_t node;
  CHECK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
  return node;
}

class Executable {
 public:
  explicit Executable(cudaGraph_t graph) { CHECK(cudaGraphInstantiate(&exec_, graph, 0)); }
  ~Executable() { cudaGraphExecDestroy(exec_); }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  operator cudaGraphExec_t() const { return exec_; }
  void run(cudaStream_t stream) const {
    CHECK(cudaGraphLaunch(exec_, stream));
    CHECK(cudaStreamSynchronize(stream));
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

struct Fixture {
  cudaStream_t stream = nullptr;
  conformance::Device<int> value{1}, out{1}, rounds{1}, inner{1}, all{1};
  Fixture() {
    CHECK(cudaStreamCreate(&stream));
    for (auto* each : {&value, &out, &rounds, &inner, &all}) each->clear();
  }
  ~Fixture() { cudaStreamDestroy(stream); }
};

void branches() {
  Fixture f;
  cudaGraph_t graph = newGraph();
  const Handle either = newHandle(graph), which = newHandle(graph);
  const cudaGraphNode_t first = kernel(graph, {}, choose, f.value, either);
  const Condition yesNo = condition(graph, {first}, either, cudaGraphCondTypeIf, 2);
  kernel(yesNo.bodies[0], {}, mark, f.out, 1);
  kernel(yesNo.bodies[1], {}, mark, f.out, 2);
  const cudaGraphNode_t second = kernel(graph, {yesNo.node}, choose, f.value, which);
  const Condition cases = condition(graph, {second}, which, cudaGraphCondTypeSwitch, 3);
  for (int i = 0; i < 3; ++i) kernel(cases.bodies[static_cast<size_t>(i)], {}, mark, f.out, 10 << i);
  kernel(graph, {cases.node}, mark, f.out, 1000);
  const Executable exec(graph);
  for (const int value : {0, 1, 2, 3, 77}) {
    f.value.put({value}), f.out.clear();
    exec.run(f.stream);
    say("branches %d: %d", value, f.out.take()[0]);
  }
  CHECK(cudaGraphDestroy(graph));
}

void oneThreadDecides() {
  Fixture f;
  cudaGraph_t graph = newGraph();
  const Handle handle = newHandle(graph, 0, cudaGraphCondAssignDefault);
  std::vector<void*> pointers;
  int* value = f.value;
  const cudaKernelNodeParams params = kernelParams(chooseInOne, pointers, dim3(3), dim3(70), value, handle);
  cudaGraphNode_t first;
  CHECK(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &params));
  const Condition yes = condition(graph, {first}, handle, cudaGraphCondTypeIf, 1);
  kernel(yes.bodies[0], {}, mark, f.out, 1);
  const Executable exec(graph);
  for (const int each : {1, 0, 1}) {
    f.value.put({each});
    exec.run(f.stream);
  }
  say("one thread decides: %d", f.out.take()[0]);
  CHECK(cudaGraphDestroy(graph));
}

void defaults() {
  for (const unsigned initial : {0u, 1u}) {
    Fixture f;
    cudaGraph_t graph = newGraph();
    const Handle handle = newHandle(graph, initial, cudaGraphCondAssignDefault);
    const Condition yesNo = condition(graph, {}, handle, cudaGraphCondTypeIf, 2);
    const cudaGraphNode_t yes = kernel(yesNo.bodies[0], {}, mark, f.out, 1);
    kernel(yesNo.bodies[0], {yes}, choose, f.value, handle);
    kernel(yesNo.bodies[1], {}, mark, f.out, 100);
    const Executable exec(graph);
    for (int i = 0; i < 3; ++i) exec.run(f.stream);
    say("default %u, set to 0 in the body, three launches: %d", initial, f.out.take()[0]);
    CHECK(cudaGraphDestroy(graph));
  }
}

/// A loop within a loop; the inner loop's handle belongs to the outer graph, or to the body that contains it.
void nested(bool ofBody) {
  Fixture f;
  cudaGraph_t graph = newGraph();
  const Handle outer = newHandle(graph, 1, cudaGraphCondAssignDefault);
  Handle inner = ofBody ? Handle{} : newHandle(graph, 1, cudaGraphCondAssignDefault);
  const Condition loop = condition(graph, {}, outer, cudaGraphCondTypeWhile, 1);
  if (ofBody) inner = newHandle(loop.bodies[0], 1, cudaGraphCondAssignDefault);
  const Condition within = condition(loop.bodies[0], {}, inner, cudaGraphCondTypeWhile, 1);
  kernel(within.bodies[0], {}, turn, f.inner, f.out, 4, inner);
  kernel(loop.bodies[0], {within.node}, turn, f.rounds, f.all, 3, outer);
  const Executable exec(graph);
  for (int i = 0; i < 2; ++i) {
    exec.run(f.stream);
    say("nested, handle of the %s: %d outer, %d inner rounds", ofBody ? "body" : "graph", f.all.take()[0], f.out.take()[0]);
  }
  CHECK(cudaGraphDestroy(graph));
}

/// As above, but the outer loop sets the inner condition before each iteration.
void nestedAndSet() {
  Fixture f;
  f.value.put({1});
  cudaGraph_t graph = newGraph();
  const Handle outer = newHandle(graph, 1, cudaGraphCondAssignDefault), inner = newHandle(graph);
  const Condition loop = condition(graph, {}, outer, cudaGraphCondTypeWhile, 1);
  const cudaGraphNode_t set = kernel(loop.bodies[0], {}, choose, f.value, inner);
  const Condition within = condition(loop.bodies[0], {set}, inner, cudaGraphCondTypeWhile, 1);
  kernel(within.bodies[0], {}, turn, f.inner, f.out, 4, inner);
  kernel(loop.bodies[0], {within.node}, turn, f.rounds, f.all, 3, outer);
  const Executable exec(graph);
  exec.run(f.stream);
  say("nested and set: %d outer, %d inner rounds", f.all.take()[0], f.out.take()[0]);
  CHECK(cudaGraphDestroy(graph));
}

/// Fills, copies, a child graph, a branch, and work of a captured stream in the body of a loop.
void body() {
  Fixture f;
  conformance::Device<int> filled(4), copied(4);
  cudaGraph_t graph = newGraph();
  const Handle outer = newHandle(graph, 1, cudaGraphCondAssignDefault), even = newHandle(graph);
  const Condition loop = condition(graph, {}, outer, cudaGraphCondTypeWhile, 1);
  cudaGraph_t in = loop.bodies[0];
  cudaMemsetParams fill = {};
  fill.dst = filled, fill.elementSize = 4, fill.width = 4, fill.height = 1, fill.value = 7;
  cudaGraphNode_t fills, copies, child, nothing;
  CHECK(cudaGraphAddMemsetNode(&fills, in, nullptr, 0, &fill));
  const cudaGraphNode_t marks = kernel(in, {fills}, mark, filled, 5);
  CHECK(cudaGraphAddMemcpyNode1D(&copies, in, &marks, 1, copied, filled, 16, cudaMemcpyDeviceToDevice));
  cudaGraph_t part = newGraph();
  kernel(part, {}, mark, f.out, 10);
  CHECK(cudaGraphAddChildGraphNode(&child, in, &copies, 1, part));
  CHECK(cudaGraphDestroy(part));
  CHECK(cudaGraphAddEmptyNode(&nothing, in, &child, 1));
  const cudaGraphNode_t asks = kernel(in, {nothing}, parity, f.rounds, even);
  const Condition branch = condition(in, {asks}, even, cudaGraphCondTypeIf, 2);
  kernel(branch.bodies[0], {}, mark, f.out, 100);
  CHECK(cudaStreamBeginCaptureToGraph(f.stream, branch.bodies[1], nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
  mark<<<1, 1, 0, f.stream>>>(f.out, 10000);
  mark<<<1, 1, 0, f.stream>>>(f.out, 10000);
  cudaGraph_t captured;
  CHECK(cudaStreamEndCapture(f.stream, &captured));
  say("captured into the body: %s", captured == branch.bodies[1] ? "yes" : "no");
  kernel(in, {branch.node}, turn, f.rounds, f.all, 5, outer);
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(branch.bodies[1], nullptr, &nodes));
  say("nodes in it: %zu", nodes);
  const Executable exec(graph);
  exec.run(f.stream);
  say("body: %d rounds, out %d", f.all.take()[0], f.out.take()[0]);
  conformance::list("copied", copied.take());
  CHECK(cudaGraphDestroy(graph));
}

struct Loop {
  cudaGraph_t graph = newGraph();
  Handle handle;
  Condition loop;
  cudaGraphNode_t inside;
  Loop(Fixture& f, unsigned initial, int most)
      : handle(newHandle(graph, initial, cudaGraphCondAssignDefault)),
        loop(condition(graph, {}, handle, cudaGraphCondTypeWhile, 1)),
        inside(kernel(loop.bodies[0], {}, turn, f.rounds, f.all, most, handle)) {}
  ~Loop() { cudaGraphDestroy(graph); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
};

void updates() {
  Fixture f;
  Loop first(f, 1, 3);
  const Executable exec(first.graph);
  const auto launch = [&](const char* when) {
    f.all.clear(), f.rounds.clear();
    exec.run(f.stream);
    say("%s: %d rounds", when, f.all.take()[0]);
  };
  launch("as made");
  std::vector<void*> pointers;
  int *rounds = f.rounds, *all = f.all, most = 6;
  const cudaKernelNodeParams params = kernelParams(turn, pointers, dim3(1), dim3(1), rounds, all, most, first.handle);
  SEE(cudaGraphExecKernelNodeSetParams(exec, first.inside, &params));
  launch("other parameters in the body");
  cudaGraphExecUpdateResultInfo info = {};
  {
    Loop more(f, 1, 9);
    SEE(cudaGraphExecUpdate(exec, more.graph, &info));
    say("result %d", static_cast<int>(info.result));
    launch("updated");
  }
  launch("what it was updated from is gone");
  {
    Loop none(f, 0, 9);
    SEE(cudaGraphExecUpdate(exec, none.graph, &info));
    say("result %d", static_cast<int>(info.result));
    launch("updated to a default of 0");
  }
  cudaGraph_t branch = newGraph();
  const Handle handle = newHandle(branch, 1, cudaGraphCondAssignDefault);
  const Condition yes = condition(branch, {}, handle, cudaGraphCondTypeIf, 1);
  kernel(yes.bodies[0], {}, turn, f.rounds, f.all, 2, handle);
  SEE(cudaGraphExecUpdate(exec, branch, &info));
  say("result %d", static_cast<int>(info.result));
  cudaGetLastError();
  CHECK(cudaGraphDestroy(branch));
}

void rules() {
  Fixture f;
  Loop loop(f, 1, 3);
  cudaGraphNodeType type;
  CHECK(cudaGraphNodeGetType(loop.loop.node, &type));
  say("type %d", static_cast<int>(type));
  cudaGraph_t twin = nullptr;
  SEE(cudaGraphClone(&twin, loop.graph));
  cudaGraph_t around = newGraph();
  cudaGraphNode_t child;
  SEE(cudaGraphAddChildGraphNode(&child, around, nullptr, 0, loop.graph));
  CHECK(cudaGraphDestroy(around));
  cudaGraphExec_t one = nullptr, two = nullptr;
  SEE(cudaGraphInstantiate(&one, loop.graph, 0));
  if (SEE(cudaGraphInstantiate(&two, loop.graph, 0)) == cudaSuccess) cudaGraphExecDestroy(two);
  CHECK(cudaGraphExecDestroy(one));
  SEE(cudaGraphInstantiate(&one, loop.graph, 0));
  CHECK(cudaGraphExecDestroy(one));
  size_t nodes = 0;
  SEE(cudaGraphGetNodes(loop.loop.bodies[0], nullptr, &nodes));
  say("nodes in the body: %zu", nodes);
  cudaGetLastError();
}

void sizes() {
  cudaGraph_t graph = newGraph();
  Condition made;
  SEE(tryCondition(graph, {}, newHandle(graph), cudaGraphCondTypeIf, 0, &made));
  SEE(tryCondition(graph, {}, newHandle(graph), cudaGraphCondTypeIf, 3, &made));
  SEE(tryCondition(graph, {}, newHandle(graph), cudaGraphCondTypeWhile, 2, &made));
  SEE(tryCondition(graph, {}, newHandle(graph), cudaGraphCondTypeSwitch, 0, &made));
  SEE(tryCondition(graph, {}, newHandle(graph), cudaGraphCondTypeSwitch, 20, &made));
  SEE(tryCondition(graph, {}, newHandle(graph), static_cast<cudaGraphConditionalNodeType>(3), 1, &made));
  Handle handle = 0;
  SEE(cudaGraphConditionalHandleCreate(&handle, graph, 1, 2));
  CHECK(cudaGraphDestroy(graph));
  cudaGetLastError();
}

void unused() {
  cudaGraph_t graph = newGraph();
  newHandle(graph);
  cudaGraphExec_t exec = nullptr;
  cudaGraphInstantiateParams how = {};
  SEE(cudaGraphInstantiateWithParams(&exec, graph, &how));
  say("result %d", static_cast<int>(how.result_out));
  CHECK(cudaGraphDestroy(graph));
  cudaGetLastError();
}

void handles() {
  cudaGraph_t graph = newGraph(), other = newGraph();
  Condition made;
  const Handle handle = newHandle(graph);
  SEE(tryCondition(other, {}, handle, cudaGraphCondTypeIf, 1, &made));
  SEE(tryCondition(graph, {}, handle, cudaGraphCondTypeIf, 1, &made));
  SEE(tryCondition(graph, {}, handle, cudaGraphCondTypeIf, 1, &made));
  cudaGetLastError();
}

void nothingOfHosts() {
  Fixture f;
  Loop loop(f, 1, 3);
  cudaGraphNode_t node;
  cudaHostNodeParams host = {};
  host.fn = [](void*) {};
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  cudaGraphExec_t exec = nullptr;
  if (SEE(cudaGraphAddHostNode(&node, loop.loop.bodies[0], nullptr, 0, &host)) == cudaSuccess) {
    if (SEE(cudaGraphInstantiate(&exec, loop.graph, 0)) == cudaSuccess) cudaGraphExecDestroy(exec);
    SEE(cudaGraphDestroyNode(node));
  }
  if (SEE(cudaGraphAddEventRecordNode(&node, loop.loop.bodies[0], nullptr, 0, event)) == cudaSuccess) {
    if (SEE(cudaGraphInstantiate(&exec, loop.graph, 0)) == cudaSuccess) cudaGraphExecDestroy(exec);
    SEE(cudaGraphDestroyNode(node));
  }
  cudaMemAllocNodeParams memory = {};
  memory.poolProps.allocType = cudaMemAllocationTypePinned;
  memory.poolProps.location.type = cudaMemLocationTypeDevice;
  memory.bytesize = 1024;
  if (SEE(cudaGraphAddMemAllocNode(&node, loop.loop.bodies[0], nullptr, 0, &memory)) == cudaSuccess) {
    if (SEE(cudaGraphInstantiate(&exec, loop.graph, 0)) == cudaSuccess) cudaGraphExecDestroy(exec);
  }
  cudaGetLastError();
}

}  // namespace

PROGRAM("graph-conditional-forms", "every form of branch and loop in graphs, nested, captured and updated, and what is refused") {
  int driver = 0;
  CHECK(cudaDriverGetVersion(&driver));
  if (driver < 12080) conformance::skip("needs driver 12.8");
  struct {
    const char* name;
    void (*run)();
  } const parts[] = {{"rules", rules}, {"sizes", sizes}, {"unused", unused}, {"handles", handles}, {"nothing-of-hosts", nothingOfHosts}};
  for (const auto& each : parts)
    if (conformance::isPart(each.name)) return each.run();
  branches();
  oneThreadDecides();
  defaults();
  nested(false);
  nested(true);
  nestedAndSet();
  body();
  updates();
  for (const auto& each : parts) conformance::child(each.name);
}
