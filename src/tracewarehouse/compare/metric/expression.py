"""Metrics as text, such as `p95(step_time)` or `kernel_summary.total_ns`, and the work that they are per."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from statistics import fmean, median
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import BY_STEP, Column, Contract
from tracewarehouse.errors import ExpressionError, ParamError, TwError, UnknownName
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from tracewarehouse.storage.model import RunVersion


class Metric(Struct, frozen=True):
    """A measure of an analysis, with filters on other columns of its rows."""

    text: str
    contract: Contract
    column: Column
    filters: tuple[tuple[Column, object], ...] = ()
    # A run without a matching row has the sum 0, instead of no value.
    absent_is_zero: bool = False

    def __str__(self) -> str:
        return self.text

    @property
    def has_steps(self) -> bool:
        """Whether its rows have steps, and no filter selects one."""
        return "step" in self.contract.grain and not any(column.name == "step" for column, _ in self.filters)

    @property
    def measures_steps(self) -> bool:
        """Whether it measures entire steps, not parts of them: the contract has one row per step."""
        other_keys = set(self.contract.grain) - {"run_id", "rank", "device", "step"}
        return self.has_steps and not other_keys and self.column.aggregate == "sum"

    def grows(self, by_step: bool) -> bool:
        """Whether it grows with the length of the recording: a sum that is not of steps."""
        of_steps = by_step or any(column.name == "step" for column, _ in self.filters)
        return self.column.adds_up and not of_steps and self.contract.covers != "rank"

    def params(self, by_step: bool) -> dict[str, object]:
        """The parameters of its analysis."""
        return {BY_STEP: by_step} if self.contract.steps_optional else {}

    def per(self, by_step: bool, unit: str | None = None) -> str:
        """What one value refers to, in words; `unit` is what a sum that grows is divided by.

        A gate on entire steps compares their mean instead.
        """
        if self.column.aggregate != "sum":
            return "of complete steps" if by_step else "of the run"
        if self.measures_steps and by_step:
            return "of the median complete step, mean of its ranks"
        return f"per {unit} and rank" if unit else "per complete step and rank" if by_step else "per rank"


class RunValue(Struct, frozen=True, gc=False):
    """A metric of one run; `value` and `mean` are None if it is unknown, for the `reason`.

    `value` is the metric as defined; `mean` the mean over ranks and complete steps, the same except for a
    measure of entire steps. `steps`: each complete step as the mean of its ranks, in order; empty without
    steps. `rows` of the analysis were used.
    """

    run: str
    value: float | None = None
    mean: float | None = None
    steps: tuple[float, ...] = ()
    ranks: int = 0
    rows: int = 0
    reason: str | None = None


class Measured(Struct, frozen=True):
    """A metric of some runs in time order; `per` is what one value refers to."""

    metric: Metric
    per: str
    runs: tuple[RunValue, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """The known values."""
        return tuple(run.value for run in self.runs if run.value is not None)

    @property
    def median(self) -> float | None:
        """The median of the values; None if no run has one."""
        return median(self.values) if self.values else None

    @property
    def mean(self) -> float | None:
        """The mean of the runs' means; None if no run has one."""
        means = [run.mean for run in self.runs if run.mean is not None]
        return fmean(means) if means else None

    @property
    def reason(self) -> str | None:
        """Why runs have no value; None if all have one."""
        return ", ".join(sorted({run.reason for run in self.runs if run.reason})) or None


SHORT = {"step_time": "step_summary.period_ns"}

_WORD = late_regex(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = late_regex(r"@([0-9]{1,9})")
_VALUE = late_regex(r"[^,\]]*")
_ABSENT = "absent"
_NOT_MEASURES = (None, "id", "ts", "depth")
_EXAMPLES = "step_time, temporal_breakdown.idle_ns, kernel_summary.sum_ns[kind=communication]"


def parse_metric(text: str, catalog: Catalog) -> Metric:
    """The metric in a text; raises ParamError or UnknownName with the position of the error."""
    reader = _Reader(text, catalog, 0)
    metric = reader.metric()
    if reader.at < len(text):
        raise reader.error("unexpected text after the metric")
    return metric


def parse_metric_prefix(text: str, catalog: Catalog, start: int = 0) -> tuple[Metric, int]:
    """The metric at `start` of the text, and where it ends; raises like `parse_metric`."""
    reader = _Reader(text, catalog, start)
    return reader.metric(), reader.at


class Reader:
    """The base of recursive-descent parsers: a text, the position in it, and errors that name both."""

    kind, examples = "metric", _EXAMPLES
    failure: type[ParamError] = ExpressionError

    def __init__(self, text: str, at: int = 0) -> None:
        self.text, self.at = text, at

    def accept(self, token: str) -> bool:
        """Whether the text goes on with the token, which is then read."""
        accepted = self.text.startswith(token, self.at)
        self.at += len(token) if accepted else 0
        return accepted

    def quoted(self) -> str | None:
        """The text in quotes that follows; None if there is no quote."""
        start, quote = self.at, self.text[self.at : self.at + 1]
        if not quote or quote not in "'\"":
            return None
        end = self.text.find(quote, start + 1)
        if end < 0:
            raise self.error("unterminated quote")
        self.at = end + 1
        return self.text[start + 1 : end]

    def position(self, at: int) -> str:
        """The place of an error."""
        place = f"character {at + 1}" if at < len(self.text) else "end"
        return f"{self.kind} {self.text!r}, {place}"

    def error(self, what: str, hint: str | None = None, at: int | None = None) -> ParamError:
        """An error at `at`, or at the position."""
        position = self.position(self.at if at is None else at)
        return self.failure(f"{position}: {what}", hint or f"for example {self.examples}")


class _Reader(Reader):
    def __init__(self, text: str, catalog: Catalog, at: int) -> None:
        super().__init__(text, at)
        self.catalog = catalog

    def metric(self) -> Metric:
        start = self.at
        contract, column = self.measure()
        filters = self.filters(contract, column) if self.accept("[") else {}
        absent_is_zero = filters.pop(None, None) is not None
        filters_by_column = tuple((column, value) for column, value in filters.items() if column is not None)
        return Metric(self.text[start : self.at], contract, column, filters_by_column, absent_is_zero)

    def measure(self) -> tuple[Contract, Column]:
        start = self.at
        word = self.word("an analysis")
        if word in SHORT and not self.text.startswith((".", "@"), self.at):
            word, _, column = SHORT[word].partition(".")
            contract = self.catalog.get(word, kind="analysis")
            return contract, next(measured for measured in contract.columns if measured.name == column)
        contract = self.contract(word, start)
        if not self.accept("."):
            names = ", ".join(measured.name for measured in measures(contract)) or "no measure"
            raise self.error("expected `.` and a column", f"{contract.name} has {names}")
        start = self.at
        by_name = {column.name: column for column in measures(contract)}
        word = self.word("a column")
        if word not in by_name:
            raise self.unknown(f"measure of {contract.ref}", word, by_name, start)
        return contract, by_name[word]

    def contract(self, word: str, start: int) -> Contract:
        version = _VERSION.match(self.text, self.at)
        self.at = version.end() if version else self.at
        try:
            return self.catalog.get(word, int(version[1]) if version else None, kind="analysis")
        except UnknownName as error:
            if self.text.startswith("(", self.at):
                hint = "percentiles are columns of analyses: kernel_summary.p99_ns[kind=communication]"
                raise self.error("a metric has no functions", hint, at=start) from None
            analyses = [analysis.name for analysis in self.catalog.analyses()]
            if error.kind == "version":
                raise self.at_position(error, start) from None
            raise self.unknown("analysis", word, {*analyses, *SHORT} - {word}, start) from None

    def filters(self, contract: Contract, measure: Column) -> dict[Column | None, object]:
        """`kind=…,name=…,absent=0]`; the key of `absent` is None."""
        by_name = {column.name: column for column in filterable(contract)}
        filters: dict[Column | None, object] = {}
        opened = self.at - 1
        if "]" not in self.text[opened:]:
            raise self.error("this `[` is not closed", at=opened)
        while True:
            start = self.at
            word = self.word("a column to filter by")
            if word == _ABSENT and word not in by_name:
                filters[None] = self.absent(measure, start)
                if self.accept("]"):
                    return filters
                raise self.error(f"expected `]` after {_ABSENT}=0")
            if word not in by_name:
                raise self.unknown(f"column of {contract.ref} to filter by", word, by_name, start)
            if by_name[word] in filters:
                raise self.error(f"duplicate filter: {word}", at=start)
            if not self.accept("="):
                raise self.error("expected `=`")
            filters[by_name[word]] = self.value(by_name[word])
            if self.accept("]"):
                return filters
            if not self.accept(","):
                raise self.error("expected `,` or `]`")

    def absent(self, measure: Column, start: int) -> object:
        """`=0`: sums and counts of rows that do not exist are 0."""
        if measure.aggregate != "sum":
            raise self.error(f"{_ABSENT}=0 applies to sums and counts, not to {measure.name}", at=start)
        if not self.accept("=0"):
            raise self.error(f"expected `=0` after {_ABSENT}")
        return 0

    def value(self, column: Column) -> object:
        start = self.at
        text = self.quoted()
        if text is None:
            text = self.plain()
            if text == "null" and column.null:
                return None
        try:
            return _cast(column.type, text)
        except ValueError:
            raise self.error(f"{column.name} expects {_TYPE_NAMES[column.type]}", at=start) from None

    def plain(self) -> str:
        """Text up to the next `,` or `]`."""
        match = _VALUE.match(self.text, self.at)
        if match is None or not match[0].strip():
            raise self.error("expected a value", 'quote a text with , or ]: name="f<int, 4>"')
        self.at = match.end()
        return match[0].strip()

    def word(self, what: str) -> str:
        match = _WORD.match(self.text, self.at)
        if match is None:
            raise self.error(f"expected {what}")
        self.at = match.end()
        return match[0]

    def unknown(self, kind: str, name: str, known: Iterable[str], at: int) -> UnknownName:
        return self.at_position(UnknownName(kind, name, known), at)

    def at_position(self, error: UnknownName, at: int) -> UnknownName:
        return at_position(error, self.position(at))


def at_position(error: UnknownName, position: str) -> UnknownName:
    """The error of a name in an expression, with its position."""
    error.message = f"{position}: {error.message}"
    error.args = (error.message,)
    error.exit_code = ExpressionError.exit_code
    return error


def filterable(contract: Contract) -> tuple[Column, ...]:
    """The columns that rows can be filtered by; runs are selected otherwise."""
    return tuple(
        column
        for column in contract.columns
        if column.name != "run_id" and column.type in _TYPE_NAMES and not _is_measure(column)
    )


def measures(contract: Contract) -> tuple[Column, ...]:
    """The columns that a metric can measure."""
    return tuple(column for column in contract.columns if _is_measure(column))


def _is_measure(column: Column) -> bool:
    return column.unit not in _NOT_MEASURES and column.type in ("BIGINT", "INTEGER", "DOUBLE")


_TYPE_NAMES = {
    "VARCHAR": "text",
    "INTEGER": "an integer",
    "BIGINT": "an integer",
    "BOOLEAN": "true or false",
}


def _cast(type_: str, text: str) -> object:
    if type_ == "VARCHAR":
        return text
    if type_ == "BOOLEAN":
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    return int(text)


WORK_LABELS = {"sample": "samples_per_step", "token": "tokens_per_step"}
_LABEL = "label."
_NORMALIZED = ("ns", "bytes")  # units of measures that grow with the work of a step


class WorkUnit(Struct, frozen=True):
    """What times and sizes are per: its name, and the label of a run that counts them in a step of a rank."""

    name: str
    label: str

    @classmethod
    def parse(cls, normalize: str) -> WorkUnit:
        """`sample`, `token` or `label.K`; raises ExpressionError for anything else."""
        label = WORK_LABELS.get(normalize) or normalize.removeprefix(_LABEL)
        if normalize not in WORK_LABELS and (not normalize.startswith(_LABEL) or not label):
            raise ExpressionError(f"unknown normalize {normalize!r}", "use sample, token or label.K")
        return cls(normalize if normalize in WORK_LABELS else f"unit of {label}", label)

    def of(self, version: RunVersion) -> Fraction:
        """The work of a step of a run; raises TwError without the label, or if it is not above 0."""
        label_text = version.labels.get(self.label)
        try:
            value = Fraction(label_text) if label_text is not None else None
        except (ValueError, ZeroDivisionError):
            value = Fraction(0)
        if value is not None and value > 0:
            return value
        run, label = version.run, self.label
        problem = f"lacks the label {label}" if label_text is None else f"has the label {label}={label_text}"
        requirement = "" if label_text is None else ", not a number above 0"
        hint = hints.Hint(f'wh.label("{run}", {{"{label}": "32"}})', f"tw label {run} {label}=32")
        message = hints.fill("set what a step of a rank processes: {}", hint)
        raise TwError(f"run {run} {problem}{requirement}", message)


def is_normalized(metric: Metric) -> bool:
    """Whether the metric grows with the work of a step: a time or a size."""
    return metric.column.unit in _NORMALIZED


def per_unit(measured: Measured, work: Mapping[str, Fraction]) -> Measured:
    """The metric per unit of the work of each run, if it is a time or a size."""
    if not is_normalized(measured.metric):
        return measured
    return replace(measured, runs=tuple(_per_unit(run, work[run.run]) for run in measured.runs))


def _per_unit(run: RunValue, work: Fraction) -> RunValue:
    value, mean = (None if total is None else float(total / work) for total in (run.value, run.mean))
    return replace(run, value=value, mean=mean, steps=tuple(float(step / work) for step in run.steps))
