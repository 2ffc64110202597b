# SPDX-License-Identifier: Apache-2.0
"""The start of an inference server, by the calls that vLLM and SGLang make, with a small model of random weights.

    python inference_start.py --out native.json
    millpond run -- python inference_start.py --out shm.json
    millpond run --transport tcp -- python inference_start.py --out tcp.json
    python inference_start.py --compare native.json shm.json tcp.json

The steps, in the order of vLLM (platforms/cuda.py, v1/worker/gpu_worker.py, v1/worker/gpu_model_runner.py):

 1. platform: NVML decides whether there are GPUs; name, UUID, memory, compute capability and links of each
 2. memory before anything is loaded (mem_get_info), and what the server may use of it (--utilization)
 3. weights, and a forward pass of the largest batch, whose peak is measured (memory profiling)
 4. the KV cache: all memory that is left, in blocks of 16 tokens, as one allocation
 5. CUDA graphs of the decode step for each batch size, largest first, in one memory pool
 6. decoding by graphs; the tokens must be those of the same steps without graphs
 7. SGLang's way: nvidia-smi's total, mem_get_info as free memory, and tokens by a fraction of it (--fraction)

--only platform ends after the first step, which needs no PyTorch. --compare prints a line for each file after the first one,
and fails where an answer, a token, or the number of blocks (by more than --tolerance percent) differs from the first one.
"""

import argparse
import gc
import hashlib
import json
import os
import subprocess
import sys
import time

BLOCK_TOKENS = 16
LAYERS, HIDDEN, HEADS, VOCABULARY = 8, 1024, 16, 32000
HEAD_SIZE = HIDDEN // HEADS
MAX_BATCH, MAX_TOKENS, PROMPT_TOKENS, DECODED = 64, 4096, 32, 24
GRAPH_BATCHES = [1, 2, 4, 8, 16, 24, 32, 48, 64]
MIB = 1 << 20


def platform():
    """What vLLM's cuda_platform_plugin and NvmlCudaPlatform ask, with NVML opened and closed around each question."""
    import pynvml

    def ask(question):
        pynvml.nvmlInit()
        try:
            return question()
        finally:
            pynvml.nvmlShutdown()

    def text(value):
        return value.decode() if isinstance(value, bytes) else value

    count = ask(pynvml.nvmlDeviceGetCount)
    if count == 0:
        raise SystemExit("NVML reports no GPU: vLLM would choose no CUDA platform")
    devices = []
    for index in range(count):
        of = lambda function: ask(lambda: function(pynvml.nvmlDeviceGetHandleByIndex(index)))
        devices.append({
            "name": text(of(pynvml.nvmlDeviceGetName)),
            "uuid": text(of(pynvml.nvmlDeviceGetUUID)),
            "capability": list(of(pynvml.nvmlDeviceGetCudaComputeCapability)),
            "totalBytes": int(of(pynvml.nvmlDeviceGetMemoryInfo).total),
        })  # fmt: skip

    def linked(a, b):
        handles = [pynvml.nvmlDeviceGetHandleByIndex(each) for each in (a, b)]
        return pynvml.nvmlDeviceGetP2PStatus(*handles, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) == pynvml.NVML_P2P_STATUS_OK

    pairs = [ask(lambda a=a, b=b: linked(a, b)) for a in range(count) for b in range(a + 1, count)]
    return {"devices": devices, "fullyConnected": all(pairs)}


def smi_total_mebibytes():
    """SGLang's get_nvgpu_memory_capacity: the smallest total of all GPUs, from nvidia-smi itself; None: it is not installed."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    if done.returncode != 0:
        raise SystemExit(f"nvidia-smi failed: {done.stdout}{done.stderr}")
    return min(float(line) for line in done.stdout.split("\n") if line.strip())


class Server:
    def __init__(self, utilization, fraction):
        import torch

        self.torch = torch
        self.utilization = utilization
        self.fraction = fraction
        self.found = {"seconds": {}}
        torch.manual_seed(7)
        torch.cuda.set_device(0)
        self.device = torch.device("cuda", 0)
        self.began = time.perf_counter()

    def timed(self, name):
        self.torch.cuda.synchronize()
        now = time.perf_counter()
        self.found["seconds"][name] = now - self.began
        self.began = now

    def snapshot(self):
        """vLLM's MemorySnapshot."""
        torch = self.torch
        gc.collect()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved()
        peak = torch.cuda.memory_stats().get("allocated_bytes.all.peak", 0)
        return {"free": free, "total": total, "reserved": reserved, "peak": peak, "outside": total - free - reserved}

    def load(self):
        torch = self.torch
        make = lambda *shape: (torch.randn(*shape, device=self.device) / shape[-1] ** 0.5).to(torch.bfloat16)
        self.embedding = make(VOCABULARY, HIDDEN)
        shapes = [(3 * HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (4 * HIDDEN, HIDDEN), (HIDDEN, 4 * HIDDEN)]
        self.layers = [[make(*shape) for shape in shapes] for _ in range(LAYERS)]

    def forward(self, tokens, caches, positions, write_to, read_from, lengths):
        """One step for a token of each sequence. `caches`: a layer's keys and values by slot, or None for the profile run."""
        torch = self.torch
        functional = torch.nn.functional
        normal = lambda each: functional.rms_norm(each, (HIDDEN,))
        angles = positions.unsqueeze(1) * torch.arange(1, HIDDEN + 1, device=self.device) / HIDDEN
        hidden = functional.embedding(tokens, self.embedding) + torch.sin(angles).to(torch.bfloat16)
        for number, (attention_in, attention_out, up, down) in enumerate(self.layers):
            projected = functional.linear(normal(hidden), attention_in)
            query, key, value = projected.view(-1, 3, HEADS, HEAD_SIZE).unbind(1)
            if caches is None:
                whole = [each.transpose(0, 1).unsqueeze(0) for each in (query, key, value)]
                seen = functional.scaled_dot_product_attention(*whole, is_causal=True)
                attended = seen.squeeze(0).transpose(0, 1).reshape(-1, HIDDEN)
            else:
                caches[number][0].index_copy_(0, write_to, key)
                caches[number][1].index_copy_(0, write_to, value)
                # Paged: the slots of a sequence's tokens lie anywhere in the cache.
                keys, values = (caches[number][each][read_from].transpose(1, 2) for each in (0, 1))
                places = torch.arange(read_from.shape[1], device=self.device)
                mask = (places.unsqueeze(0) < lengths.unsqueeze(1)).view(-1, 1, 1, read_from.shape[1])
                seen = functional.scaled_dot_product_attention(query.unsqueeze(2), keys, values, attn_mask=mask)
                attended = seen.reshape(-1, HIDDEN)
            hidden = hidden + functional.linear(attended, attention_out)
            hidden = hidden + functional.linear(functional.silu(functional.linear(normal(hidden), up)), down)
        return functional.linear(normal(hidden), self.embedding)

    def size_cache(self, before):
        """Memory profiling and the number of blocks, as determine_available_memory and get_num_blocks compute them."""
        torch = self.torch
        requested = int(before["total"] * self.utilization)
        if before["free"] < requested:
            raise SystemExit(f"free memory {before['free'] // MIB} MiB is less than the desired {requested // MIB} MiB")
        weights = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        tokens = torch.zeros(MAX_TOKENS, dtype=torch.long, device=self.device)
        self.forward(tokens, None, torch.zeros(MAX_TOKENS, device=self.device), None, None, None)
        torch.cuda.synchronize()
        after = self.snapshot()
        activation = after["peak"] - weights
        outside = after["outside"] - before["outside"]
        block = 2 * LAYERS * BLOCK_TOKENS * HIDDEN * 2
        available = requested - weights - activation - max(0, outside)
        self.found["memory"] = {
            "totalBytes": before["total"],
            "freeBytes": before["free"],
            "weightBytes": weights,
            "activationBytes": activation,
            "outsideBytes": outside,
            "blocks": available // block,
        }
        return available // block

    def allocate_cache(self, blocks):
        torch = self.torch
        whole = torch.zeros(blocks * 2 * LAYERS * BLOCK_TOKENS * HIDDEN * 2, dtype=torch.int8, device=self.device)
        slots = blocks * BLOCK_TOKENS
        self.caches = [tuple(layer) for layer in whole.view(torch.bfloat16).view(LAYERS, 2, slots, HEADS, HEAD_SIZE)]
        length = PROMPT_TOKENS + DECODED
        per = (length + BLOCK_TOKENS - 1) // BLOCK_TOKENS
        # Blocks from both ends of the cache, so that all of its memory is there.
        order = [number // 2 if number % 2 == 0 else blocks - 1 - number // 2 for number in range(MAX_BATCH * per)]
        table = torch.tensor(order, device=self.device).view(MAX_BATCH, per, 1) * BLOCK_TOKENS
        self.slots = (table + torch.arange(BLOCK_TOKENS, device=self.device)).reshape(MAX_BATCH, -1)
        self.static = {
            "tokens": torch.zeros(MAX_BATCH, dtype=torch.long, device=self.device),
            "positions": torch.zeros(MAX_BATCH, device=self.device),
            "write_to": torch.zeros(MAX_BATCH, dtype=torch.long, device=self.device),
            "lengths": torch.zeros(MAX_BATCH, dtype=torch.long, device=self.device),
        }

    def step(self, batch):
        state = self.static
        of_batch = lambda name: state[name][:batch]
        inputs = [of_batch(name) for name in ("positions", "write_to")]
        return self.forward(of_batch("tokens"), self.caches, *inputs, self.slots[:batch], of_batch("lengths"))

    def capture(self):
        torch = self.torch
        pool = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream()
        self.graphs = {}
        free = torch.cuda.mem_get_info()[0]
        for batch in reversed(GRAPH_BATCHES):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.step(batch)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                logits = self.step(batch)
            self.graphs[batch] = (graph, logits)
        torch.cuda.synchronize()
        self.found["graphs"] = len(self.graphs)
        self.found["memory"]["graphBytes"] = free - torch.cuda.mem_get_info()[0]

    def decode(self, with_graphs):
        """Greedy decoding of sequences, whose number falls as some end, so that graphs of several sizes take turns."""
        torch = self.torch
        for keys, values in self.caches:
            keys[self.slots.flatten()] = 0
            values[self.slots.flatten()] = 0
        prompt = torch.randint(0, VOCABULARY, (MAX_BATCH, PROMPT_TOKENS), generator=torch.Generator().manual_seed(3))
        state, digest = self.static, hashlib.sha256()
        state["tokens"].copy_(prompt[:, 0])
        for position in range(PROMPT_TOKENS + DECODED - 1):
            active = MAX_BATCH if position < PROMPT_TOKENS else max(1, MAX_BATCH - 3 * (position - PROMPT_TOKENS))
            batch = next(each for each in GRAPH_BATCHES if each >= active)
            state["positions"].fill_(position)
            state["lengths"].fill_(position + 1)
            state["write_to"].copy_(self.slots[:, position])
            if with_graphs:
                graph, logits = self.graphs[batch]
                graph.replay()
            else:
                logits = self.step(batch)
            chosen = logits.float().argmax(dim=1).cpu()
            if position + 1 < PROMPT_TOKENS:
                state["tokens"].copy_(prompt[:, position + 1])
                continue
            digest.update(chosen[:active].numpy().tobytes())
            state["tokens"][:batch].copy_(chosen)
        return digest.hexdigest()

    def run(self):
        torch = self.torch
        before = self.snapshot()
        self.timed("start")
        self.load()
        self.timed("weights")
        blocks = self.size_cache(before)
        self.timed("profile")
        self.allocate_cache(blocks)
        self.timed("cache")
        self.capture()
        self.timed("graphs")
        with torch.inference_mode():
            self.found["tokens"] = self.decode(with_graphs=True)
            self.timed("decodeByGraphs")
            self.found["sameWithoutGraphs"] = self.decode(with_graphs=False) == self.found["tokens"]
        self.timed("decodeWithoutGraphs")
        capability = list(torch.cuda.get_device_capability())
        self.found["properties"] = [torch.cuda.get_device_name(), capability, torch.cuda.device_count()]
        del self.caches, self.graphs
        after = self.snapshot()
        reserve = before["total"] * (1 - self.fraction)
        self.found["sglang"] = {
            "smiTotalMebibytes": smi_total_mebibytes(),
            "tokens": int((after["free"] - reserve) // (2 * LAYERS * HIDDEN * 2)),
            "freedAgain": after["reserved"] <= before["reserved"] + 1024 * MIB,
        }
        return self.found


def differing_platforms(native, other, same):
    """A vGPU's total is the limit of its claim, which leaves room for the contexts of its sessions."""
    differ = [key for key in ("fullyConnected",) if native[key] != other[key]]
    if len(native["devices"]) != len(other["devices"]):
        return [*differ, "devices"]
    for index, (a, b) in enumerate(zip(native["devices"], other["devices"])):
        differ += [f"device {index} {key}" for key in ("name", "uuid", "capability") if a[key] != b[key]]
        differ += [f"device {index} totalBytes"] if not same(a["totalBytes"], b["totalBytes"]) else []
    return differ


def compare(paths, tolerance):
    def read(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def same(a, b):
        return abs(a - b) <= tolerance / 100 * max(abs(a), 1)

    def unlike(part, *keys):
        a, b = native[part], other[part]
        return [f"{part}.{key}" for key in keys if not same(a[key] or 0, b[key] or 0)]

    native = read(paths[0])
    bad = False
    for path in paths[1:]:
        other = read(path)
        exact = ("properties", "graphs", "tokens", "sameWithoutGraphs")
        differ = [key for key in exact if native[key] != other[key]]
        differ += differing_platforms(native["platform"], other["platform"], same)
        differ += unlike("memory", "blocks", "activationBytes") + unlike("sglang", "smiTotalMebibytes", "tokens")
        both = {part: [native[part], other[part]] for part in ("memory", "sglang", "seconds")}
        print(json.dumps({"file": path, "differ": differ, **both}))
        bad = bad or differ != []
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file for the answers")
    parser.add_argument("--only", choices=["platform"], help="end after this step")
    parser.add_argument("--utilization", type=float, default=0.9, help="vLLM's gpu_memory_utilization (default: %(default)s)")
    parser.add_argument("--fraction", type=float, default=0.88, help="SGLang's mem_fraction_static (default: %(default)s)")
    parser.add_argument("--compare", nargs="+", help="files, the native one first")
    parser.add_argument("--tolerance", type=float, default=2, help="percent by which sizes may differ (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.compare:
        return compare(arguments.compare, arguments.tolerance)
    # Spawned workers of vLLM inherit it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    found = {"platform": platform()}
    if arguments.only is None:
        import torch

        with torch.inference_mode():
            found.update(Server(arguments.utilization, arguments.fraction).run())
    text = json.dumps(found)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
