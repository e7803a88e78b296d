"""Real clusters of Ray and of Spark with two workers, of which some are killed in their tasks."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

import tracewarehouse as tw
from tracewarehouse.engines import ClusterEngine, Engine, OnProgress, Peer, Task, TaskFailure, TaskProgress
from tracewarehouse.errors import WorkerMismatch
from tracewarehouse.ingest import build
from tracewarehouse.warehouse import Warehouse

pytestmark = [
    pytest.mark.deep,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
QUERIES = (
    "SELECT name, sum(dur_ns) AS ns, count(*) FROM kernels GROUP BY name ORDER BY ns DESC, name",
    "SELECT rank % 2 AS odd, max(window_ns) FROM temporal_breakdown GROUP BY odd ORDER BY odd",
    "SELECT count(*), sum(wait_ns) FROM collective_waits",
    "SELECT avg(dur_ns) FROM kernels",
)


@dataclass(frozen=True)
class Square:
    number: int

    def run(self, progress: TaskProgress) -> int:
        return self.number**2


@dataclass(frozen=True)
class Fails:
    def run(self, progress: TaskProgress) -> object:
        raise tw.TwError("no", "try")


@dataclass(frozen=True)
class KilledOnce:
    """Kills its worker at the first attempt: before the task, or after it has committed."""

    task: Task
    marker: Path
    after: bool

    def run(self, progress: TaskProgress) -> object:
        if not self.marker.exists():
            if self.after:
                self.task.run(progress)
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.task.run(progress)


@dataclass(frozen=True)
class AlwaysKilled:
    def run(self, progress: TaskProgress) -> object:
        os.kill(os.getpid(), signal.SIGKILL)
        return None


@dataclass
class Killing:
    """An engine that loses the worker of every third task."""

    engine: Engine
    folder: Path
    tasks: int = 0
    kills: int = 0

    @property
    def name(self) -> str:
        return self.engine.name

    slots = 8  # a rank in each group

    @property
    def on_this_machine(self) -> bool:
        return self.engine.on_this_machine

    def __enter__(self) -> Killing:
        return self

    def __exit__(self, *_: object) -> None:
        """The fixture closes the engine."""

    close = __exit__

    def run(
        self, tasks: Sequence[Task], progress: OnProgress, *, retry: bool = True
    ) -> Iterator[tuple[int, object]]:
        yield from self.engine.run([self._killed(task) for task in tasks], progress, retry=retry)

    def run_alone(self, tasks: Sequence[Task], progress: OnProgress) -> Iterator[tuple[int, object]]:
        yield from self.engine.run_alone(tasks, progress)

    def _killed(self, task: Task) -> Task:
        self.tasks += 1
        if self.tasks % 3:
            return task
        self.kills += 1
        return KilledOnce(task, self.folder / str(self.tasks), after=self.kills % 2 == 1)


def missing(name: str) -> bool:
    return find_spec("ray") is None if name == "ray" else not (find_spec("pyspark") and which("java"))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("ray", marks=pytest.mark.skipif(missing("ray"), reason="needs ray")),
        pytest.param("spark", marks=pytest.mark.skipif(missing("spark"), reason="needs pyspark and Java")),
    ],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[ClusterEngine]:
    made = tw.engine(request.param, jobs=2)
    assert isinstance(made, ClusterEngine)
    with made as engine:
        assert engine.slots == 2
        yield engine
        folder = engine._folder
    assert folder is None or not folder.exists()


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster") / "job"
    tw.simulate(
        folder, ranks=8, tensor=2, steps=3, layers=2, hidden=256, sequence=256,
        injections=["slow-rank:rank=1,what=compute,factor=2"],
    )  # fmt: skip
    return folder


def nothing(*_: object) -> None:
    """Discards progress."""


def test_tasks_fail_and_die_alone(
    cluster: ClusterEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks: list[Task] = [Fails(), KilledOnce(Square(5), tmp_path / "once", after=True), AlwaysKilled()]
    results = dict(cluster.run([*tasks, *(Square(n) for n in range(9))], nothing))
    failed, died = results[0], results[2]
    assert isinstance(failed, TaskFailure) and (failed.message, failed.hint) == ("no", "try")
    assert isinstance(died, TaskFailure) and died.message == "the worker process died 4 times"
    assert results[1] == 25
    assert [results[3 + n] for n in range(9)] == [n**2 for n in range(9)]
    assert capfd.readouterr().out == ""


def test_other_versions_are_refused(cluster: ClusterEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Peer.here()
    monkeypatch.setattr(Peer, "here", lambda: Peer("0.0.1", here.contracts, here.duckdb))
    with pytest.raises(WorkerMismatch, match=r"tracewarehouse .* instead of 0\.0\.1"):
        list(cluster.run([Square(1)], nothing))


def test_a_cluster_that_runs_already_stays(cluster: ClusterEngine) -> None:
    with tw.engine(cluster.name) as second:
        assert dict(second.run([Square(4)], nothing)) == {0: 16}
    assert dict(cluster.run([Square(5)], nothing)) == {0: 25}


def test_killed_workers_lose_nothing_and_double_nothing(
    cluster: ClusterEngine, traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "GROUP_RANKS", 1)
    killing = Killing(cluster, Path(tempfile.mkdtemp(dir=tmp_path)))
    one, many = tw.open(tmp_path / "one"), tw.open(tmp_path / "many")
    done = one.ingest(traces, run="job", jobs=1), many.ingest(traces, run="job", engine=killing)
    assert [file.state for file in done[1].files] == [file.state for file in done[0].files]
    assert killing.kills >= 3
    assert_each_source_once(many, killing.tasks)
    for name in ("critical_path", "wait_attribution"):
        one.derive(name, "job")
        many.derive(name, "job", engine=killing if name == "critical_path" else "local")
    assert_each_source_once(many, killing.tasks)
    results = one.record(), many.record(engine=killing)
    assert (results[0].written, results[0].present) == (results[1].written, results[1].present)
    assert (results[1].failed, many.record().written) == ((), 0)
    base, head = one.select("job"), tw.open(tmp_path / "many").select("job")
    names = [each.name for each in base.catalog.analyses()]
    assert [name for name in names if not head.analyze(name).table.equals(base.analyze(name).table)] == []
    spread = head.on(killing)
    spread.selection.will_read(head.catalog.analyses())
    assert [name for name in names if not spread.analyze(name).table.equals(base.analyze(name).table)] == []
    assert spread.check().table.equals(base.check().table)
    assert "".join(spread.report("job").html()) == "".join(head.report("job").html())
    change = spread.diff("job", "job").changes().line
    assert change == base.diff("job", "job").changes().line
    history, whole = spread.history("step_time"), head.history("step_time")
    assert history.result.table.equals(whole.result.table)
    for sql in QUERIES:
        assert spread.query(sql).table.equals(base.query(sql).table), sql
    assert many.verify() == []
    print(f"{killing.kills} workers killed in {killing.tasks} tasks")


def assert_each_source_once(warehouse: Warehouse, tasks: int) -> None:
    (selected,) = warehouse.selected()
    assert Counter(source.rank for source in selected.sources) == dict.fromkeys(range(8), 1)
    assert tasks
