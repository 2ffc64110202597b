# SPDX-License-Identifier: Apache-2.0
# Calls every function of NVML with random arguments, from threads and children too: nvml_random.py DESCRIPTION SEED CALLS.
# Each output lies at the end of a page with an inaccessible one behind it, so a byte too many ends the process.
import ctypes
import json
import mmap
import os
import random
import sys
import threading

UNINITIALIZED, INVALID, NOT_SUPPORTED, TOO_SMALL, WRONG_VERSION = 1, 2, 3, 7, 25
# Success, invalid argument, not supported, not found, insufficient size, timeout, version mismatch.
ALLOWED = {0, INVALID, NOT_SUPPORTED, 6, TOO_SMALL, 10, WRONG_VERSION}

# Bytes of each type in nvml.h.
SIZES = {
    "unsigned": 4, "int": 4, "Handle": 8, "EventSet": 8, "Memory": 24, "MemoryV2": 40, "Utilization": 8,
    "PciInfoV1": 48, "PciInfoV2": 52, "PciInfo": 68, "PciInfoExt": 64, "ProcessInfoV1": 16, "ProcessInfo": 24,
    "ProcessDetailList": 24, "ProcessesUtilization": 24, "Temperature": 12, "FieldValue": 40, "Uuid": 52, "GpmSupport": 8,
    "uint64_t": 8,
}
VERSIONS = {
    "MemoryV2": 2, "PciInfoExt": 1, "ProcessDetailList": 1, "ProcessesUtilization": 1, "Temperature": 1, "Uuid": 1, "GpmSupport": 1,
}  # fmt: skip
# Structures with an array: where they have its length and its address, and the size of an element.
ARRAYS = {"ProcessDetailList": (8, 16, 32), "ProcessesUtilization": (4, 16, 40)}

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PAGE = mmap.PAGESIZE
ROOM = 4 * PAGE


class Arena:
    """The memory of one caller: a few regions that end at a guard page."""

    def __init__(self, regions=12):
        self.ends = []
        for _ in range(regions):
            base = libc.mmap(None, ROOM + PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
            if libc.mprotect(base + ROOM, PAGE, 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
            self.ends.append(base + ROOM)
        self.next = 0

    def take(self, data):
        """The address of a copy of the data, whose last byte is the last one that may be accessed."""
        end = self.ends[self.next % len(self.ends)]
        self.next += 1
        ctypes.memmove(end - len(data), data, len(data))
        return end - len(data)


def number_at(address):
    return ctypes.c_uint.from_address(address).value


class Caller:
    def __init__(self, library, description, seed):
        self.library = library
        self.functions = description["functions"]
        self.unsupported = description["unsupported"]
        self.random = random.Random(seed)
        self.arena = Arena()
        self.devices = []
        self.sets, self.freed = [], []
        self.texts = [b"", b"GPU-", b"0000:00:00.0", b"x" * 300]

    def learn(self):
        """The state that a well-behaved caller knows."""
        count = ctypes.c_uint()
        if self.library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            raise SystemExit("the claim has no devices")
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            self.devices.append(handle.value)
            text = ctypes.create_string_buffer(96)
            self.library.nvmlDeviceGetUUID(handle, text, 96)
            self.texts.append(text.value)

    def event_set(self):
        """A set of this caller, or an address that is none, and whether it is none."""
        if not self.sets or self.rarely():
            return self.random.choice([0, 1, 0xDEADBEEF, self.arena.ends[0], *self.freed[-1:]]), True
        return self.random.choice(self.sets), False

    def number(self):
        return self.random.choice([0, 0, 1, 2, 3, 4, 5, 7, 10, 100, 4096, 1 << 31, (1 << 32) - 1])

    def rarely(self):
        return self.random.random() < 0.12

    def structure(self, kind):
        """The contents of an output, and whether its version is wrong."""
        data = bytearray(self.random.randbytes(SIZES[kind]))
        if kind not in VERSIONS:
            return data, False
        version = SIZES[kind] | VERSIONS[kind] << 24
        if self.rarely():
            version = self.random.choice([0, 1, 2, SIZES[kind], version ^ 4, version + (1 << 24), 0xFFFFFFFF])
        # This one takes the plain number as well.
        is_wrong = version != SIZES[kind] | VERSIONS[kind] << 24 and not (kind == "GpmSupport" and version == 1)
        data[:4] = version.to_bytes(4, "little")
        if kind in ARRAYS:
            count_at, pointer_at, bytes_each = ARRAYS[kind]
            count = self.random.randrange(4)
            pointer = self.arena.take(bytes(count * bytes_each)) if count and not self.rarely() else 0
            data[count_at : count_at + 4] = count.to_bytes(4, "little")
            data[pointer_at : pointer_at + 8] = pointer.to_bytes(8, "little")
        return data, is_wrong

    def call(self, name, parameters):
        """Calls the function once, checks the invariants of its result, and returns it."""
        arguments, texts, lists = [], [], []
        is_missing = is_wrong_device = is_wrong_version = is_no_set = False
        elements = self.random.randrange(6)
        for parameter in parameters:
            kind, of, label = parameter["kind"], parameter["type"], parameter["name"]
            if kind == "gpu":
                device = self.random.choice([0, 1, 0xDEADBEEF, self.arena.ends[0]]) if self.rarely() else self.random.choice(self.devices)
                is_wrong_device |= device not in self.devices
                arguments.append(ctypes.c_void_p(device))
            elif kind in ("number", "long"):
                value = self.random.randrange(3) if label == "timeoutMs" else self.number()
                if label == "count":
                    value = elements if not self.rarely() else 1 << 31
                arguments.append(ctypes.c_ulonglong(value))
            elif kind == "string":
                text = None if self.rarely() else self.random.choice(self.texts)
                is_missing |= text is None
                arguments.append(text)
            elif kind == "text":
                room = self.random.choice([0, 1, 4, 16, 41, 96, 200])
                address = 0 if self.rarely() else self.arena.take(b"\xaa" * room) if room else self.arena.ends[1]
                is_missing |= address == 0
                arguments += [ctypes.c_void_p(address), ctypes.c_uint(room)]
                texts.append((address, room))
            elif kind == "list":
                room = self.random.randrange(5)
                count = 0 if self.rarely() else self.arena.take(room.to_bytes(4, "little"))
                items = 0 if self.rarely() else self.arena.take(bytes(room * SIZES.get(of, 8))) if room else self.arena.ends[2]
                is_missing |= count == 0 or (room > 0 and items == 0)
                arguments += [ctypes.c_void_p(count), ctypes.c_void_p(items)]
                lists.append((count, room))
            elif kind == "out":
                if self.rarely():
                    is_missing = True
                    arguments.append(None)
                    continue
                if of == "FieldValue":
                    data, wrong = bytearray(SIZES[of] * max(1, elements)), False
                elif label == "count" and any(each["type"] == "ProcessSample*" for each in parameters):
                    data, wrong = bytearray(elements.to_bytes(4, "little")), False
                else:
                    data, wrong = self.structure(of)
                is_wrong_version |= wrong
                arguments.append(ctypes.c_void_p(self.arena.take(bytes(data))))
            elif of == "EventSet":
                events, is_no_set = self.event_set()
                arguments.append(ctypes.c_void_p(events))
            elif of == "ProcessSample*":
                arguments.append(ctypes.c_void_p(self.arena.take(bytes(32 * elements)) if elements else 0))
            else:
                arguments.append(ctypes.c_void_p(0 if self.rarely() else self.arena.take(bytes(64))))
        result = getattr(self.library, name)(*arguments)
        problem = None
        if result not in ALLOWED:
            problem = "a result that it should not have"
        elif is_missing and result != INVALID:
            problem = "a missing pointer is not refused"
        elif is_wrong_device and result != INVALID:
            problem = "a device that is none is not refused"
        elif is_no_set and result != INVALID:
            problem = "an event set that is none is not refused"
        elif is_wrong_version and result not in (WRONG_VERSION, INVALID):
            problem = "a wrong version is not refused"
        elif result == 0 and any(not 0 in ctypes.string_at(address, room) for address, room in texts):
            problem = "a text has no end"
        elif result == 0 and any(number_at(count) > room for count, room in lists):
            problem = "more elements than there is room for"
        elif result == TOO_SMALL and lists and all(number_at(count) <= room for count, room in lists):
            problem = "no room where there was enough"
        if problem:
            shown = [getattr(argument, "value", argument) for argument in arguments]
            raise SystemExit(f"{name}{shown} -> {result}: {problem}")
        if result == 0 and name == "nvmlEventSetCreate":
            self.sets.append(ctypes.c_void_p.from_address(arguments[0].value).value)
        elif result == 0 and name == "nvmlEventSetFree":
            self.sets.remove(arguments[0].value)
            # Another caller may create the set with this handle next, so only a caller that is alone uses it again.
            if threading.active_count() == 1:
                self.freed.append(arguments[0].value)
        self.freed = [each for each in self.freed if each not in self.sets]
        return result

    def call_any(self):
        if len(self.sets) > 40:
            self.call("nvmlEventSetFree", [{"name": "set", "kind": "raw", "type": "EventSet"}])
        if self.random.random() < 0.2:
            name, takes_device = self.random.choice(self.unsupported)
            arguments = [ctypes.c_void_p(self.random.choice([0, 1, *self.devices, self.arena.ends[3]])) for _ in range(6)]
            expected = NOT_SUPPORTED if not takes_device or arguments[0].value in self.devices else INVALID
            if (result := getattr(self.library, name)(*arguments)) != expected:
                raise SystemExit(f"{name}({arguments[0].value}) -> {result}, and {expected} is expected")
            return name, result
        function = self.random.choice(self.functions)
        return function["name"], self.call(function["name"], function["parameters"])


def main():
    path, seed, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with open(path, encoding="utf8") as file:
        description = json.load(file)
    library = ctypes.CDLL("libnvidia-ml.so.1")
    zeros = [ctypes.c_void_p(0)] * 6
    late = [each["name"] for each in description["functions"] if not each["early"]] + [name for name, _ in description["unsupported"]]
    before = sorted({getattr(library, name)(*zeros) for name in late})
    if library.nvmlInit_v2() != 0:
        raise SystemExit("nvmlInit failed")
    caller = Caller(library, description, seed)
    caller.learn()
    seen = {}
    for _ in range(calls):
        name, result = caller.call_any()
        seen.setdefault(name, set()).add(result)
    failures = []

    def work(number):
        other = Caller(library, description, seed * 1000 + number)
        other.devices, other.texts = caller.devices, caller.texts
        try:
            for _ in range(calls // 10):
                other.call_any()
        except SystemExit as problem:
            failures.append(str(problem))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            work(100 + number)
            os._exit(1 if failures else 0)
        children.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    for thread in threads:
        thread.join()
    # Init and shutdown are counted, whatever their order.
    count, wrong = 1, 0
    for _ in range(200):
        if caller.random.random() < 0.5:
            wrong += library.nvmlInitWithFlags(caller.number()) != 0
            count += 1
        else:
            wrong += library.nvmlShutdown() != (0 if count else UNINITIALIZED)
            count = max(0, count - 1)
        wrong += (library.nvmlUnitGetCount(ctypes.byref(ctypes.c_uint())) == 0) != (count > 0)
    # After the last shutdown, with arguments that were valid, nothing but "uninitialized" is answered, and nothing is written.
    while library.nvmlShutdown() == 0:
        pass
    guarded = [ctypes.c_void_p(caller.devices[0])] + [ctypes.c_void_p(caller.arena.take(b"\xaa" * 64)) for _ in range(5)]
    after = sorted({getattr(library, name)(*guarded) for name in late})
    written = sum(ctypes.string_at(each.value, 64) != b"\xaa" * 64 for each in guarded[1:])
    print(json.dumps({
        "before": before, "after": after, "written": written, "devices": len(caller.devices), "called": len(seen), "failures": failures, "children": children,
        "counted": wrong, "succeeded": sorted(name for name, results in seen.items() if 0 in results),
    }))  # fmt: skip


main()
