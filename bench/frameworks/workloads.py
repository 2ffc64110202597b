# SPDX-License-Identifier: Apache-2.0
"""PyTorch workloads, timed as their users see them, with what they compute.

usage: workloads.py WORKLOAD...     of micro, rn152, rn50t, gpt, rn18

Prints a JSON object per measured step: {"name", "ms" (of an iteration, best of three series), "check" (numbers that
must be the same wherever it runs; null where the library's own choice of algorithm may change them)}.
"""

import json
import sys
import time

import torch

SERIES = 3


def measure(name, step, iterations, warm=10, check=None):
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(SERIES):
        begin = time.perf_counter()
        for _ in range(iterations):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / iterations * 1e3)
    print(json.dumps({"name": name, "ms": best, "check": check() if check else None}), flush=True)


def waiting(step):
    def run():
        step()
        torch.cuda.synchronize()

    return run


def micro():
    a = torch.zeros(1024, 1024, device="cuda")
    measure("micro.add", lambda: a.add_(1.0), 2000, check=lambda: a[0, 0].item())
    measure("micro.add_and_wait", waiting(lambda: a.add_(1.0)), 500, check=lambda: a[5, 5].item())
    measure("micro.item", lambda: a[0, 0].item(), 500)
    host = torch.arange(16 << 20, dtype=torch.float32)
    pinned = host.pin_memory()
    device = torch.empty(16 << 20, device="cuda")
    same = lambda: bool(torch.equal(device.cpu(), host))
    measure("micro.to_device_64MiB", lambda: device.copy_(host), 10, check=same)
    measure("micro.to_device_pinned_64MiB", lambda: device.copy_(pinned, non_blocking=True), 10, check=same)
    measure(
        "micro.from_device_pinned_64MiB",
        lambda: pinned.copy_(device, non_blocking=True),
        10,
        check=lambda: bool(torch.equal(pinned, host)),
    )


def rn152():
    import torchvision

    model = torchvision.models.resnet152().cuda().eval()
    host = torch.randn(1, 3, 224, 224)
    x = host.cuda()
    with torch.inference_mode():
        result = lambda: model(x).double().sum().item()
        measure("rn152.batch1", waiting(lambda: model(x)), 50, check=result)
        measure("rn152.batch1_end_to_end", lambda: model(host.cuda()).cpu(), 50)
        x32 = torch.randn(32, 3, 224, 224, device="cuda")
        measure("rn152.batch32", waiting(lambda: model(x32)), 20)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        measure("rn152.batch1_graph", waiting(graph.replay), 50, check=lambda: y.double().sum().item())


def rn50t():
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def train(x, y):
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    x = torch.randn(128, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (128,), device="cuda")
    measure("rn50t.batch128", lambda: train(x, y), 20, check=lambda: bool(torch.isfinite(train(x, y)).item()))
    x, y = x[:16].clone(memory_format=torch.channels_last), y[:16]
    measure("rn50t.batch16", lambda: train(x, y), 20)
    measure("rn50t.batch16_item", lambda: train(x, y).item(), 20)


def gpt():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 50257, (8, 512), device="cuda")

    def train():
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    measure("gpt.train_8x512", train, 10, check=lambda: bool(torch.isfinite(train()).item()))
    model.eval()
    prompt = torch.randint(0, 50257, (1, 16), device="cuda")
    generate = lambda: model.generate(prompt, max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0)
    with torch.inference_mode():
        measure("gpt.generate_32", generate, 3, warm=2, check=lambda: int(generate().shape[1]))


def rn18():
    """Twenty steps of training with deterministic algorithms: the losses are the same to the last bit."""
    import torchvision

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    model = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x = torch.randn(32, 3, 224, 224, device="cuda")
    y = torch.randint(0, 1000, (32,), device="cuda")
    losses = []
    begin = time.perf_counter()
    for _ in range(20):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item().hex())
    ms = (time.perf_counter() - begin) / 20 * 1e3
    print(json.dumps({"name": "rn18.deterministic", "ms": ms, "check": losses}), flush=True)


def main():
    known = {"micro": micro, "rn152": rn152, "rn50t": rn50t, "gpt": gpt, "rn18": rn18}
    torch.backends.cudnn.benchmark = False
    for name in sys.argv[1:]:
        torch.manual_seed(1)
        torch.cuda.manual_seed(1)
        known[name]()


main()
