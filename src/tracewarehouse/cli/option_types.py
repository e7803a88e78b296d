"""Types of option values: locations, lists of ranks and names, labels, durations, sizes and ratios."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import click

from tracewarehouse.durations import age_ns
from tracewarehouse.location import Location, StoreUrl, is_url, store_url


class LocationParam(click.Path):
    """A folder, or the URL of an object store."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(  # type: ignore[override]
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Location:
        """The folder as it was written, or the URL; raises WarehouseError for a URL that is not supported."""
        if not is_url(value):
            return cast(Path, super().convert(value, param, ctx))
        return value if isinstance(value, StoreUrl) else store_url(value)


class RankListParam(click.ParamType[tuple[int, ...]]):
    """`3`, `0,2` or `0-3`: ranks, or steps."""

    def __init__(self, noun: str = "rank") -> None:
        self.noun = noun
        self.name = f"{noun.upper()}S"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The ranks; a usage error for anything else."""
        ranks: list[int] = []
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
            if match is None:
                wanted = f"a {self.noun} or a list of {self.noun}s such as 0,2 or 0-3"
                self.fail(f"{value!r} is not {wanted}", param, ctx)
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                self.fail(f"{part!r} is an empty range; write it as LOW-HIGH", param, ctx)
            ranks += range(first, last + 1)
        return tuple(ranks)


class LabelParam(click.ParamType[tuple[str, str]]):
    """`K=V`, a label."""

    name = "K=V"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Key and value; a usage error without `=` or key."""
        key, equals, text = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not a label; write K=V", param, ctx)
        return key.strip(), text


class NamesParam(click.ParamType[tuple[str, ...]]):
    """`name,-sum_ns`: names separated by commas."""

    name = "NAMES"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """The names; a usage error without any."""
        names = tuple(name.strip() for name in str(value).split(",") if name.strip())
        if not names:
            self.fail("expected names of columns, separated by commas", param, ctx)
        return names


class DurationParam(click.ParamType[float]):
    """`90s`, `30m`, `12h`, `90d` or `2w`, in seconds; a bare number is seconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds; a usage error for anything else."""
        ns = age_ns(str(value), default_unit="s")
        if ns is None:
            self.fail(f"{value!r} is not a duration; use 90s, 30m, 12h, 90d or 2w", param, ctx)
        return ns / 1e9


class SizeParam(click.ParamType[int]):
    """`500MB`, `4GB` or `1GiB`, in bytes; a bare number is bytes."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; a usage error for anything else."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?", str(value))
        if match is None:
            self.fail(f"{value!r} is not a size; use 500MB, 4GB or 1GiB", param, ctx)
        unit = (1024 if match[3] else 1000) ** " kMGT".index(match[2].replace("K", "k") or " ")
        return int(float(match[1]) * unit)


class RatioParam(click.ParamType[float]):
    """A ratio from 0 up to `most`, as a fraction or in percent."""

    name = "ratio"

    def __init__(self, most: float | None = None) -> None:
        self.most = most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The ratio as a fraction."""
        text = str(value).strip()
        try:
            ratio = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"{text!r} is not a ratio such as 0.01 or 1%", param, ctx)
        if not 0 <= ratio < float("inf") or self.most is not None and ratio > self.most:
            self.fail(f"{text!r} is not in the range from 0 to {self.most or 'any'}", param, ctx)
        return ratio
