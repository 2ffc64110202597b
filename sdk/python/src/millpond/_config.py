# SPDX-License-Identifier: Apache-2.0
"""Where the pool is: arguments, then the environment, then the context that `millpond login` or `millpond up` created."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Endpoint:
    """The address of a controller, and the credentials for it."""

    #: Base URL; several that share a state, separated by commas.
    controller: str
    #: Empty: none. Left out when the object is printed.
    token: str = field(default="", repr=False)
    #: The authority to trust, PEM: a file or its content. None: the machine's authorities.
    ca: Optional[str] = None

    @property
    def addresses(self) -> list[str]:
        return [each.strip().rstrip("/") for each in self.controller.split(",") if each.strip()]

    def ca_text(self) -> Optional[str]:
        """The certificate itself.

        Raises OSError for a file that cannot be read.
        """
        if not self.ca or "-----BEGIN" in self.ca:
            return self.ca or None
        with open(self.ca, encoding="ascii") as file:
            return file.read()


def find_endpoint(
    controller: Optional[str] = None,
    token: Optional[str] = None,
    ca: Optional[str] = None,
    context: Optional[str] = None,
) -> Endpoint:
    """Finds the pool.

    The token of a context is sent only to the context's controller.

    Raises ValueError if no pool is known.
    """
    controller = controller or os.environ.get("MILLPOND_CONTROLLER")
    token = token if token is not None else os.environ.get("MILLPOND_TOKEN")
    ca = ca or os.environ.get("MILLPOND_CA")
    current: dict[str, str] = {}
    if controller is None or token is None:
        contexts = _read_contexts()
        name = context or os.environ.get("MILLPOND_CONTEXT") or contexts.get("currentContext", "")
        current = contexts.get("contexts", {}).get(name, {})
    controller = controller or current.get("controller")
    if not controller:
        raise ValueError(
            "no controller is configured. Start a pool with `millpond up`, use `millpond login`, or set MILLPOND_CONTROLLER "
            "[MILLPOND_E_NOT_CONFIGURED]"
        )
    if current.get("controller") == controller:
        token = current.get("token", "") if token is None else token
        ca = ca or current.get("ca")
    endpoint = Endpoint(controller, token or "", ca)
    for address in endpoint.addresses:
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"{address!r} is not an http or https URL of a controller [MILLPOND_E_INVALID]")
    return endpoint


def _read_contexts() -> dict:
    path = os.environ.get("MILLPOND_CONFIG")
    if not path:
        base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
        path = os.path.join(base, "millpond", "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}
