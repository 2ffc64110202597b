# SPDX-License-Identifier: Apache-2.0
"""What torch.profiler sees of a small training step, natively and through Millpond.

    python torch_profiler.py --out native.json
    millpond run -m 8Gi -- python torch_profiler.py --out shm.json
    millpond run -m 8Gi --transport tcp -- python torch_profiler.py --out tcp.json
    python torch_profiler.py --compare native.json shm.json tcp.json

--compare prints a line of JSON for each file after the first one, and fails where less than 99 % of the kernels have the name
that they have in the first one, in their order, where their times together differ by more than 2 %, or where less than 99 % of
the kernels are tied to the call that launched them and to the operator of PyTorch that it was for.
"""

import argparse
import difflib
import json
import os
import statistics
import sys
import tempfile
import time

STEPS = 10


def make_step():
    import torch

    torch.manual_seed(1)
    device = torch.device("cuda")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, stride=2, padding=3),
        torch.nn.BatchNorm2d(64),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 128, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(2),
        torch.nn.TransformerEncoderLayer(1024, 8, 2048, batch_first=True),
        torch.nn.Flatten(),
        torch.nn.Linear(128 * 1024, 10),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    images = torch.randn(16, 3, 128, 128)
    labels = torch.randint(0, 10, (16,), device=device)

    def step():
        batch = images.to(device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def timed(step):
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - begin) * 1000 / STEPS


def record(path):
    import torch
    from torch.profiler import ProfilerActivity, profile

    step = make_step()
    for _ in range(5):
        step()
    plain = timed(step)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        step()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        profiled = timed(step)
    after = timed(step)
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(trace)
        with open(trace, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    of = lambda *kinds: sorted((e for e in events if e.get("ph") == "X" and e.get("cat") in kinds), key=lambda e: e["ts"])
    work = of("kernel", "gpu_memcpy", "gpu_memset")
    calls = {e["args"].get("correlation") for e in of("cuda_runtime", "cuda_driver")}
    operators = {e["args"].get("External id") for e in of("cpu_op")}
    kernels = of("kernel")
    found = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "stepMs": {"plain": plain, "profiled": profiled, "after": after},
        "kernels": [[e["name"], e["dur"]] for e in kernels],
        "copies": [[e["name"], e["args"].get("bytes"), e["dur"]] for e in of("gpu_memcpy")],
        "fills": len(of("gpu_memset")),
        "calls": sorted({e["name"] for e in of("cuda_runtime", "cuda_driver")}),
        "kernelsWithCall": sum(e["args"].get("correlation") in calls for e in kernels),
        "kernelsWithOperator": sum(e["args"].get("External id") in operators for e in kernels),
        "busyPercent": 100 * sum(e["dur"] for e in work) / max(1e-9, work[-1]["ts"] + work[-1]["dur"] - work[0]["ts"]) if work else 0,
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file)
    print(json.dumps({**found, "kernels": len(kernels), "copies": len(found["copies"])}))
    print(profiler.key_averages().table(sort_by="cuda_time_total", row_limit=8), file=sys.stderr)


def compare(paths):
    def read(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    native = read(paths[0])
    names = [name for name, _ in native["kernels"]]
    total = sum(duration for _, duration in native["kernels"])
    bad = False
    for path in paths[1:]:
        other = read(path)
        count = len(other["kernels"])
        matcher = difflib.SequenceMatcher(None, names, [name for name, _ in other["kernels"]], autojunk=False)
        same = sum(block.size for block in matcher.get_matching_blocks())
        by_name = lambda kernels, name: [duration for each, duration in kernels if each == name]
        close = sum(
            sum(by_name(native["kernels"], name))
            for name in set(names)
            if by_name(other["kernels"], name)
            and abs(
                statistics.median(by_name(other["kernels"], name)) / statistics.median(by_name(native["kernels"], name)) - 1
            )
            <= 0.02
        )
        difference = 100 * (sum(duration for _, duration in other["kernels"]) / max(1e-9, total) - 1)
        line = {
            "file": path,
            "kernels": [len(names), count],
            "samePercent": 100 * same / max(1, len(names), count),
            "durationsPercent": difference,
            "timeInKernelsWhoseMedianIsWithin2Percent": 100 * close / max(1e-9, total),
            "withCallPercent": 100 * other["kernelsWithCall"] / max(1, count),
            "withOperatorPercent": 100 * other["kernelsWithOperator"] / max(1, count),
            "nativeWithOperatorPercent": 100 * native["kernelsWithOperator"] / max(1, len(names)),
            "stepMs": [native["stepMs"], other["stepMs"]],
            "callsMissing": sorted(set(native["calls"]) - set(other["calls"])),
        }
        print(json.dumps(line))
        bad = bad or (
            line["samePercent"] < 99
            or abs(difference) > 2
            or line["withCallPercent"] < 99
            or line["withOperatorPercent"] < min(99, line["nativeWithOperatorPercent"] - 0.5)
        )
    return 1 if bad else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file for what the profiler saw")
    parser.add_argument("--compare", nargs="+", help="files, the native one first")
    arguments = parser.parse_args()
    if arguments.compare:
        sys.exit(compare(arguments.compare))
    if not arguments.out:
        parser.error("--out or --compare")
    record(arguments.out)
