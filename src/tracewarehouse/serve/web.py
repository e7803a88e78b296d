"""`tw serve`: pages of runs, comparisons, histories, analyses and SQL in a browser, and `/api`.

Nothing is written. Each request opens the warehouse, so that it sees every run, and answers from one version
of each run. Pages are kept by these versions; contracts and code are those with which the server started.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from hashlib import sha256
from socket import socket
from threading import Thread
from time import monotonic, sleep, time
from traceback import extract_tb
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
import uvicorn
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Param
from tracewarehouse.duck.engine import QueryLimitError
from tracewarehouse.errors import ParamError, StoreUnavailable, TwError, UnknownName
from tracewarehouse.hints import cli_text
from tracewarehouse.location import Location
from tracewarehouse.present.answers import change_row
from tracewarehouse.present.pages import assets, render_page, with_links
from tracewarehouse.present.plot.chart_for_result import measures, page_chart
from tracewarehouse.present.render.text import plural
from tracewarehouse.present.report.document import (
    Card,
    Figure,
    Page,
    Section,
    Verdict,
    distinct_labels,
    result_table,
)
from tracewarehouse.result import Result, contract_list, enveloped, error_object
from tracewarehouse.runs.recording import recording_verdict
from tracewarehouse.runs.rows import recording_limits
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.serve.child import LimitedCalls, Statement, without_option
from tracewarehouse.serve.security import Guard
from tracewarehouse.version import __version__
from tracewarehouse.warehouse import Warehouse

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]

_KEPT_BYTES = 64 << 20
_MOST_COMPUTED = 2  # pages at a time
_MOST_QUERY_ROWS, _MOST_QUERY_BYTES = 100_000, 1_000_000  # bytes of the body
_MOST_ROWS, _MOST_CHART_ROWS = 500, 5_000  # of an analysis on a page
_PATIENCE_S, _LOOK_S = 10.0, 3.0  # with slow clients; between looks at traces
_OF_GUARD = ("token", "retry")
_SUMMARY = ("time", "time_ns", "time_of", "steps", "severity", "finding")
_MEDIA_TYPES = {"json": "application/json", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
_FOOTER = f"tracewarehouse {__version__}"


class RunChanged(TwError):
    """The version of a run that a page shows does not exist anymore."""


class Given:
    """The parameters of a request; each is taken once, and what is left is an error."""

    def __init__(self, request: Request) -> None:
        self._values: dict[str, list[str]] = {}
        for key, value in request.query_params.multi_items():
            if value and key not in _OF_GUARD:
                self._values.setdefault(key, []).append(value)

    def many(self, name: str) -> list[str]:
        """All values."""
        return self._values.pop(name, [])

    def one(self, name: str, default: str | None = None) -> str:
        """The value. Raises ParamError if there are several, or none and no default."""
        values = self.many(name) or ([] if default is None else [default])
        if len(values) != 1:
            raise ParamError(f"{name} is given twice" if values else f"{name} is missing", f"give one {name}")
        return values[0]

    def numbers(self, name: str) -> list[int]:
        """The values as numbers. Raises ParamError."""
        texts = self.many(name)
        if not all(each.isdecimal() and len(each) < 10 for each in texts):
            raise ParamError(f"{name} is not a number", f"write {name}=3")
        return [int(text) for text in texts]

    def rest(self) -> dict[str, str]:
        """The other values, by name."""
        return {name: self.one(name) for name in list(self._values)}

    def end(self) -> None:
        """Raises ParamError if something is left."""
        for name in self._values:
            raise ParamError(f"unknown parameter: {name}", "/api lists the parameters")


class Field(NamedTuple):
    """A field of the form above a page, besides the parameters of an analysis."""

    name: str
    default: str = ""
    doc: str = ""
    choices: tuple[str, ...] = ()


class Bar(NamedTuple):
    """What is above a page: the runs that it shows, as `RUN@vN`, and the form that changes it."""

    runs: tuple[str, ...] = ()
    action: str = ""
    hidden: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field | Param, ...] = ()
    values: Mapping[str, str] = {}


_OF_ROWS = Field("rank", "all"), Field("sort", "-column")


class Kept:
    """Computed texts by what they show; each is computed once, and beyond a size the oldest go."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(_MOST_COMPUTED)
        self._texts: OrderedDict[Hashable, bytes] = OrderedDict()
        self._coming: dict[Hashable, asyncio.Task[bytes]] = {}

    async def get(self, key: Hashable, compute: Callable[[], str]) -> bytes:
        """The text of a key, computed in a thread if it is new."""
        if (text := self._texts.get(key)) is not None:
            self._texts.move_to_end(key)
            return text
        if key not in self._coming:
            self._coming[key] = asyncio.create_task(self._computed(key, compute))
        return await asyncio.shield(self._coming[key])

    async def _computed(self, key: Hashable, compute: Callable[[], str]) -> bytes:
        try:
            async with self.turns:
                text = (await in_thread(compute)).encode()
        finally:
            del self._coming[key]
        self._texts[key] = text
        while sum(map(len, self._texts.values())) > _KEPT_BYTES:
            self._texts.popitem(last=False)
        return text


async def in_thread(work: Callable[[], T]) -> T:
    """What the function returns; its thread does not keep the process from ending."""
    future: Future[T] = Future()

    def run() -> None:
        with suppress(InvalidStateError):  # nothing waits for it anymore
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is canceled when the client goes."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, disconnect = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    disconnect.add_done_callback(lambda _: task.cancel())
    try:
        return await task
    finally:
        disconnect.cancel()


def part_of(warehouse: Warehouse, arguments: Given) -> Warehouse:
    """The runs and ranks of a request; without any, the warehouse."""
    runs, ranks = arguments.many("run"), arguments.numbers("rank")
    if not (runs or ranks):
        return warehouse
    with _of_versions(runs):
        return warehouse.select(runs or None, ranks or None)


@contextmanager
def _of_versions(runs: Iterable[str]) -> Iterator[None]:
    """Raises RunChanged for a version that does not exist, as it did when a page named it."""
    try:
        yield
    except UnknownName as unknown:
        for run in runs:
            name, _, number = run.rpartition("@v")
            if number.isdecimal() and unknown.kind in ("run", "version") and unknown.name in (name, run):
                hint = "the list of runs has what there is now"
                raise RunChanged(f"{run} was replaced or removed", hint) from unknown
        raise


def analyzed(warehouse: Warehouse, name: str, arguments: Given) -> Result:
    """The rows of an analysis, with its parameters and the order of the request."""
    sort = arguments.many("sort")
    params: dict[str, Any] = arguments.rest()
    rows = warehouse.analyze(name, **params)
    return rows.sort(*sort) if sort else rows


def _diff(warehouse: Warehouse, arguments: Given) -> str:
    sides = arguments.one("base"), arguments.one("head")
    with _of_versions(sides):
        change = warehouse.diff(*sides).changes()
    return enveloped("diff", [change_row(change)])


def _history(warehouse: Warehouse, arguments: Given) -> Result:
    metric, runs = arguments.one("metric", "step_time"), arguments.many("run") or None
    return warehouse.history(metric, runs, by=arguments.many("by")).result


def _describe(warehouse: Warehouse, arguments: Given) -> str:
    catalog = warehouse.catalog
    return enveloped("describe", [catalog.description(catalog.get(arguments.one("name")))])


class Answer(NamedTuple):
    """An answer of `/api`, with its parameters beside `limit`, and what it is."""

    found: Callable[[Warehouse, Given], Result | str]
    params: str
    summary: str


ANSWERS: Mapping[str, Answer] = {
    "runs": Answer(lambda warehouse, _: warehouse.runs(), "", "The runs, oldest first."),
    "check": Answer(lambda *call: part_of(*call).check(), "run, rank", "Findings, most severe first."),
    "show": Answer(
        lambda warehouse, given: analyzed(part_of(warehouse, given), given.one("analysis"), given),
        "analysis, run, rank, sort, those of the analysis",
        "The rows of an analysis.",
    ),
    "diff": Answer(_diff, "base, head", "Two runs compared."),
    "history": Answer(_history, "metric, run, by", "A metric over recorded runs."),
    "whatif": Answer(
        lambda warehouse, given: part_of(warehouse, given).whatif("@latest", given.many("scale")),
        "run, rank, scale",
        "The step time after fixes.",
    ),
    "list": Answer(
        lambda warehouse, _: contract_list(warehouse.catalog.answerable()), "", "Analyses, views and tables."
    ),
    "describe": Answer(_describe, "name", "The contract of an analysis, view or table."),
}
_QUERY_PARAMS = "JSON: sql, runs, ranks, max_rows; format=csv or format=parquet in the address"


def _key(run: SelectedRun) -> tuple[str, str, str]:
    """What identifies the version of a run, also if a run of its name was removed before."""
    return run.selector, run.version.nonce, run.version.created_at


def _page(template: str, bar: Bar, **context: Any) -> str:
    """A page of the server itself."""
    return _linked("".join(render_page(template, **context)), bar)


def _linked(html: str, bar: Bar) -> str:
    return with_links(html, "".join(render_page("served_bar.html", bar=bar)))


def _failed(request: Request, error: Exception) -> Response:
    """The answer to a request that failed: JSON for programs and scripts, else a page."""
    status, failure = _failure(error)
    if request.url.path.startswith(("/api/", "/summary")):
        return Response(enveloped("api", error=failure), status, media_type="application/json")
    page = _head("Not shown", failure["message"] or "")
    return _html(_page("served.html", Bar(), page=page, kind="error", failure=failure), status)


def _failure(error: Exception) -> tuple[int, dict[str, str | None]]:
    """Status, and class, message and hint; of what is not expected, the place is printed for the owner."""
    if not isinstance(error, TwError | StoreUnavailable):
        place = extract_tb(error.__traceback__)[-1]  # no values, which may be secret
        sys.stderr.write(f"tw: unexpected {type(error).__name__} at {place.filename}:{place.lineno}\n")
        message, hint_text = "unexpected error", "tw serve prints where it was"
        return 500, {"class": type(error).__name__, "message": message, "hint": hint_text}
    kinds = {StoreUnavailable: 503, RunChanged: 409, UnknownName: 404}
    return next((kinds[kind] for kind in kinds if isinstance(error, kind)), 400), error_object(error)


def _head(title: str, subtitle: str = "") -> Mapping[str, object]:
    """What the frame of a page needs."""
    return {"title": title, "subtitle": subtitle, "sections": (), "facts": (), "footer": _FOOTER}


class Server:
    """The pages and answers of a warehouse, which is `shown` as its runs' origin.

    `place` is the option that selects it in commands.
    """

    def __init__(self, root: Location, verify: bool, place: str, shown: str) -> None:
        self.verify, self.place, self.shown = verify, place, shown
        self.catalog, self.kept = Catalog.load(), Kept()
        self.calls = LimitedCalls(root, verify=verify)

    def follow(self, moves: Iterator[tuple[Location, str] | None]) -> None:
        """Answers from the next warehouse and place when there is one; runs in a separate thread.

        Looking for one takes at most a third of the time.
        """
        while True:
            started = monotonic()
            if (move := next(moves)) is not None:
                self.calls.root, self.place = move
            sleep(max(_LOOK_S, 2 * (monotonic() - started)))

    def routes(self) -> list[Route]:
        """All addresses."""
        pages: dict[str, Handler] = {
            "/": self.list_page,
            "/report": self.report_page,
            "/history": self.history_page,
            "/analyses": self.analyses_page,
            "/show": self.show_page,
            "/sql": self.sql_page,
            "/api": self.api_page,
            "/summary": self.summary,
        }
        answers: dict[str, Handler] = {f"/api/{name}": partial(self.answer, name) for name in ANSWERS}
        return [
            *(Route(path, handler) for path, handler in (pages | answers).items()),
            Route("/api/query", self.query, methods=["POST"]),
            Route("/static/{name}", self.static),
        ]

    def opened(self) -> Warehouse:
        """The warehouse as it is now."""
        return Warehouse(self.calls.root, catalog=self.catalog, verify=self.verify, read_only=True)

    async def pinned(self, *selectors: str) -> tuple[SelectedRun, ...]:
        """The versions that selectors name now."""

        def find() -> tuple[SelectedRun, ...]:
            with self.opened() as warehouse, _of_versions(selectors):
                return tuple(warehouse.selection.one_run(selector).selected()[0] for selector in selectors)

        return await in_thread(find)

    async def answer(self, name: str, request: Request) -> Response:
        """An answer of `/api`; its tag saves sending the same text again."""
        arguments = Given(request)

        def compute() -> str:
            limit = arguments.numbers("limit")
            with self.opened() as warehouse:
                answered = ANSWERS[name].found(warehouse, arguments)
            arguments.end()
            if isinstance(answered, str):
                return answered
            return (answered.head(limit[0]) if limit else answered).envelope(name)

        async with nullcontext() if name == "runs" else self.kept.turns:
            text = (await in_thread(compute)).encode()
        tag = f'"{sha256(text).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(text, media_type="application/json", headers={"ETag": tag})

    async def query(self, request: Request) -> Response:
        """The rows of one SELECT, as JSON, CSV or Parquet."""
        arguments = Given(request)
        kind = arguments.one("format", "json")
        arguments.end()
        if kind not in _MEDIA_TYPES:
            raise ParamError(f"unknown format: {kind}", f"use {', '.join(_MEDIA_TYPES)}")
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise ParamError("the body is not JSON", "send Content-Type: application/json")
        body = await _body(request)
        try:
            statement = msgspec.json.decode(body, type=Statement)
        except msgspec.DecodeError as error:
            raise ParamError(f"the body is not valid: {error}", _QUERY_PARAMS) from error
        most_rows = max(0, min(statement.max_rows, _MOST_QUERY_ROWS))
        work = self.calls.query(replace(statement, format=kind, max_rows=most_rows))
        try:
            content = await while_connected(request, work)
        except QueryLimitError as error:
            raise without_option(error) from error
        headers = {} if kind == "json" else {"Content-Disposition": f'attachment; filename="query.{kind}"'}
        return Response(content, media_type=_MEDIA_TYPES[kind], headers=headers)

    async def static(self, request: Request) -> Response:
        """A style or script of the pages."""
        name = request.path_params["name"]
        if name not in assets():
            return Response("not found\n", 404, media_type="text/plain")
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        return Response(assets()[name], media_type=kind)

    async def summary(self, request: Request) -> Response:
        """What the list shows of a run: time of its steps, worst finding, recording."""
        arguments = Given(request)
        (run,) = await self.pinned(arguments.one("run"))
        arguments.end()

        def compute() -> str:
            with self.opened() as warehouse, _of_versions([run.selector]):
                part = warehouse.select(run.selector)
                row = part.report_runs().sections[0].runs[0]
                limits = recording_limits(part.selected())
            columns = {name: getattr(row, name) for name in _SUMMARY}
            return json.dumps({**columns, "recording": recording_verdict(limits)}, ensure_ascii=False)

        text = await self.kept.get(("summary", _key(run)), compute)
        return Response(text, media_type="application/json")

    async def list_page(self, request: Request) -> Response:
        """The runs, which the script reads and looks for again."""
        return await self.own_page("runs", _head("Runs", f"of {self.shown}"))

    async def report_page(self, request: Request) -> Response:
        """The report of a version of a run, or on two."""
        arguments = Given(request)
        named_runs = [arguments.one("run"), *arguments.many("head")[:1]]
        arguments.end()
        runs = await self.pinned(*named_runs)
        selectors = [run.selector for run in runs]
        if selectors != named_runs:
            return _to("/report", zip(("run", "head"), selectors, strict=False))

        def compute() -> str:
            with self.opened() as warehouse, _of_versions(selectors):
                page = warehouse.report(*selectors)
            return _linked("".join(replace(page, place=self.place).html()), Bar(tuple(selectors)))

        # A comparison has the history, too, which changes without these runs.
        age = int(time()) // 60 if len(runs) > 1 else 0
        return _html(await self.kept.get(("report", age, *map(_key, runs)), compute))

    async def show_page(self, request: Request) -> Response:
        """An analysis of runs: parameters, chart and table."""
        arguments = Given(request)
        contract = self.catalog.get(arguments.one("analysis"), kind="analysis")
        named_runs, ranks = arguments.many("run") or ["@latest"], arguments.numbers("rank")
        runs = await self.pinned(*named_runs)
        selectors = [run.selector for run in runs]
        if selectors != named_runs:
            others = [item for item in request.query_params.multi_items() if item[0] != "run"]
            return _to("/show", [*others, *(("run", each) for each in selectors)])
        values, measure = dict(request.query_params), arguments.one("chart", "") or None

        def compute() -> str:
            with self.opened() as warehouse, _of_versions(selectors):
                rows = analyzed(warehouse.select(selectors, ranks or None), str(contract.ref), arguments)
            page = replace(_shown(rows, contract, selectors, measure), place=self.place)
            hidden = ("analysis", contract.name), *(("run", selector) for selector in selectors)
            drawn = Field("chart", "column", choices=tuple(each.name for each in measures(contract.columns)))
            fields: tuple[Field | Param, ...] = (*contract.params, *_OF_ROWS, drawn)
            return _linked("".join(page.html()), Bar(tuple(selectors), "/show", hidden, fields, values))

        key = ("show", *sorted(request.query_params.multi_items()), *map(_key, runs))
        return _html(await self.kept.get(key, compute))

    async def history_page(self, request: Request) -> Response:
        """The history of a metric, with its changes; without results, how to record them."""
        arguments = Given(request)
        metric = arguments.one("metric", "step_time")
        by = [label for each in arguments.many("by") for label in each.split(",")]
        arguments.end()
        fields, values = (Field("metric"), Field("by", "label.K")), {"metric": metric, "by": ",".join(by)}
        bar = Bar(action="/history", fields=fields, values=values)

        def compute() -> str:
            try:
                with self.opened() as warehouse:
                    return _linked(warehouse.history(metric, by=by).html(), bar)
            except TwError as error:
                page = _head("History", metric)
                return _page("served.html", bar, page=page, kind="error", failure=_failure(error)[1])

        async with self.kept.turns:
            return _html(await in_thread(compute))

    async def analyses_page(self, request: Request) -> Response:
        """All analyses, for a run."""
        arguments = Given(request)
        run = arguments.many("run")[:1]
        arguments.end()
        rows = sorted((each.group or "", each.name, each.summary) for each in self.catalog.analyses())
        head = _head("Analyses", f"of {run[0]}" if run else "of the latest run")
        return await self.own_page("analyses", head, tuple(run), rows=rows, run=run)

    async def sql_page(self, request: Request) -> Response:
        """The editor; the query is in the part of the address that is not sent."""
        head = _head("SQL", "One SELECT on tables, views and analyses of all runs; read-only")
        names = [(contract.kind, contract.name, contract.summary) for contract in self.catalog.answerable()]
        return await self.own_page("sql", head, names=names)

    async def api_page(self, request: Request) -> Response:
        """What `/api` answers, with the parameters of each analysis."""
        rows = [(f"GET /api/{name}", each.params, each.summary) for name, each in ANSWERS.items()]
        rows.append(("POST /api/query", _QUERY_PARAMS, "The rows of one SELECT."))
        for analysis in self.catalog.analyses():
            params = ", ".join(f"{p.name} ({p.type}, default {p.default})" for p in analysis.params)
            rows.append((f"GET /api/show?analysis={analysis.name}", params, analysis.summary))
        head = _head("API", "The JSON objects of --json; curl -H 'Authorization: Bearer TOKEN'")
        return await self.own_page("api", head, rows=rows)

    async def own_page(
        self, kind: str, page: Mapping[str, object], runs: tuple[str, ...] = (), **more: object
    ) -> Response:
        """A page that no file has, which is the same as long as the server runs."""
        compute = partial(_page, "served.html", Bar(runs), page=page, kind=kind, **more)
        return _html(await self.kept.get((kind, *runs), compute))


def _html(text: str | bytes, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html")


def _to(path: str, values: Iterable[tuple[str, str]]) -> Response:
    return RedirectResponse(f"{path}?{urlencode(list(values))}", 303)


def _shown(result: Result, contract: Contract, runs: Sequence[str], measure: str | None) -> Page:
    """The page of an analysis: what is to be said about its rows, a chart, and the first rows."""
    command = f"tw show {contract.name} {' '.join(f'--run {each}' for each in runs)}"
    table = result_table(result, contract.name, "Rows", command, most=_MOST_ROWS)
    cards = tuple(_charts(result, contract, measure))
    skipped = Counter(rank.reason for rank in result.skipped)
    notes = [f"{plural(count, 'rank')} skipped: {cli_text(why)}" for why, count in skipped.items()]
    notes += map(cli_text, result.notices)
    section = Section("rows", "Chart" if cards else "Rows", "", cards, (table,), statements=tuple(notes))
    facts = ("Analysis", str(contract.ref)), ("Runs", ", ".join(runs))
    answer = Verdict(f"{plural(len(result), 'row')} of {', '.join(runs)}")
    return Page(contract.name, contract.name, contract.summary, facts, answer, (), (section,), _FOOTER, ())


def _charts(result: Result, contract: Contract, measure: str | None) -> Iterator[Card]:
    """The chart, if there is something to draw: of all rows, or of some, which it says."""
    interval = -(-len(result) // _MOST_CHART_ROWS) or 1
    is_ranking = any(key.startswith("-") for key in contract.order)
    sample = result.table if is_ranking else result.table.take(list(range(0, len(result), interval)))
    with suppress(TwError):
        rows = replace(result, table=sample).head(_MOST_CHART_ROWS).rows()
        figure = Figure(*page_chart(contract, rows, _chart_labels, measure))
        note = f"Of the first {len(rows):,} rows." if is_ranking else f"Of every {interval:,}th row."
        yield Card("", note if interval > 1 else "", (figure,))


def _chart_labels(names: list[str], places: list[str]) -> list[str]:
    """Places and short names: the ends of long labels are not shown."""
    unique = list(dict.fromkeys(names))
    short = dict(zip(unique, distinct_labels(unique) if any(unique) else unique, strict=True))
    return [f"{place} {short[name]}".strip() for place, name in zip(places, names, strict=True)]


async def _body(request: Request) -> bytes:
    """The body of a request, which has to be short and arrive soon."""
    body = bytearray()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_QUERY_BYTES:
                    raise ParamError("the query has more than 1 MB")
    except TimeoutError:
        raise ParamError(f"the body did not arrive within {_PATIENCE_S:.0f} s") from None
    return bytes(body)


class _Patient(H11Protocol):
    """Closes a connection whose request does not arrive, or whose answer is not read, for some time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look(self, before: object) -> None:
        unread = self.transport.get_write_buffer_size()
        is_idle = self.cycle is None or self.cycle.response_complete
        if (is_idle or unread) and before == (self.cycle, unread):
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(_PATIENCE_S, self._look, (self.cycle, unread))


def serve(server: Server, listening: socket, token: str, hosts: frozenset[str]) -> None:
    """Answers requests at a socket until the process is interrupted."""
    failed = dict.fromkeys((TwError, StoreUnavailable, Exception), _failed)
    app = Starlette(routes=server.routes(), exception_handlers=failed)
    config = uvicorn.Config(
        Guard(app, token, hosts),
        http=_Patient,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    try:
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run([listening])
    finally:
        server.calls.close()
