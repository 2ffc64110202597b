# SPDX-License-Identifier: Apache-2.0
"""Sizes and shares in the notation of the command line."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Union

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d{1,16}(?:\.\d{1,9})?)([kmgt]i?)?(b)?", re.IGNORECASE)


def memory_fields(memory: Union[str, int, float, None]) -> dict[str, Any]:
    """The fields of a claim that set the memory of each vGPU.

    ``"512Mi"``, ``"8G"``, a number of MiB, or a share of the device: ``"50%"``, ``0.5``. None: the whole device.
    """
    if memory is None:
        return {}
    text = str(memory).strip()
    if isinstance(memory, float) or text.endswith("%") or re.fullmatch(r"[01]\.\d{1,9}", text):
        return {"memoryPercent": percent(memory)}
    match = _SIZE.fullmatch(text)
    if match is None or (not match.group(2) and not match.group(3) and "." in match.group(1)):
        raise ValueError(f"{memory!r} is not a size such as 512Mi, 8G or 8192 (a number without a unit counts MiB)")
    number, unit, is_bytes = match.groups()
    factor = _UNITS[(unit or "").lower()] if unit or is_bytes else 2**20
    size = int(Decimal(number) * factor)
    if not 2**20 <= size <= 2**50:
        raise ValueError(f"the size {memory!r} is not between 1 MiB and 1 PiB")
    return {"memoryBytes": str(size)}


def percent(share: Union[str, int, float]) -> int:
    """``"50%"``, ``50`` or ``0.5``: a whole number from 1 to 100. A bare 1 may mean everything or one percent, and is refused."""
    text = str(share).strip()
    value = None
    if text == "1":
        raise ValueError('a share of 1 may mean everything or one percent: say "1%" or "100%"')
    if re.fullmatch(r"\d{1,3}%?", text):
        value = int(text.rstrip("%"))
    elif re.fullmatch(r"[01]\.\d{1,9}", text):
        exact = Decimal(text) * 100
        value = int(exact) if exact == int(exact) else None
    if value is None or not 1 <= value <= 100:
        raise ValueError(f"{share!r} is not a share from 1% to 100% in steps of 1%, such as 50% or 0.5")
    return value
