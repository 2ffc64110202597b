// SPDX-License-Identifier: Apache-2.0
// Conditional nodes of graphs, whose conditions kernels set.
#include <vector>

#include "softgpu/driver/tests/kernels.h"

namespace millpond::softgpu::testing {
namespace {

// choose: the condition gets the value at `at`. countdown: that value is first decremented, and the word after it
// incremented. broken: traps.
constexpr char kKernels[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);
.visible .entry choose (.param .u64 at, .param .u64 handle)
{
  .reg .b64 %a, %h;
  .reg .b32 %v;
  .param .b64 p0;
  .param .b32 p1;
  ld.param.u64 %a, [at];
  ld.param.u64 %h, [handle];
  ld.global.u32 %v, [%a];
  st.param.b64 [p0], %h;
  st.param.b32 [p1], %v;
  call.uni cudaGraphSetConditional, (p0, p1);
  ret;
}
.visible .entry countdown (.param .u64 at, .param .u64 handle)
{
  .reg .b64 %a, %h;
  .reg .b32 %v, %n;
  .param .b64 p0;
  .param .b32 p1;
  ld.param.u64 %a, [at];
  ld.param.u64 %h, [handle];
  ld.global.v2.u32 {%v, %n}, [%a];
  sub.u32 %v, %v, 1;
  add.u32 %n, %n, 1;
  st.global.v2.u32 [%a], {%v, %n};
  st.param.b64 [p0], %h;
  st.param.b32 [p1], %v;
  call.uni cudaGraphSetConditional, (p0, p1);
  ret;
}
.visible .entry broken (.param .u64 at, .param .u64 handle)
{
  trap;
}
)";

class Conditions {
 public:
  explicit Conditions(CUcontext context) : context_(context) {
    OK(CU(cuModuleLoadData)(&module_, kKernels));
    OK(CU(cuGraphCreate)(&graph_, 0));
  }
  ~Conditions() {
    OK(CU(cuGraphDestroy)(graph_));
    CU(cuModuleUnload)(module_);
  }
  CUgraph graph() const { return graph_; }

  CUgraphConditionalHandle handle(unsigned initial = 0, unsigned flags = 0) const {
    CUgraphConditionalHandle made = 0;
    OK(CU(cuGraphConditionalHandleCreate)(&made, graph_, context_, initial, flags));
    return made;
  }
  CUresult tryNode(CUgraph in, CUgraphNode after, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                   unsigned size, std::vector<CUgraph>* bodies, CUgraphNode* node) const {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context_;
    const CUresult result = CU(cuGraphAddNode_v2)(node, in, &after, nullptr, after ? 1 : 0, &params);
    if (result == CUDA_SUCCESS) bodies->assign(params.conditional.phGraph_out, params.conditional.phGraph_out + size);
    return result;
  }
  std::vector<CUgraph> node(CUgraph in, CUgraphNode after, CUgraphConditionalHandle handle,
                            CUgraphConditionalNodeType type, unsigned size, CUgraphNode* node = nullptr) const {
    std::vector<CUgraph> bodies;
    CUgraphNode made = nullptr;
    OK(tryNode(in, after, handle, type, size, &bodies, node ? node : &made));
    return bodies;
  }
  CUgraphNode kernel(CUgraph in, CUgraphNode after, const char* name, CUdeviceptr at,
                     CUgraphConditionalHandle handle) const {
    void* parameters[] = {&at, &handle};
    CUDA_KERNEL_NODE_PARAMS params{};
    OK(CU(cuModuleGetFunction)(&params.func, module_, name));
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = parameters;
    CUgraphNode node = nullptr;
    OK(CU(cuGraphAddKernelNode_v2)(&node, in, &after, after ? 1 : 0, &params));
    return node;
  }
  CUgraphNode fill(CUgraph in, CUdeviceptr at, unsigned value) const {
    CUDA_MEMSET_NODE_PARAMS params{};
    params.dst = at;
    params.value = value;
    params.elementSize = 4;
    params.width = params.height = 1;
    CUgraphNode node = nullptr;
    OK(CU(cuGraphAddMemsetNode)(&node, in, nullptr, 0, &params, context_));
    return node;
  }
  CUgraphExec executable() const {
    CUgraphExec exec = nullptr;
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph_, 0));
    return exec;
  }

 private:
  const CUcontext context_;
  CUmodule module_ = nullptr;
  CUgraph graph_ = nullptr;
};

CUresult run(CUgraphExec exec) {
  if (const CUresult result = CU(cuGraphLaunch)(exec, nullptr)) return result;
  return CU(cuCtxSynchronize)();
}

void put(const DeviceArray<unsigned>& array, unsigned value) {
  OK(CU(cuMemcpyHtoD_v2)(array.pointer(), &value, sizeof(value)));
}

TEST("a condition that a kernel sets chooses one body, or none") {
  PrimaryContext context;
  const Conditions conditions(context.handle());
  const DeviceArray<unsigned> value(1), branch(1), choice(1);
  const auto either = conditions.handle(), which = conditions.handle();
  CUgraphNode first = nullptr;
  const CUgraphNode asked = conditions.kernel(conditions.graph(), nullptr, "choose", value.pointer(), either);
  const auto branches = conditions.node(conditions.graph(), asked, either, CU_GRAPH_COND_TYPE_IF, 2, &first);
  conditions.fill(branches[0], branch.pointer(), 100);
  conditions.fill(branches[1], branch.pointer(), 200);
  const CUgraphNode again = conditions.kernel(conditions.graph(), first, "choose", value.pointer(), which);
  const auto choices = conditions.node(conditions.graph(), again, which, CU_GRAPH_COND_TYPE_SWITCH, 3);
  for (unsigned i = 0; i < 3; ++i) conditions.fill(choices[i], choice.pointer(), 10 + i);
  const CUgraphExec exec = conditions.executable();
  for (const unsigned each : {0u, 1u, 2u, 3u, 0xffffffffu}) {
    put(value, each);
    put(choice, 1);
    OK(run(exec));
    CHECK_EQ(branch.values()[0], each ? 100u : 200u);
    CHECK_EQ(choice.values()[0], each < 3 ? 10 + each : 1u);
  }
  OK(CU(cuGraphExecDestroy)(exec));
}

TEST("a loop in a loop goes on while its condition holds, and begins anew with each launch") {
  PrimaryContext context;
  const Conditions conditions(context.handle());
  const DeviceArray<unsigned> outer(2), inner(2);
  const auto whole = conditions.handle(1, CU_GRAPH_COND_ASSIGN_DEFAULT), part = conditions.handle();
  const CUgraph body = conditions.node(conditions.graph(), nullptr, whole, CU_GRAPH_COND_TYPE_WHILE, 1)[0];
  const CUgraphNode four = conditions.fill(body, inner.pointer(), 4);
  const CUgraphNode asked = conditions.kernel(body, four, "choose", inner.pointer(), part);
  CUgraphNode within = nullptr;
  const CUgraph innerBody = conditions.node(body, asked, part, CU_GRAPH_COND_TYPE_WHILE, 1, &within)[0];
  conditions.kernel(innerBody, nullptr, "countdown", inner.pointer(), part);
  conditions.kernel(body, within, "countdown", outer.pointer(), whole);
  const CUgraphExec exec = conditions.executable();
  const unsigned none[2] = {};
  OK(CU(cuMemcpyHtoD_v2)(inner.pointer(), none, sizeof(none)));
  for (unsigned i = 1; i <= 2; ++i) {
    const unsigned three[2] = {3, 0};
    OK(CU(cuMemcpyHtoD_v2)(outer.pointer(), three, sizeof(three)));
    OK(run(exec));
    CHECK_EQ(outer.values()[1], 3u);
    CHECK_EQ(inner.values()[1], 12 * i);
  }
  OK(CU(cuGraphExecDestroy)(exec));
}

TEST("a fault in a loop ends it") {
  OwnContext context;
  CUgraphExec exec = nullptr;
  {
    const Conditions conditions(context.handle());
    const DeviceArray<unsigned> value(1);
    const auto handle = conditions.handle(1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    const CUgraph body = conditions.node(conditions.graph(), nullptr, handle, CU_GRAPH_COND_TYPE_WHILE, 1)[0];
    conditions.kernel(body, nullptr, "broken", value.pointer(), handle);
    exec = conditions.executable();
    FAILS(CUDA_ERROR_LAUNCH_FAILED, run(exec));
  }
  CU(cuGraphExecDestroy)(exec);
}

TEST("a graph with conditions is there once, with all of its conditions asked by one node each") {
  PrimaryContext context;
  const Conditions conditions(context.handle()), others(context.handle());
  const auto handle = conditions.handle();
  std::vector<CUgraph> bodies;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphInstantiateWithParams)(&exec, conditions.graph(), &how));
  CHECK_EQ(static_cast<int>(how.result_out), static_cast<int>(CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED));
  const auto tryNode = [&](const Conditions& in, CUgraphConditionalNodeType type, unsigned size) {
    return in.tryNode(in.graph(), nullptr, handle, type, size, &bodies, &node);
  };
  FAILS(CUDA_ERROR_INVALID_VALUE, tryNode(others, CU_GRAPH_COND_TYPE_IF, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, tryNode(conditions, CU_GRAPH_COND_TYPE_IF, 3));
  FAILS(CUDA_ERROR_INVALID_VALUE, tryNode(conditions, CU_GRAPH_COND_TYPE_WHILE, 2));
  FAILS(CUDA_ERROR_INVALID_VALUE, tryNode(conditions, CU_GRAPH_COND_TYPE_SWITCH, 0));
  OK(tryNode(conditions, CU_GRAPH_COND_TYPE_SWITCH, 5));
  FAILS(CUDA_ERROR_INVALID_VALUE, tryNode(conditions, CU_GRAPH_COND_TYPE_IF, 1));
  CUgraph twin = nullptr;
  FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuGraphClone)(&twin, conditions.graph()));
  FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuGraphAddChildGraphNode)(&node, others.graph(), nullptr, 0, conditions.graph()));
  OK(CU(cuGraphInstantiateWithFlags)(&exec, conditions.graph(), 0));
  CUgraphExec second = nullptr;
  FAILS(CUDA_ERROR_NOT_SUPPORTED, CU(cuGraphInstantiateWithFlags)(&second, conditions.graph(), 0));
  OK(CU(cuGraphExecDestroy)(exec));
  CUDA_HOST_NODE_PARAMS host{};
  host.fn = [](void*) {};
  OK(CU(cuGraphAddHostNode)(&node, bodies[1], nullptr, 0, &host));
  FAILS(CUDA_ERROR_INVALID_VALUE, CU(cuGraphInstantiateWithFlags)(&exec, conditions.graph(), 0));
}

}  // namespace
}  // namespace millpond::softgpu::testing
