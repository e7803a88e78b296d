"""The choice of an engine, and what a worker on another machine must have."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

import tracewarehouse as tw
from tracewarehouse import engines
from tracewarehouse.engines import (
    LocalEngine,
    Peer,
    RayEngine,
    TaskFailure,
    TaskProgress,
    WorkerDied,
    advice,
    opened,
    run_task,
)
from tracewarehouse.errors import EngineError, MissingExtra, UnknownName, WorkerMismatch
from tracewarehouse.hints import cli_text
from tracewarehouse.storage.store import Store


@dataclass(frozen=True)
class Square:
    number: int

    def run(self, progress: TaskProgress) -> int:
        return self.number**2 if self.number >= 0 else int("negative")


def test_an_engine_is_made_by_name() -> None:
    with tw.engine("local", jobs=3) as engine:
        assert (engine.name, engine.slots) == ("local", 3)
    with pytest.raises(UnknownName, match="unknown engine: dask"):
        tw.engine("dask")


def test_an_engine_of_the_caller_stays_open() -> None:
    closed: list[str] = []

    class Watched(LocalEngine):
        def close(self) -> None:
            closed.append(self.name)

    with Watched(1) as mine:
        with opened(mine) as engine:
            assert engine is mine
        assert closed == []
    assert closed == ["local"]


@pytest.mark.parametrize("name", ["ray", "spark"])
def test_a_cluster_that_is_not_installed_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra) as raised:
        tw.engine(name)
    assert raised.value.hint == f"pip install 'tracewarehouse[{name}]'"


def test_spark_without_java_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    with tw.engine("spark") as engine, pytest.raises(EngineError, match="needs Java"):
        list(engine.run([Square(1)], lambda *_: None))


@pytest.mark.parametrize(
    ("field", "value"), [("tracewarehouse", "9.9"), ("contracts", "0" * 12), ("duckdb", "1.0")]
)
def test_a_worker_with_other_versions_refuses_a_task(field: str, value: str) -> None:
    here = Peer.here()
    driver = replace(here, **{field: value})
    found = run_task(driver, b"never unpickled")
    assert isinstance(found, WorkerMismatch)
    assert f"{field} {getattr(here, field)} instead of {value}" in found.message
    assert isinstance(pickle.loads(pickle.dumps(found)), WorkerMismatch)


def test_a_worker_with_the_same_versions_runs_it() -> None:
    assert run_task(Peer.here(), pickle.dumps(Square(3))) == 9
    failure = run_task(Peer.here(), pickle.dumps(Square(-1)))
    assert isinstance(failure, TaskFailure) and failure.message.startswith("ValueError")


def test_the_other_engine_is_recommended_where_it_pays() -> None:
    assert "--engine local is faster" in cli_text(advice("ray", 9_999_999) or "")
    assert advice("ray", 10_000_000) is None
    assert advice("local", 99_999_999) is None
    assert "--engine ray spreads them" in cli_text(advice(None, 100_000_000) or "")


def test_a_task_holds_neither_salt_nor_versions(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    sent = pickle.dumps(store)
    assert store.salt not in sent and store.salt.hex().encode() not in sent
    received = pickle.loads(sent)
    assert (received.salt, received.id, received.tool) == (store.salt, store.id, store.tool)


def test_a_task_for_a_replaced_warehouse_fails(tmp_path: Path) -> None:
    sent = pickle.dumps(Store.open_or_create(tmp_path / "warehouse"))
    (tmp_path / "warehouse").rename(tmp_path / "old")
    Store.open_or_create(tmp_path / "warehouse")
    with pytest.raises(tw.TwError, match="was replaced by another warehouse"):
        pickle.loads(sent)


def test_making_an_engine_starts_nothing() -> None:
    pytest.importorskip("ray")
    with RayEngine() as engine:
        assert engine._owned is False


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    pytest.importorskip("ray")
    with tw.engine("ray", address="127.0.0.1:9") as engine, pytest.raises(EngineError) as raised:
        list(engine.run([Square(1)], lambda *_: None))
    assert raised.value.message == "Ray at 127.0.0.1:9: Connection refused"
    assert "ray start --head" in (raised.value.hint or "")


class _Lost(Exception):
    """In place of an error of Ray."""


def _ray_that_raises(name: str) -> SimpleNamespace:
    """A stand-in for `ray` whose `get` raises the error of this name."""
    names = ("OutOfMemoryError", "WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError")
    errors = {each: type(each, (_Lost,), {}) for each in names} | {"RayError": _Lost}

    def get(_: object) -> object:
        raise errors[name]("first\nThe node 10.0.0.7 is dead.")

    return SimpleNamespace(exceptions=SimpleNamespace(**errors), get=get)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NodeDiedError", "a node of the Ray cluster was lost"),
        ("LocalRayletDiedError", "a node of the Ray cluster was lost"),
        ("WorkerCrashedError", "the worker process died 4 times"),
        ("OutOfMemoryError", "the worker ran out of memory"),
    ],
)
def test_a_lost_node_is_named_as_such(name: str, message: str) -> None:
    pytest.importorskip("ray")
    engine = RayEngine()
    engine._ray = _ray_that_raises(name)
    found = engine._result(None)
    assert isinstance(found, WorkerDied)
    assert found.message == message
    assert "--jobs" not in cli_text(found.hint or "")
    assert "out of memory" not in (found.hint or "") or name == "WorkerCrashedError"
