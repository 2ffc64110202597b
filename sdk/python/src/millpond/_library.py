# SPDX-License-Identifier: Apache-2.0
"""The libraries that take the place of the driver in a program."""

from __future__ import annotations

import ctypes
import os
import shutil
from typing import Optional

DRIVER = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"


def client_directory(chosen: Optional[str] = None) -> str:
    """Finds the folder of the client library.

    In this order: `chosen`, ``MILLPOND_NATIVE_DIR``, ``LD_LIBRARY_PATH``, beside the program `millpond` in PATH.

    Raises FileNotFoundError.
    """
    candidates = [chosen] if chosen else []
    if not chosen:
        native = os.environ.get("MILLPOND_NATIVE_DIR")
        if native:
            candidates += [os.path.join(native, "client")]
        candidates += [each for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each]
        program = shutil.which("millpond")
        folder = os.path.dirname(os.path.realpath(program)) if program else ""
        for _ in range(4 if folder else 0):
            candidates += [
                os.path.join(folder, "build", "native", "release", "client"),
                os.path.join(folder, "native", "client"),
            ]
            folder = os.path.dirname(folder)
    for each in candidates:
        if each and _is_client(os.path.join(each, DRIVER)):
            return os.path.abspath(each)
    where = ", ".join(dict.fromkeys(each for each in candidates if each)) or "no place"
    raise FileNotFoundError(
        f"Millpond's client library is not found: looked in {where}. Install Millpond, or set MILLPOND_NATIVE_DIR to the directory "
        "that holds client/libcuda.so.1 [MILLPOND_E_NOT_INSTALLED]"
    )


def _is_client(path: str) -> bool:
    """Whether a library is ours and not the driver's, recognized without loading it by a variable that only ours reads."""
    try:
        with open(path, "rb") as file:
            return b"MILLPOND_CONTROLLER" in file.read()
    except OSError:
        return False


def load(directory: str) -> None:
    """Makes the client library the CUDA driver of this process.

    Raises RuntimeError if the process already has a driver.
    """
    wanted = os.path.realpath(os.path.join(directory, DRIVER))
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        loaded = {line.split(maxsplit=5)[5].strip() for line in maps if f"/{DRIVER.split('.so')[0]}.so" in line}
    others = sorted(path for path in loaded if os.path.realpath(path) != wanted)
    if others:
        raise RuntimeError(
            f"this process has loaded {others[0]} already: activate the claim before anything uses CUDA, in a notebook after a restart "
            "of its kernel"
        )
    for name in (DRIVER, NVML):
        path = os.path.join(directory, name)
        if name == DRIVER or os.path.exists(path):
            # Later lookups of the name find the library that is already loaded under it.
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
