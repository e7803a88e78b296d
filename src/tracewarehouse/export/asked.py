"""What someone asked an export for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracewarehouse.errors import ParamError
from tracewarehouse.params import Param, cast

_MOMENT = "as tables tell it in ns, or with a unit since the first event: 1.2s, 350ms, 20us"
_FROM = Param("from", "BIGINT", None, _MOMENT, unit="ns")
_TO = Param("to", "BIGINT", None, _MOMENT, unit="ns")
_MARGIN = Param("margin", "BIGINT", None, "this much more on both sides", unit="ns", min=0)
_AROUND_NS = 1_000_000


@dataclass(frozen=True)
class Moment:
    """A time: as the tables tell it, or since the first event."""

    ns: int
    since_start: bool


@dataclass(frozen=True)
class Asked:
    """What is to be written. `counters` and `overlays` are None where those that suit are meant."""

    counters: tuple[str, ...] | None = None
    overlays: tuple[str, ...] | None = None
    start: Moment | None = None
    end: Moment | None = None
    step: int | None = None
    around: str | None = None
    margin_ns: int = 0
    plain: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether only a part of the time is wanted."""
        return any(each is not None for each in (self.start, self.end, self.step, self.around))

    def draws_findings(self, ranks: int) -> bool:
        """Whether findings are drawn over so many ranks."""
        if self.overlays is not None:
            return "findings" in self.overlays
        return not self.plain and (self.is_cut or ranks > 1)


def asked(
    counters: Iterable[str] | None = None,
    overlays: Iterable[str] | None = None,
    start: int | str | None = None,
    end: int | str | None = None,
    step: int | None = None,
    around: str | None = None,
    margin: int | str | None = None,
    plain: bool = False,
) -> Asked:
    """The same, checked; raises ParamError for a time that is none, and for several ways to say where."""
    ways = {"--from or --to": start is not None or end is not None, "--step": step is not None}
    ways["--around"] = around is not None
    said = [way for way, is_said in ways.items() if is_said]
    if len(said) > 1:
        raise ParamError(f"{' and '.join(said)} say twice what is cut out", "give one of them")
    if plain and (counters or overlays):
        raise ParamError("--plain draws nothing", "leave it out, or the counters and overlays")
    if margin is not None and not said:
        raise ParamError("--margin is around a part", "say which: --from and --to, --step or --around")
    margin_ns = cast(_MARGIN, margin)
    if margin_ns is None:
        margin_ns = _AROUND_NS if around is not None else 0
    assert isinstance(margin_ns, int)
    return Asked(
        None if counters is None else tuple(counters),
        None if overlays is None else tuple(overlays),
        _moment(_FROM, start),
        _moment(_TO, end),
        step,
        around,
        margin_ns,
        plain,
    )


def _moment(param: Param, value: int | str | None) -> Moment | None:
    ns = cast(param, value)
    if ns is None:
        return None
    assert isinstance(ns, int)
    return Moment(ns, since_start=isinstance(value, str) and value.strip()[-1:].isalpha())
