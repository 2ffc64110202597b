# SPDX-License-Identifier: Apache-2.0
"""Calls of the pool's API: HTTP requests with JSON, by the Connect protocol."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
import urllib.parse
from typing import Any, Mapping, Optional

from ._config import Endpoint, find_endpoint

# : By then another controller leads, if there is one.
TAKEOVER_SECONDS = 10.0
_RETRY_SECONDS = 0.3
_REPEATABLE = re.compile(r"^(?:Get|List|Explain|Wait)")
_CODE = re.compile(r"\[(MILLPOND_E_[A-Z_]+)\]$")
_LARGEST_ANSWER = 256 << 20


class Error(Exception):
    """An error from the controller, or the lack of an answer."""

    def __init__(self, message: str, code: str = "", status: int = 0, leader: str = "") -> None:
        super().__init__(message)
        found = _CODE.search(message)
        #: One of https docs/reference/errors.md: `MILLPOND_E_NO_CAPACITY`; empty where it has none.
        self.code = found.group(1) if found else code
        #: HTTP status; 0: there was no answer.
        self.status = status
        self._leader = leader


class Client:
    """A pool.

    ``Client()`` finds it as the command line does: MILLPOND_CONTROLLER and MILLPOND_TOKEN, else the current context. May be
    used by several threads.
    """

    def __init__(
        self,
        controller: Optional[str] = None,
        token: Optional[str] = None,
        ca: Optional[str] = None,
        context: Optional[str] = None,
    ) -> None:
        self.endpoint: Endpoint = find_endpoint(controller, token, ca, context)
        self._tls: Optional[ssl.SSLContext] = None
        if any(address.startswith("https:") for address in self.endpoint.addresses):
            self._tls = ssl.create_default_context(cadata=self.endpoint.ca_text())
        self._preferred = self.endpoint.addresses[0]

    def call(
        self,
        service: str,
        method: str,
        request: Optional[Mapping[str, Any]] = None,
        *,
        timeout: float = 20.0,
        reason: str = "",
    ) -> dict[str, Any]:
        """Makes any call of the API (docs/reference/api.md).

        ``call("ClaimService", "GetClaim", {"name": "train"})["claim"]``. 64-bit integers are strings in answers. If one of
        several controllers does not answer, or is a follower, the others are tried for ten seconds; a call that changes
        something is not repeated once it has reached a controller. ``timeout``: seconds for each attempt. ``reason``: recorded
        in the audit.

        Raises Error.
        """
        deadline = time.monotonic() + TAKEOVER_SECONDS
        several = len(self.endpoint.addresses) > 1
        while True:
            address = self._preferred
            try:
                return self._send(address, service, method, request or {}, timeout, reason)
            except Error as error:
                away = error.status == 0 and getattr(error, "_unsent", False)
                silent = error.status == 0 and _REPEATABLE.match(method)
                follows = error.code == "MILLPOND_E_NOT_LEADER"
                if not several or not (away or silent or follows) or time.monotonic() > deadline:
                    raise
                self._preferred = self._other(address, error._leader)
            time.sleep(_RETRY_SECONDS)

    def _other(self, address: str, leader: str) -> str:
        all_of_them = self.endpoint.addresses
        # The token is sent only to addresses that the user has named.
        if leader.rstrip("/") in all_of_them:
            return leader.rstrip("/")
        return all_of_them[(all_of_them.index(address) + 1) % len(all_of_them)]

    def _send(
        self, address: str, service: str, method: str, request: Mapping[str, Any], timeout: float, reason: str
    ) -> dict[str, Any]:
        url = urllib.parse.urlsplit(address)
        connection: http.client.HTTPConnection
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(url.netloc, timeout=timeout, context=self._tls)
        else:
            connection = http.client.HTTPConnection(url.netloc, timeout=timeout)
        headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
        if self.endpoint.token:
            headers["Authorization"] = f"Bearer {self.endpoint.token}"
        if reason:
            headers["Millpond-Reason"] = urllib.parse.quote(reason, safe="")
        name = service if "." in service else f"millpond.v1.{service}"
        is_sent = False
        try:
            connection.connect()
            is_sent = True
            connection.request("POST", f"{url.path}/{name}/{method}", json.dumps(request), headers)
            answer = connection.getresponse()
            body = answer.read(_LARGEST_ANSWER)
        except (OSError, http.client.HTTPException) as problem:
            error = Error(f"the controller at {address} does not answer: {problem}", "MILLPOND_E_UNREACHABLE")
            error._unsent = not is_sent  # type: ignore[attr-defined]
            raise error from problem
        finally:
            connection.close()
        try:
            parsed = json.loads(body or b"{}")
        except ValueError:
            parsed = None
        if answer.status == 200 and isinstance(parsed, dict):
            return parsed
        said = parsed.get("message") if isinstance(parsed, dict) else None
        raise Error(
            said or f"{address} answered {answer.status} {answer.reason}: is it a Millpond controller?",
            status=answer.status,
            leader=answer.headers.get("millpond-leader", ""),
        )

    # The most frequent requests

    def claims(self) -> list[dict[str, Any]]:
        """The claims that the token may see, in order of creation."""
        return self.call("ClaimService", "ListClaims").get("claims", [])

    def devices(self) -> list[dict[str, Any]]:
        """Devices of the pool."""
        return self.call("PoolService", "ListDevices").get("devices", [])

    def why(self, name: str) -> dict[str, Any]:
        """Explains why a claim is in its state, with live numbers."""
        return self.call("ClaimService", "ExplainClaim", {"name": name})

    def release(self, name: str, reason: str = "") -> None:
        """Ends a claim and its sessions."""
        self.call("ClaimService", "ReleaseClaim", {"name": name}, reason=reason)
