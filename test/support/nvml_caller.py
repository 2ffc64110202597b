# SPDX-License-Identifier: Apache-2.0
# Asks NVML what frameworks and monitors ask, through ctypes as pynvml does, and prints the answers as JSON.
import ctypes
import json
import os
import sys
import threading

nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlErrorString.restype = ctypes.c_char_p
Device = ctypes.c_void_p


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    ]


class Field(ctypes.Structure):
    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("at", ctypes.c_longlong),
        ("took", ctypes.c_longlong),
        ("type", ctypes.c_uint),
        ("result", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    ]


def number():
    return ctypes.c_uint(0)


def count():
    found = number()
    return [nvml.nvmlDeviceGetCount_v2(ctypes.byref(found)), found.value]


def text(function, device, room=96):
    buffer = ctypes.create_string_buffer(room)
    result = function(*([device] if device else []), buffer, ctypes.c_uint(room))
    return [result, buffer.value.decode()]


def handle(index):
    found = Device()
    result = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(found))
    return result, found


def processes(device):
    room = number()
    first = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(room), None)
    room = ctypes.c_uint(64)
    all_of_them = (Process * 64)()
    second = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(room), all_of_them)
    return [first, second, [[p.pid, p.memory] for p in all_of_them[: room.value]]]


def in_child():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, json.dumps(count()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(os.read(read, 4096))


answers = {"uninitialized": count()}
answers["init"] = [nvml.nvmlInit_v2(), nvml.nvmlInitWithFlags(ctypes.c_uint(0))]
if answers["init"] == [0, 0]:
    answers["count"] = count()
    result, device = handle(0)
    answers["beyond"] = handle(answers["count"][1])[0]
    answers["wrongHandle"] = nvml.nvmlDeviceGetIndex(Device(0x1234), ctypes.byref(number()))
    answers["name"] = text(nvml.nvmlDeviceGetName, device)
    answers["short"] = text(nvml.nvmlDeviceGetName, device, 4)[0]
    answers["uuid"] = text(nvml.nvmlDeviceGetUUID, device)
    again = Device()
    answers["byUuid"] = [
        nvml.nvmlDeviceGetHandleByUUID(answers["uuid"][1].encode(), ctypes.byref(again)),
        again.value == device.value,
    ]
    answers["missingPointer"] = nvml.nvmlDeviceGetMemoryInfo(device, None)
    memory = Memory()
    answers["memory"] = [nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)), memory.total, memory.used]
    newer = MemoryV2(version=ctypes.sizeof(MemoryV2) | 2 << 24)
    answers["memoryV2"] = [nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(newer)), newer.total, newer.used]
    answers["wrongVersion"] = nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(MemoryV2(version=7)))
    answers["processes"] = processes(device)
    major, minor = ctypes.c_int(), ctypes.c_int()
    answers["capability"] = [
        nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)),
        major.value,
        minor.value,
    ]
    version = ctypes.c_int()
    answers["cuda"] = [nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version)), version.value]
    answers["temperature"] = nvml.nvmlDeviceGetTemperature(device, ctypes.c_uint(0), ctypes.byref(number()))
    fields = (Field * 2)(Field(field=185), Field(field=1))
    answers["fields"] = [nvml.nvmlDeviceGetFieldValues(device, 2, fields), [f.result for f in fields]]
    answers["ecc"] = nvml.nvmlDeviceGetEccMode(device, ctypes.byref(number()), ctypes.byref(number()))
    reached = ctypes.c_uint(99)
    answers["p2pWithItself"] = [
        nvml.nvmlDeviceGetP2PStatus(device, device, ctypes.c_uint(0), ctypes.byref(reached)),
        reached.value,
    ]
    answers["set"] = nvml.nvmlDeviceSetPersistenceMode(device, ctypes.c_uint(0))
    answers["child"] = in_child()
    of_threads = []
    threads = [
        threading.Thread(target=lambda: of_threads.extend(count()[1] for _ in range(200))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    # Children of a process whose threads are calling.
    answers["children"] = [in_child() for _ in range(20)]
    for thread in threads:
        thread.join()
    answers["threads"] = [len(of_threads), sorted(set(of_threads))]
    if "--with-cuda" in sys.argv:
        cuda = ctypes.CDLL("libcuda.so.1")
        answers["cuInit"] = cuda.cuInit(0)
        answers["afterCuInit"] = text(nvml.nvmlDeviceGetUUID, device)
    answers["shutdown"] = [nvml.nvmlShutdown()]
    answers["stillOpen"] = count()[0]
    answers["shutdown"].append(nvml.nvmlShutdown())
    answers["closed"] = count()[0]
    answers["shutdown"].append(nvml.nvmlShutdown())
print(json.dumps(answers))
