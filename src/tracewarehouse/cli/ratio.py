"""Option values that are ratios: `0.01`, or `1%`."""

from __future__ import annotations

import click


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
