"""The docstrings of the Python API: complete, in one layout, and with examples that run."""

from __future__ import annotations

import builtins
import doctest
import inspect
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cli_runner
import tracewarehouse as tw
from conftest import ROOT
from tracewarehouse import errors, training_log
from tracewarehouse.analyses import docstring
from tracewarehouse.compare.diff.diff import Diff
from tracewarehouse.compare.history.history import History
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck.engine import QueryLimitError
from tracewarehouse.errors import TwError
from tracewarehouse.present.report.document import Page

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Example")
CLASSES = (tw.Warehouse, tw.Result, Diff, History, Page)
ERRORS = vars(errors) | vars(builtins) | {"QueryLimitError": QueryLimitError}
# The run may be new.
NEW_NAMES = (
    "Warehouse.ingest",
    "tw.trace_handler",
    "Result.of_run",
)
TRACES = ROOT / "tests" / "data" / "first-steps"


def public() -> Iterator[tuple[str, Any]]:
    """The name of each public function, class, method and property, and what has its docstring."""
    for name in ("open", "engine", "simulate", "trace_handler", "verdict", "Limits"):
        yield f"tw.{name}", getattr(tw, name)
    for owner in CLASSES:
        yield owner.__name__, owner
        for name in dir(owner):
            member = inspect.getattr_static(owner, name)
            if name[0] != "_" and (inspect.isfunction(member) or isinstance(member, property)):
                yield f"{owner.__name__}.{name}", member


PUBLIC = dict(public())


def sections(doc: str) -> dict[str, list[str]]:
    """The lines of each section of a docstring; those before the first section are `Summary`."""
    found: dict[str, list[str]] = {"Summary": []}
    for line in doc.splitlines():
        heading = re.fullmatch(r"([A-Z]\w+):", line)
        if heading:
            assert heading[1] not in found, f"{heading[1]} twice"
            found[heading[1]] = []
        else:
            found[list(found)[-1]].append(line)
    return found


def names(lines: list[str]) -> list[str]:
    """What the items of a section are about: `NAME: …`, continued with a larger indent."""
    return [line.split(":")[0].strip() for line in lines if re.match(r" {4}\S", line)]


def problems(documented: Any) -> Iterator[str]:
    """What a docstring lacks."""
    parts = sections(inspect.getdoc(documented) or "")
    summary = parts.pop("Summary")
    if not summary or not summary[0].endswith(".") or summary[1:2] not in ([], [""]):
        yield "no summary of one sentence"
    if not any(line.startswith("    >>> ") for line in parts.get("Example", ())):
        yield "no example"
    if list(parts) != [each for each in SECTIONS if each in parts]:
        yield f"sections {list(parts)}"
    if not isinstance(documented, property):
        known = getattr(documented, "__struct_fields__", None) or inspect.signature(documented).parameters
        listed = names([*parts.get("Args", []), *parts.get("Attributes", [])])
        yield from (f"no parameter {each}" for each in listed if each not in known)
    for each in names(parts.get("Raises", [])):
        if not (isinstance(ERRORS.get(each), type) and issubclass(ERRORS[each], Exception)):
            yield f"no error {each}"


def test_every_public_function_has_a_complete_docstring() -> None:
    found = {name: list(problems(documented)) for name, documented in PUBLIC.items()}
    assert {name: lacking for name, lacking in found.items() if lacking} == {}
    assert len(PUBLIC) > 75


def without_example(count: int) -> None:
    """Says what it does.

    Args:
        number: How many.

    Raises:
        NoSuchError: Never.
    """


def test_what_a_docstring_lacks_is_found() -> None:
    assert list(problems(without_example)) == ["no example", "no parameter number", "no error NoSuchError"]


@contextmanager
def profile(on_trace_ready: Callable[[Any], None]) -> Iterator[None]:
    """The profiler of PyTorch, as far as the examples use it: it exports a stored trace."""
    yield
    source = TRACES / "rank0.json.gz"
    on_trace_ready(SimpleNamespace(export_chrome_trace=lambda path: shutil.copy(source, path)))


@pytest.fixture
def few_rules(only_rules: Callable[..., None], short_pages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks, also those of `tw`, and reports take less time."""
    only_rules("input_bound")
    monkeypatch.setattr(training_log, "subprocess", SimpleNamespace(run=in_this_process, DEVNULL=None))


def in_this_process(command: list[str], **_: Any) -> SimpleNamespace:
    """Runs `python -m tracewarehouse …` without a process."""
    done = cli_runner.tw(*command[3:])
    return SimpleNamespace(returncode=done.code, stdout=done.out, stderr=done.err)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with traces and a warehouse of two recorded runs, and a trace in its inbox."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(TRACES, folder / "traces")
    wh = tw.open(folder / "warehouse")
    for run in ("fp8-off", "fp8-on"):
        wh.ingest(folder / "traces", run=run, jobs=1)
        wh.derive("wait_attribution", run)  # as `check` would
    wh.record(analyses=["step_summary", "kernel_summary"])
    with profile(on_trace_ready=tw.trace_handler(folder / "warehouse", run="nightly")):
        pass
    return folder


@cache
def shared(folder: Path) -> tw.Warehouse:
    """The warehouse of all examples that only read: what they have in common is computed once."""
    return tw.open(folder / "warehouse")


@cache
def report(folder: Path) -> Page:
    """A report, on many runs: it takes the least time."""
    return shared(folder).report_runs()


@pytest.fixture
def given(
    folder: Path,
    few_rules: None,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """The names that an example uses; those that write work on a copy of the folder."""
    name = getattr(request, "param", "")
    writes = hasattr(PUBLIC.get(name), "__wrapped__") or name in ("tw.trace_handler", "tw.simulate")
    monkeypatch.chdir(shutil.copytree(folder, tmp_path / "copy") if writes else folder)
    wh = tw.open("warehouse") if writes else shared(folder)
    found = {"tw": tw, "wh": wh, "Path": Path, "train": lambda: None}
    found["torch"] = SimpleNamespace(profiler=SimpleNamespace(profile=profile))
    if name.startswith("Result."):
        found["result"] = wh.select("fp8-on", ranks=0).kernel_summary()
    if name.startswith("Page"):
        found["page"] = report(folder)
    return found


class Checker(doctest.OutputChecker):
    """An example without output may print anything."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


def failures(doc: str, given: dict[str, Any], name: str) -> str:
    """What differs when the examples of a docstring run."""
    test = doctest.DocTestParser().get_doctest(doc, given, name, None, 0)
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(Checker(), verbose=False, optionflags=flags).run(test, out=said.append)
    return "".join(said)


@pytest.mark.parametrize(("name", "given"), [(name, name) for name in PUBLIC], indirect=["given"])
def test_example(name: str, given: dict[str, Any]) -> None:
    assert failures(inspect.getdoc(PUBLIC[name]) or "", given, name) == ""


def test_a_wrong_example_fails(given: dict[str, Any]) -> None:
    assert "Expected:\n    3" in failures(">>> 1 + 1\n3", given, "sum")
    assert "ZeroDivisionError" in failures(">>> 1 / 0", given, "ratio")


OF_RUNS = [
    name
    for name, documented in PUBLIC.items()
    if inspect.isfunction(documented)
    and {"run", "runs", "base"} & {*inspect.signature(documented).parameters}
    and name not in NEW_NAMES
]


@pytest.mark.parametrize("name", OF_RUNS)
def test_the_error_of_an_unknown_run_is_documented(name: str, folder: Path) -> None:
    method = PUBLIC[name]
    known = inspect.signature(method).parameters
    needed = [each.name for each in known.values() if each.default is each.empty and each.name != "self"]
    arguments = dict.fromkeys(needed, "step_time") | {
        each: "no-such-run" for each in ("run", "runs", "base") if each in known
    }
    with pytest.raises(TwError) as raised:
        method(tw.open(folder / "warehouse"), **arguments)
    documented = names(sections(inspect.getdoc(method) or "")["Raises"])
    assert type(raised.value).__name__ in documented


def test_every_analysis_has_the_same_layout() -> None:
    for contract in Catalog.load().analyses():
        parts = sections("\n".join(docstring(contract)))
        assert [*parts][1:] == (["Args"] if contract.params else []) + ["Returns", "Example"], contract.name
        assert names(parts.get("Args", [])) == [each.name for each in contract.params]
        columns = [name.partition(" ")[0] for name in names(parts["Returns"])]
        assert columns == [each.name for each in contract.columns]


@pytest.mark.parametrize("name", ["kernel_summary", "key_averages", "temporal_breakdown"])
def test_example_of_an_analysis(name: str, given: dict[str, Any]) -> None:
    doc = getattr(given["wh"], name).__doc__
    assert f">>> wh.{name}()" in doc
    assert failures(doc, given, name) == ""
