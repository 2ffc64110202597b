# SPDX-License-Identifier: Apache-2.0
"""Virtual GPUs of a Millpond pool, from Python and notebooks."""

from ._claim import Claim, ClaimLost, claim
from ._client import Client, Error
from ._config import Endpoint

__all__ = ["Claim", "ClaimLost", "Client", "Endpoint", "Error", "claim"]
__version__ = "0.1.0"
