"""The engine that asks SGLang servers over HTTP: raw ``/generate``, ids in and ids out.

What belongs here: the wire format (``wire``), what a server says of itself (``facts``), HTTP (``client``), how many
requests a server gets (``window``), several servers and their faults (``pool``), the engine made of these (``engine``),
and a server that is started here (``managed``, ``keeper``). Not here: retries of a request (``generation``).
"""

from eagle3_assets.engines.sglang.engine import SglangEngine
from eagle3_assets.engines.sglang.managed import ManagedSglang
from eagle3_assets.engines.sglang.pool import Pace

__all__ = ["ManagedSglang", "Pace", "SglangEngine"]
