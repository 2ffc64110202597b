# SPDX-License-Identifier: Apache-2.0
"""A claim of this process: created, waited for, kept alive, and released."""

from __future__ import annotations

import atexit
import getpass
import html
import os
import re
import secrets
import socket
import sys
import threading
import time
from typing import Any, Callable, Optional, Union

from ._client import Client, Error
from ._library import client_directory, load
from ._sizes import memory_fields, percent

# : Long enough for a restart of the controller, short enough not to block others after a crash.
_LEASE_SECONDS = 30
_POLL_SECONDS = 5
_RETRY_SECONDS = 0.3
_PATIENCE_SECONDS = 30.0


class ClaimLost(Exception):
    """The vGPUs are gone, or will be in a moment: the claim has ended or is being preempted."""


class Claim:
    """vGPUs of a pool. Created by :func:`claim`; released at the end of its ``with``, by :meth:`release`, or with the process."""

    def __init__(self, client: Client, state: dict[str, Any]) -> None:
        self.client = client
        self._state = state
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._lost = ""
        self._process = os.getpid()
        self._on_notice: Optional[Callable[[float, str], None]] = None

    # What it is

    @property
    def state(self) -> dict[str, Any]:
        """The claim as the API describes it, at most some seconds old (docs/reference/api.md#claim)."""
        with self._lock:
            return dict(self._state)

    @property
    def name(self) -> str:
        return self.state["name"]

    @property
    def is_bound(self) -> bool:
        return self.state.get("state") == "CLAIM_STATE_BOUND"

    @property
    def devices(self) -> list[dict[str, Any]]:
        """The vGPUs that were granted; empty while it waits."""
        return self.state.get("allocation", {}).get("devices", [])

    def check(self) -> None:
        """Raises ClaimLost when the vGPUs are gone, or when notice has been given that they will be."""
        with self._lock:
            if self._lost:
                raise ClaimLost(self._lost)

    # Its life

    def wait(self, timeout: Optional[float] = None, on_waiting: Optional[Callable[[str], None]] = None) -> "Claim":
        """Waits until the claim is bound; does not wait for a lazy one.

        `timeout` in seconds, None: forever. `on_waiting` is called with the reason for waiting, at first and at each change.

        Raises TimeoutError, ClaimLost.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        told = None
        while not self.is_bound:
            state = self.state
            self._raise_if_ended(state)
            if state.get("lazy"):
                break
            why = state.get("reason") or "the pool has no room"
            if on_waiting is not None and why != told:
                on_waiting(why)
                told = why
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"no room for claim {state['name']} within {timeout:g} s: {why} [MILLPOND_E_WAIT_TIMEOUT]")
            self._refresh(_POLL_SECONDS if left is None else min(left, _POLL_SECONDS))
        return self

    def keep(self, on_notice: Optional[Callable[[float, str], None]] = None) -> "Claim":
        """Keeps the claim alive in a thread until it is released.

        `on_notice` is called in that thread, with seconds and reason, when the claim is going to be preempted.
        """
        self._on_notice = on_notice
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew, name="millpond-claim", daemon=True)
            self._thread.start()
            atexit.register(self.release)
        return self

    def release(self) -> None:
        """Releases the vGPUs. Does nothing the second time. A forked child process does not own the claim."""
        if self._over.is_set() or os.getpid() != self._process:
            return
        self._over.set()
        atexit.unregister(self.release)
        deadline = time.monotonic() + 5
        while True:
            try:
                self.client.call("ClaimService", "ReleaseClaim", {"name": self.name}, timeout=5)
                return
            except Error as error:
                if error.code == "MILLPOND_E_NOT_FOUND":
                    return
                if error.status != 0 or time.monotonic() > deadline:
                    print(
                        f"millpond: claim {self.name} could not be released and expires within {_LEASE_SECONDS} s: {error}",
                        file=sys.stderr,
                    )
                    return
            time.sleep(_RETRY_SECONDS)

    def resize(
        self,
        gpus: Optional[int] = None,
        memory: Union[str, int, float, None] = None,
        compute: Union[str, int, float, None] = None,
    ) -> "Claim":
        """Resizes the claim, even while programs are running. None: unchanged.

        Raises Error.
        """
        request: dict[str, Any] = {"name": self.name, **memory_fields(memory)}
        if gpus is not None:
            request["gpus"] = gpus
        if compute is not None:
            request["computePercent"] = percent(compute)
        self._take(self.client.call("ClaimService", "ResizeClaim", request).get("claim"))
        return self

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    # Its programs

    def environment(self, base: Optional[dict[str, str]] = None) -> dict[str, str]:
        """The environment in which a program finds the vGPUs: ``subprocess.run(program, env=claim.environment())``.

        It contains a token for this claim, not the caller's. `base`: None: the environment of this process.

        Raises Error, FileNotFoundError.
        """
        out = dict(os.environ if base is None else base)
        for name in ("MILLPOND_WORKER", "MILLPOND_TICKET", "MILLPOND_LINK_SECRET"):
            out.pop(name, None)
        out.update(self._variables())
        before = out.get("LD_LIBRARY_PATH", "")
        out["LD_LIBRARY_PATH"] = client_directory() + (f":{before}" if before else "")
        return out

    def activate(self, library: Optional[str] = None) -> "Claim":
        """Makes the vGPUs the GPUs of this process. To be called before anything in it uses CUDA.

        A process has one CUDA driver until it ends, and with it one claim. `library`: the folder of the client library, if it
        is not found automatically.

        Raises RuntimeError if the process already has a driver, FileNotFoundError if the client library is not found.
        """
        directory = client_directory(library)
        variables = self._variables()
        load(directory)
        os.environ.update(variables)
        return self

    def _variables(self) -> dict[str, str]:
        secret = self.client.call("ClaimService", "CreateClaimToken", {"name": self.name})["secret"]
        out = {"MILLPOND_CONTROLLER": self.client.endpoint.controller, "MILLPOND_CLAIM": self.name, "MILLPOND_TOKEN": secret}
        ca = self.client.endpoint.ca_text()
        if ca:
            out["MILLPOND_CA"] = ca
        return out

    # Inside

    def _take(self, state: Optional[dict[str, Any]]) -> None:
        if state:
            with self._lock:
                self._state = state

    def _refresh(self, seconds: float) -> None:
        """One long poll, which renews the lease."""
        state = self.state
        request = {"name": state["name"], "knownVersion": state.get("version", "0"), "timeoutSeconds": max(1, round(seconds))}
        try:
            self._take(self.client.call("ClaimService", "WaitClaim", request, timeout=seconds + 5).get("claim"))
        except Error as error:
            if error.status != 0:
                raise
            time.sleep(_RETRY_SECONDS)

    def _raise_if_ended(self, state: dict[str, Any]) -> None:
        if state.get("state") in ("CLAIM_STATE_RELEASED", "CLAIM_STATE_FAILED"):
            raise ClaimLost(f"claim {state['name']} has ended: {state.get('reason', '')} [MILLPOND_E_CLAIM_ENDED]")

    def _lose(self, why: str) -> None:
        with self._lock:
            self._lost = self._lost or why

    def _renew(self) -> None:
        requeues = self.state.get("requeues", 0)
        while not self._over.is_set():
            try:
                self._refresh(_POLL_SECONDS)
                state = self.state
                self._raise_if_ended(state)
            except (ClaimLost, Error) as error:
                if not self._over.is_set():
                    self._lose(str(error))
                return
            if state.get("requeues", 0) > requeues:
                self._lose(f"the vGPUs of claim {state['name']} were preempted: {state.get('reason', '')}")
            at = int(state.get("preemptAt", "0"))
            if at and not self._lost:
                seconds = max(0.0, at - time.time())
                why = state.get("reason", "")
                self._lose(f"the vGPUs of claim {state['name']} are preempted in {seconds:.0f} s: {why}")
                if self._on_notice is not None:
                    self._on_notice(seconds, why)

    def __repr__(self) -> str:
        state = self.state
        word = state.get("state", "").removeprefix("CLAIM_STATE_").lower()
        return f"<millpond.Claim {state['name']}: {state.get('gpus', 1)} vGPU, {word}>"

    def _repr_html_(self) -> str:
        """For notebooks: shows what was granted, or why the claim waits."""
        state = self.state
        node = state.get("allocation", {}).get("node", "")
        rows = "".join(
            f"<tr><td>{index}</td><td>{html.escape(device.get('uuid', ''))}</td>"
            f"<td>{int(device.get('memoryBytes', '0')) / 2**30:.1f} GiB</td><td>{device.get('computePercent', 0)} %</td></tr>"
            for index, device in enumerate(self.devices)
        )
        why = html.escape(state.get("reason", ""))
        table = f"<table><tr><th></th><th>GPU</th><th>memory</th><th>compute</th></tr>{rows}</table>" if rows else f"<p>{why}</p>"
        where = f" on {html.escape(node)}" if node else ""
        return f"<b>claim {html.escape(state['name'])}</b>{where}{table}"


def claim(
    gpus: int = 1,
    memory: Union[str, int, float, None] = None,
    compute: Union[str, int, float, None] = None,
    *,
    name: str = "",
    wait: bool = True,
    timeout: Optional[float] = None,
    client: Optional[Client] = None,
    on_waiting: Optional[Callable[[str], None]] = None,
    on_notice: Optional[Callable[[float, str], None]] = None,
    **fields: Any,
) -> Claim:
    """Requests vGPUs from the pool, waits for them, and keeps them until they are released.

    ``with millpond.claim(gpus=1, memory="8Gi", compute=50, queue="research") as claim:``

    `fields` are those of docs/reference/claims.md, in Python spelling: ``queue="research"``, ``preemptible=True``,
    ``labels={"app": "web"}``, ``time_limit="2h"``. `wait`: False: fail instead of waiting if there is no room now. `timeout`:
    seconds to wait for room, None: forever. `on_waiting` is called with the reason for waiting, `on_notice` with the seconds
    and the reason when the claim is going to be preempted.

    Raises Error, TimeoutError, ValueError.
    """
    pool = client or Client()
    # With a name of our own, a request whose answer was lost can be repeated.
    name = name or f"claim-{secrets.token_hex(8)}"
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
    owner = f"{_user()}@{socket.gethostname()}:{os.getpid()} {program}"[:256]
    spec: dict[str, Any] = {"name": name, "gpus": gpus, "owner": owner, "leaseSeconds": _LEASE_SECONDS, **memory_fields(memory)}
    spec["clientHost"] = _boot_id()
    if compute is not None:
        spec["computePercent"] = percent(compute)
    request = {"claim": spec, "noWait": not wait, "variables": _variables_of(fields)}
    made = Claim(pool, _create(pool, request, owner))
    try:
        made.wait(timeout, on_waiting)
    except BaseException:
        made.release()
        raise
    return made.keep(on_notice)


def _create(pool: Client, request: dict[str, Any], owner: str) -> dict[str, Any]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    name = request["claim"]["name"]
    is_first = True
    while True:
        try:
            return pool.call("ClaimService", "CreateClaim", request, timeout=10)["claim"]
        except Error as error:
            if not is_first and error.code == "MILLPOND_E_ALREADY_EXISTS":
                state = pool.call("ClaimService", "GetClaim", {"name": name})["claim"]
                if state.get("owner") == owner:
                    return state
            if error.status != 0 or request["noWait"] or time.monotonic() > deadline:
                raise
        is_first = False
        time.sleep(_RETRY_SECONDS)


def _variables_of(fields: dict[str, Any]) -> dict[str, str]:
    out = {}
    for name, value in fields.items():
        if value is None:
            continue
        if not re.fullmatch(r"[a-z][a-z_]*", name):
            raise ValueError(f"{name!r} is no field of a claim: see docs/reference/claims.md")
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, dict):
            text = ",".join(f"{key}={each}" for key, each in value.items())
        elif isinstance(value, (list, tuple)):
            text = ",".join(str(each) for each in value)
        else:
            text = str(value)
        out[f"MILLPOND_{name.upper()}"] = text
    return out


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""  # Without it every node counts as another machine.


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # A user id without an entry in the user database, as in containers.
