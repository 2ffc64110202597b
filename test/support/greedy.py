# SPDX-License-Identifier: Apache-2.0
# A program that takes what memory of a device it can get, by every call that makes a driver take some, and in any order:
# `greedy.py SEED STEPS`. Exits with 3 where it gets no session; a third of the runs are killed in the middle.
import ctypes
import os
import random
import signal
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
rng = random.Random(int(sys.argv[1]))
steps = int(sys.argv[2])
MIB = 1 << 20

HEAD = ".version 6.3\n.target sm_52\n.address_size 64\n"
PRINTING = HEAD + """
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.visible .entry work(.param .u64 n) {
  .reg .pred %p<2>; .reg .b64 %n<2>;
  ld.param.u64 %n1, [n]; setp.lt.u64 %p1, %n1, 1000000; @%p1 bra done;
  { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %n1; st.param.b64 [a], %n1;
    call.uni (r), vprintf, (f, a); }
done: ret; }
"""
ALLOCATING = HEAD + """
.extern .func (.param .b64 r) malloc (.param .b64 n);
.visible .entry work(.param .u64 n) {
  .reg .b64 %n<3>;
  ld.param.u64 %n1, [n];
  { .param .b64 n; .param .b64 r; st.param.b64 [n], %n1; call.uni (r), malloc, (n); ld.param.b64 %n2, [r]; }
  ret; }
"""
VARIABLES = HEAD + ".visible .global .align 8 .b8 large[%d];\n.visible .entry work(.param .u64 n) { ret; }\n"


def call(name, *args):
    return getattr(cuda, name)(*args)


if call("cuInit", 0) != 0:
    sys.exit(3)
device = ctypes.c_int()
call("cuDeviceGet", ctypes.byref(device), 0)
primary = ctypes.c_void_p()
if call("cuDevicePrimaryCtxRetain", ctypes.byref(primary), device) != 0:
    sys.exit(3)
call("cuCtxSetCurrent", primary)
contexts = []
memory = []
modules = []


def load():
    size = 2 * MIB * rng.randint(1, 8)
    text = rng.choice([PRINTING, ALLOCATING, VARIABLES % size])
    module = ctypes.c_void_p()
    if call("cuModuleLoadData", ctypes.byref(module), text.encode()) != 0:
        return
    modules.append(module)
    function = ctypes.c_void_p()
    argument = ctypes.c_uint64(64)
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(argument), ctypes.c_void_p))
    if call("cuModuleGetFunction", ctypes.byref(function), module, b"work") == 0:
        call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
        call("cuCtxSynchronize")


def allocate():
    address = ctypes.c_uint64()
    if call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(2 * MIB * rng.randint(1, 16))) == 0:
        memory.append(address)


def context():
    made = ctypes.c_void_p()
    if call("cuCtxCreate_v2", ctypes.byref(made), 0, device) == 0:
        contexts.append(made)


def end_context():
    if contexts:
        call("cuCtxDestroy_v2", contexts.pop(rng.randrange(len(contexts))))
        # What was in it is gone; calls about it only fail.
        call("cuCtxSetCurrent", primary)


def free():
    if memory:
        call("cuMemFree_v2", memory.pop(rng.randrange(len(memory))))


def unload():
    if modules:
        call("cuModuleUnload", modules.pop(rng.randrange(len(modules))))


def reset():
    call("cuDevicePrimaryCtxReset_v2", device)
    memory.clear()
    modules.clear()
    call("cuCtxSetCurrent", primary)


print("began", flush=True)
for _ in range(steps):
    rng.choices([allocate, free, load, unload, context, end_context, reset], [8, 4, 4, 2, 2, 2, 1])[0]()
    time.sleep(rng.random() * 0.02)
if rng.random() < 1 / 3:
    os.kill(os.getpid(), signal.SIGKILL)
