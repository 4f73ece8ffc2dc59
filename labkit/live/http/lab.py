"""What only a lab has: look at every GPU, read receipts, and break things on purpose."""

from collections.abc import Callable
from typing import Any

import msgspec

from labkit.core.units import to_ms
from labkit.live.desk import DeskEngine
from labkit.live.http.exchange import Exchange
from labkit.live.http.refusals import Refusal
from labkit.live.keys import Account


class LabRoutes:
    """`/lab/...`, for an admin key on this machine."""

    def __init__(self, engine: DeskEngine) -> None:
        self.engine = engine
        self._pages = {b"/lab/gpus": self.gpus, b"/lab/receipts": self.receipts}
        self._verbs: dict[bytes, Callable[[int], None]] = {
            b"kill": engine.fleet.kill,
            b"hang": lambda gpu: engine.fleet.inject(gpu, "hang", 5.0),
            b"straggle": lambda gpu: engine.fleet.inject(gpu, "straggle", 2.0),
            b"poison": lambda gpu: engine.fleet.inject(gpu, "poison"),
            b"drain": engine.shell.drain,
        }

    def serve(self, exchange: Exchange, account: Account) -> bytes:
        """The JSON of a page; raises `Refusal`.

        GET /lab/gpus, GET /lab/receipts, POST /lab/gpus/{number}/{verb}.
        """
        page = self._pages.get(exchange.path)
        parts = exchange.path.split(b"/")
        if page is not None:
            if exchange.method not in (b"GET", b"HEAD"):
                raise Refusal("method_not_allowed", headers=b"allow: GET\r\n")
            return _encode(page())
        if len(parts) == 5 and parts[2] == b"gpus":
            if exchange.method != b"POST":
                raise Refusal("method_not_allowed", headers=b"allow: POST\r\n")
            self._break(parts[3], parts[4])
            return b'{"status":"done"}'
        raise Refusal("not_found")

    def gpus(self) -> dict[str, Any]:
        """What is where, now."""
        engine = self.engine
        rows = []
        for gpu in range(engine.fleet.gpus):
            view, depart = engine.fleet.view(gpu), engine.shell.on_gpu.get(gpu)
            rows.append(
                {
                    "gpu": gpu,
                    "model": engine.shell.version_of(gpu),
                    "state": view.state.value,
                    "aboard": 0 if depart is None else len(depart.rows),
                    "pid": view.pid,
                    "restarts": view.restarts,
                }
            )
        gateway = engine.gateway
        return {"depth": gateway.depth(), "in_flight": gateway.in_flight(), "gpus": rows}

    def receipts(self) -> dict[str, Any]:
        """Why the last batches left when they did."""
        return {
            "receipts": [
                {
                    "at_ms": to_ms(at),
                    "batch": depart.batch_id,
                    "gpu": depart.gpus[0],
                    "model": depart.rows[0].model,
                    "size": len(depart.rows),
                    "reason": depart.receipt.reason,
                    "oldest_age_ms": to_ms(depart.receipt.oldest_age),
                    "slack_ms": None
                    if depart.receipt.slack is None
                    else to_ms(depart.receipt.slack),
                    "stayed": depart.receipt.stayed,
                    "models": sorted({row.model for row in depart.rows}),
                }
                for at, depart in self.engine.shell.receipts
            ]
        }

    def _break(self, number: bytes, verb: bytes) -> None:
        if not number.isdigit() or len(number) > 9 or int(number) >= self.engine.fleet.gpus:
            raise Refusal("not_found", f"no GPU {number.decode('latin-1')!r} here")
        action = self._verbs.get(verb)
        if action is None:
            known = ", ".join(name.decode() for name in self._verbs)
            raise Refusal("not_found", f"no verb {verb.decode('latin-1')!r}; there are {known}")
        action(int(number))


_encode = msgspec.json.Encoder().encode
