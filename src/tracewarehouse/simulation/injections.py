"""What can be planted in a simulated run, each with the values it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tracewarehouse.errors import ParamError, UnknownName

WHOLE = ("rank", "step", "count", "collective")
SLOW = ("compute", "host", "data")
TEXT = ("what", "kernel", "to", "group")

EVERY_STEP = ("slow-link", "long-collective", "clock", "missing-rank", "truncated-window", "before-window")
EVERY_RANK = ("slow-link", "long-collective")
# Kind: (what it does, its own values with their defaults; None = must be given).
KINDS: Mapping[str, tuple[str, Mapping[str, object]]] = MappingProxyType(
    {
        "slow-rank": ("a rank is slower: what=compute, host or data", {"what": "compute", "factor": 1.5}),
        "slow-kernel": ("a kernel takes longer by percent", {"kernel": None, "percent": 20.0}),
        "extra-kernel": ("a further kernel in each step", {"us": 50.0}),
        "removed-kernel": ("a kernel is gone, its operator too", {"kernel": "dropout"}),
        "renamed-kernel": ("a kernel goes by another name, as after an upgrade", {"kernel": None, "to": ""}),
        "dataloader-stall": ("the data loader waits in one step", {"step": None, "ms": 5.0}),
        "blocking-item": ("each step ends with a blocking .item()", {}),
        "no-overlap": ("computation waits for every gradient collective", {}),
        "slow-link": (
            "a group's link is slower by a factor: group=tensor0, data1, …",
            {"group": None, "factor": 4.0},
        ),
        "long-collective": (
            "one collective of a group takes far longer",
            {"group": "data0", "collective": 1, "ms": 3.0},
        ),
        "growing-memory": ("each step leaves memory allocated", {"mb": 64.0}),
        "clock": ("a rank's clock is off and drifts", {"rank": None, "offset_us": 0.0, "drift_ppm": 0.0}),
        "missing-rank": ("a rank writes no trace", {"rank": None}),
        "truncated-window": ("the recording starts late or stops early", {"from_ms": 0.0, "to_ms": 0.0}),
        "before-window": ("the first launches were made before the recording", {"count": 20}),
        "lost-gpu": ("a share of the GPU rows is lost", {"share": 0.05}),
        "lost-launch": ("a share of the launches is lost, their GPU rows are not", {"share": 0.05}),
    }
)


@dataclass(frozen=True)
class Injection:
    """One planted thing; `values` holds its own knobs, rank and step narrow it (None = all)."""

    kind: str
    values: Mapping[str, object]
    rank: int | None = None
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> Injection:
        """From `KIND[:KEY=VALUE,…]`. Raises UnknownName and ParamError."""
        kind, _, rest = text.partition(":")
        if kind not in KINDS:
            raise UnknownName("injection", kind, KINDS)
        given = dict(_pair(kind, part) for part in rest.split(",") if part)
        own = KINDS[kind][1]
        for key in given:
            if key not in own and key not in ("rank", "step"):
                raise UnknownName(f"value of {kind}", key, [*own, "rank", "step"])
        values = {key: given.get(key, default) for key, default in own.items()}
        missing = [key for key, value in values.items() if value is None]
        if missing:
            raise ParamError(f"{kind} needs {missing[0]}", f"write {kind}:{missing[0]}=…")
        rank, step = given.get("rank"), given.get("step")
        return cls(
            kind,
            MappingProxyType({key: value for key, value in values.items() if key not in ("rank", "step")}),
            rank if isinstance(rank, int) else None,
            step if isinstance(step, int) else None,
        )

    def __str__(self) -> str:
        own = {**self.values, "rank": self.rank, "step": self.step}
        parts = [f"{key}={value}" for key, value in own.items() if value is not None]
        return f"{self.kind}:{','.join(parts)}" if parts else self.kind

    def number(self, key: str) -> float:
        """A value that is a number."""
        value = self.values[key]
        assert isinstance(value, int | float)
        return float(value)

    def word(self, key: str) -> str:
        """A value that is a text."""
        return str(self.values[key])

    def hits(self, rank: int, step: int) -> bool:
        """Whether it concerns a rank in a step (counted from 0)."""
        return self.rank in (None, rank) and self.step in (None, step)

    def check(self, ranks: int, steps: int) -> None:
        """Raises ParamError where the job has no such rank or step."""
        for name, value, kinds in (("rank", self.rank, EVERY_RANK), ("step", self.step, EVERY_STEP)):
            if value is not None and self.kind in kinds:
                raise ParamError(f"{self.kind} takes no {name}", f"leave out {name}={value}")
        for name, value, size in (("rank", self.rank, ranks), ("step", self.step, steps)):
            if value is not None and not 0 <= value < size:
                raise ParamError(f"{self.kind}: no {name} {value}", f"the job has {name}s 0 to {size - 1}")
        if self.kind == "slow-rank" and self.word("what") not in SLOW:
            raise ParamError(f"slow-rank: what={self.word('what')}", f"it is one of {', '.join(SLOW)}")
        for key in ("factor", "percent", "share", "count", "us", "ms", "mb", "from_ms", "to_ms"):
            if key in self.values and self.number(key) < 0:
                raise ParamError(f"{self.kind}: {key} is negative", "give 0 or more")


def _pair(kind: str, part: str) -> tuple[str, object]:
    key, equals, text = part.partition("=")
    if not equals:
        raise ParamError(f"{kind}: {part!r} is no KEY=VALUE", f"write {kind}:KEY=VALUE,…")
    if key in TEXT:
        return key, text
    try:
        return key, int(text) if key in WHOLE else float(text)
    except ValueError as error:
        raise ParamError(f"{kind}: {key}={text} is no number") from error
