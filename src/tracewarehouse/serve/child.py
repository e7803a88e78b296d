"""Calls in child processes, which are reused, and killed beyond limits: SQL of users, and tools of agents.

A child opens the warehouse for each call, so that it sees every run; SQL has the connection of `tw query`:
read-only, and limited to the files of the runs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from importlib import import_module
from queue import SimpleQueue
from subprocess import PIPE, Popen
from threading import Thread
from time import sleep
from typing import IO, TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import errors
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import QueryError, StoreUnavailable, TwError
from tracewarehouse.hints import cli_text
from tracewarehouse.limits import Killed, Limits, be_watched, begin_answer, can_watch, limited, watch
from tracewarehouse.location import Location, StoreUrl, location

if TYPE_CHECKING:
    from tracewarehouse.duck.engine import QueryLimitError
    from tracewarehouse.warehouse import Warehouse

_LIMITS: Final = Limits()
# For opening the warehouse, and for sending the answer.
_OTHER_S = 60.0
_SIZE_BYTES = 8  # of the number before each message
_MAIN = f"from {__name__} import main; main()"


class Request(Struct):
    """A function, as "module:name", to be called with the warehouse and with arguments as JSON."""

    function: str
    arguments: str
    place: str
    options: dict[str, str]
    limits: Limits
    most_bytes: int
    verify: bool


class Answer(Struct):
    """What the function returned, or its error: class, message, hint."""

    value: bytes = b""
    error: tuple[str, str, str | None] | None = None


class Statement(Struct, forbid_unknown_fields=True):
    """SQL of a user, on all runs and ranks or on some."""

    sql: str
    runs: list[str] | None = None
    ranks: list[int] | None = None
    max_rows: int = 100_000
    spreadsheet: bool = False
    format: Literal["json", "csv", "parquet"] = "json"


class LimitedCalls:
    """Calls functions in up to `processes` children, which are started when they are needed.

    Callers wait for a free child. A child that is killed is replaced at the next call.
    """

    def __init__(
        self, root: Location, processes: int = 2, most_bytes: int = 128 << 20, verify: bool = False
    ) -> None:
        self.root, self._most_bytes, self._verify = root, most_bytes, verify
        self._idle: list[_Child] = []
        self._free = asyncio.Semaphore(processes)

    async def query(self, statement: Statement, limits: Limits = _LIMITS) -> bytes:
        """The rows of a SELECT in its format; raises as `call`, and QueryError with DuckDB's message."""
        arguments = msgspec.json.encode((statement, limits)).decode()
        return await self.call(f"{__name__}:{queried.__name__}", arguments, limits)

    async def call(self, function: str, arguments: str, limits: Limits) -> bytes:
        """What a function of this package returns; if the call is abandoned, its child is killed.

        Args:
            function: Its module and name, as in "tracewarehouse.serve.mcp:answer".
            arguments: JSON.
            limits: Of memory and time; `max_rows` has no effect.

        Raises:
            QueryLimitError: It needs more, or returns more than `most_bytes`.
        """
        options = dict(self.root.options) if isinstance(self.root, StoreUrl) else {}
        place, most_bytes = str(self.root), self._most_bytes
        request = Request(function, arguments, place, options, limits, most_bytes, self._verify)
        async with self._free:
            child = self._idle.pop() if self._idle else _Child()
            try:
                async with asyncio.timeout(limits.timeout_s and limits.timeout_s + _OTHER_S):
                    data = await asyncio.to_thread(child.ask, msgspec.msgpack.encode(request))
            except TimeoutError:
                child.kill()
                raise _killed("time", limits) from None
            except BaseException:
                child.kill()
                raise
            if data is None:
                raise _killed(child.killed and child.killed.by, limits)
            self._idle.append(child)
        answered = msgspec.msgpack.decode(data, type=Answer)
        if answered.error is not None:
            raise _error(*answered.error)
        return answered.value

    def close(self) -> None:
        """Ends the children that run nothing; the next call starts new ones."""
        while self._idle:
            self._idle.pop().end()


class _Child:
    """A child process, started by the first request; its methods but `kill` are called by one thread."""

    def __init__(self) -> None:
        self._process: Popen[bytes] | None = None
        self._watcher: Thread | None = None
        self._is_unwanted = False
        self.killed: Killed | None = None

    def ask(self, request: bytes) -> bytes | None:
        """The answer; None if the child ended before, which is then cleared away."""
        process = self._process or self._started()
        if self._is_unwanted:
            process.kill()
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            _send(process.stdin, request)
        data = _receive(process.stdout)
        if data is None:
            self.end()
        return data

    def kill(self) -> None:
        """Ends a statement from another thread: `ask` then returns None."""
        self._is_unwanted = True
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Waits for the end of the process, which comes when its input is closed."""
        from tracewarehouse.temp_folders import delete_unused

        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        if self._watcher is not None:
            self._watcher.join()  # it may still look at the process
        process.wait()
        process.stdout.close()
        delete_unused()

    def _started(self) -> Popen[bytes]:
        is_watched = can_watch()
        messages, parent = os.pipe()
        # Not in the group of this process: a terminal sends Ctrl-C to all of it.
        self._process = Popen(
            [sys.executable, "-P", "-c", _MAIN, *([str(parent)] if is_watched else [])],
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=(parent,),
            start_new_session=True,
        )
        os.close(parent)
        if is_watched:
            self._watcher = Thread(target=self._watch, args=(self._process.pid, messages), daemon=True)
            self._watcher.start()
        else:
            os.close(messages)
        return self._process

    def _watch(self, process: int, messages: int) -> None:
        self.killed = watch(process, messages, ())
        os.close(messages)


def _killed(by: str | int | None, limits: Limits) -> QueryError:
    """Why the child of a statement has ended."""
    from tracewarehouse.duck.engine import memory_error, time_error

    if by == "memory":
        return memory_error(limits)
    if by == "time":
        return time_error(limits)
    return QueryError("the process of the query ended", "select fewer rows, or other functions")


def without_option(error: QueryLimitError) -> QueryLimitError:
    """The error for a caller who sets no limits: what to do instead of raising one."""
    hint = "select less: aggregate, add LIMIT, or select fewer runs or ranks"
    return type(error)(error.message.partition(", the limit of")[0], hint)


def _error(name: str, message: str, hint: str | None) -> TwError | StoreUnavailable:
    """An error of the child, by the name of its class."""
    from tracewarehouse.duck.engine import QueryLimitError

    if name == StoreUnavailable.__name__:
        return StoreUnavailable(message, hint)
    is_limit = name == QueryLimitError.__name__
    error_class: type[TwError] = getattr(errors, name, type(name, (TwError,), {}))
    error_type = QueryLimitError if is_limit else error_class
    error = error_type.__new__(error_type)
    TwError.__init__(error, message, hint)
    return error


def _send(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(_SIZE_BYTES) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    """A message; None at the end of the stream, also within a message."""
    size = int.from_bytes(head) if len(head := stream.read(_SIZE_BYTES)) == _SIZE_BYTES else None
    data = b"" if size is None else stream.read(size)
    return data if len(data) == size else None


def main() -> None:
    """The child: answers one request after the other until its parent closes the pipe or ends."""
    from tracewarehouse import slim_imports

    slim_imports.install()  # with numpy, which some functions need
    if sys.argv[1:]:
        be_watched(int(sys.argv[1]))
    requests: SimpleQueue[bytes | None] = SimpleQueue()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else is printed between answers
    Thread(target=_read, args=(requests,), daemon=True).start()
    catalog = Catalog.load()
    while (data := requests.get()) is not None:
        begin_answer()
        _send(answers, msgspec.msgpack.encode(answer(msgspec.msgpack.decode(data, type=Request), catalog)))


def _read(requests: SimpleQueue[bytes | None]) -> None:
    """Reads requests while a statement runs, which it ends if the parent is gone."""
    while (data := _receive(sys.stdin.buffer)) is not None:
        requests.put(data)
    requests.put(None)
    sleep(1)
    os._exit(1)


def answer(request: Request, catalog: Catalog) -> Answer:
    """Calls the function of a request; errors are part of the answer."""
    from tracewarehouse.duck.engine import OutOfMemory, QueryLimitError, memory_error
    from tracewarehouse.warehouse import Warehouse

    module, _, name = request.function.partition(":")
    limits, root = request.limits, location(request.place, request.options or None)
    failed: TwError | StoreUnavailable
    try:
        warehouse = Warehouse(root, catalog=catalog, verify=request.verify, read_only=True)
        with warehouse, limited(limits.memory_bytes, limits.timeout_s):
            value = getattr(import_module(module), name)(warehouse, request.arguments)
        if len(value) <= request.most_bytes:
            return Answer(value)
        failed = QueryLimitError(f"the result has more than {request.most_bytes >> 20} MiB")
    except (TwError, StoreUnavailable) as error:
        failed = error
    # Where memory runs out, a library may return an error without an exception.
    except (MemoryError, OutOfMemory, SystemError):
        failed = memory_error(limits)
    except Exception as error:
        failed = QueryError(f"unexpected {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    hint = failed.hint and cli_text(failed.hint)
    return Answer(error=(type(failed).__name__, cli_text(failed.message), hint))


def queried(warehouse: Warehouse, arguments: str) -> bytes:
    """The rows of a statement in its format, in the child."""
    statement, limits = msgspec.json.decode(arguments, type=tuple[Statement, Limits])
    if statement.runs is not None or statement.ranks is not None:
        warehouse = warehouse.select(statement.runs, statement.ranks)
    rows = warehouse.query(statement.sql, replace(limits, max_rows=statement.max_rows))
    if statement.format == "parquet":
        return rows.parquet()
    if statement.format == "csv":
        return "".join(rows.csv(spreadsheet=statement.spreadsheet)).encode()
    return rows.envelope("query").encode()
