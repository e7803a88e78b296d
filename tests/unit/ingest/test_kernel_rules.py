"""The users' rules for kernels: which apply, what they change, and what a broken file stops."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tracewarehouse as tw
from ingesting import files_under, only, take
from object_store import BUCKET, Proxy
from sketch import write
from tracewarehouse.errors import PolicyError
from tracewarehouse.ingest.rules import KERNEL_RULES_FILE, KernelRule, kernel_rules_of
from tracewarehouse.location import store_url
from tracewarehouse.storage.remote import RemoteObjects
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

# Kernels that no shipped rule knows, one that an operator makes communication, and one with arguments.
TRACE = """
RUN 0 op t1 acme::exchange 0 50
RUN 0 call t1 cudaLaunchKernel 10 10 id=1
RUN 0 gpu s7 copy_blocks 60 10 id=1
RUN 0 op t1 aten::mm 100 50
RUN 0 call t1 cudaLaunchKernel 110 10 id=2
RUN 0 gpu s7 acme_ring_push 160 20 id=2
RUN 0 op t1 _c10d_functional::all_reduce 200 50
RUN 0 call t1 cudaLaunchKernel 210 10 id=3
RUN 0 gpu s7 fused_gemm 260 40 id=3
RUN 0 op t1 aten::mm 300 50
RUN 0 call t1 cudaLaunchKernel 310 10 id=4
RUN 0 gpu s7 plain 360 80 id=4
RUN 0 step t1 1 0 500
"""
RULES = """
[[rule]]
pattern = '^acme_ring'
kind = "communication"

[[rule]]
pattern = '^fused_gemm$'
kind = "computation"

[[rule]]
pattern = '^acme_'
kind = "other"

[[rule]]
category = "operator"
pattern = '^acme::exchange$'
kind = "communication"
"""
COMMUNICATION = {"": {"fused_gemm"}, RULES: {"copy_blocks", "acme_ring_push"}}


def trace(folder: Path, run: str) -> Path:
    (path,) = write(TRACE.replace("RUN", run), folder)
    return path


def put_rules(root: Path, text: str) -> None:
    path = root / KERNEL_RULES_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


def communication(wh: Warehouse, run: str, table: str = "kernels") -> set[str]:
    """The names of kernels that are communication, by themselves or in segments of GPU time."""
    sql = {
        "kernels": "SELECT name FROM kernels WHERE kind = 'communication'",
        "device_segments": "SELECT k.name FROM device_segments AS s JOIN kernels AS k"
        " ON k.event_id = s.kernel_id WHERE s.kind = 'communication'",
    }[table]
    return {str(row["name"]) for row in wh.select(runs=run).query(sql).rows()}


def test_users_rules_come_before_the_shipped_ones(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    put_rules(wh.root, RULES)
    wh.ingest(trace(tmp_path, "job"), run="job")
    for table in ("kernels", "device_segments"):
        assert communication(wh, "job", table) == COMMUNICATION[RULES], table
    assert wh.query("SELECT collectives FROM ranks").rows() == [{"collectives": True}]
    (source,) = wh.store.newest("job").sources  # type: ignore[union-attr]
    assert len(source.kernel_rules) == 16


def test_stored_ranks_follow_an_upgrade(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    path = trace(tmp_path, "job")
    wh.ingest(path, run="job")
    before = wh.query("FROM kernels").rows()
    assert communication(wh, "job") == COMMUNICATION[""]
    put_rules(wh.root, RULES)
    lines = wh.upgrade().lines
    assert [line.partition("@")[0] for line in lines] == [
        "device_segments",
        "kernel_modules",
        "kernels",
        "op_work",
    ]
    for table in ("kernels", "device_segments"):
        assert communication(wh, "job", table) == COMMUNICATION[RULES], table
    files = files_under(wh.root)
    assert wh.upgrade().lines == ()
    assert only(take(wh.root, path, run="job")).state == "same"
    assert files_under(wh.root) == files
    (wh.root / KERNEL_RULES_FILE).unlink()
    wh.upgrade()
    assert wh.query("FROM kernels").rows() == before
    assert wh.verify() == []


def test_the_same_trace_is_classified_again_under_other_rules(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    path = trace(tmp_path, "job")
    wh.ingest(path, run="job")
    put_rules(wh.root, RULES)
    assert only(take(wh.root, path, run="job")).state == "intact"
    assert communication(wh, "job") == COMMUNICATION[RULES]
    assert only(take(wh.root, path, run="job")).state == "same"


def test_a_diff_warns_of_ranks_of_different_rules(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    wh.ingest(trace(tmp_path / "1", "one"), run="one")
    put_rules(wh.root, RULES)
    wh.ingest(trace(tmp_path / "2", "two"), run="two")
    warning = wh.diff("one", "two").changes().differences[0]
    assert warning.is_warning
    assert re.search(r"different kernel rules \(one@v1 by none, two@v1 by [0-9a-f]{16}\)", warning.message)
    notices = wh.diff("one", "two").analyze("temporal_breakdown").notices
    assert any("different kernel rules" in notice for notice in notices)
    wh.upgrade()
    assert wh.diff("one", "two").changes().differences == ()


def test_a_history_marks_other_rules_and_an_upgrade_records_again(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    wh.ingest(trace(tmp_path / "1", "one"), run="one")
    wh.record(analyses=["temporal_breakdown", "step_summary"])
    put_rules(wh.root, RULES)
    wh.ingest(trace(tmp_path / "2", "two"), run="two")
    assert wh.record(analyses=["temporal_breakdown", "step_summary"]).written == 2
    history = wh.history("temporal_breakdown.compute_ns")
    assert [[point.run for point in series.points] for series in history.series] == [["two"], ["one"]]
    assert (
        "1 of 2 runs is classified by other kernel rules than the newest (one@v1), a separate series:"
        " wh.upgrade(), then wh.record()"
    ) in history.notices
    assert len(wh.history("step_time").series) == 1  # depends on no kernel
    assert "one: recorded 1 result again" in wh.upgrade().lines
    (series,) = wh.history("temporal_breakdown.compute_ns").series
    assert {point.run: point.value for point in series.points} == {"one": 120, "two": 120}
    put_rules(wh.root, "")
    wh.upgrade()
    (series,) = wh.history("temporal_breakdown.compute_ns").series
    assert [point.value for point in series.points] == [110, 110]


RULE = "[[rule]]\nkind = 'other'\npattern = 'a'\n"
BROKEN = {
    "[[rule]]\nkind = 'other'\npattern = 'a": ":3: *at end of document",
    f"{RULE}[[rule]]\nkind = 'other'\npattern = 'x(?!y)'": ":6: * not an RE2 pattern",
    "[[rule]]\npattern = 'a*'\nkind = 'other'": ":2: * matches an empty text",
    f"{RULE}[[rule]]\npattern = 'a'\nkind = 'comm'": ":6: * Invalid enum value 'comm'",
    f"{RULE}category = 'cpu_op'": ":4: * Invalid enum value 'cpu_op'",
    f"\n{RULE}[[rule]]\npattern = 'a'": ":5: * missing required field `kind`",
    f"{RULE}[[rule]]\npattern = 3": ":5: * Expected `str`, got `int`",
    f"{RULE}names = 'b'": ":4: * unknown field `names`",
    "\n[[rules]]\npattern = 'a'\nkind = 'other'": ":2: * unknown field `rules`",
    "rule = 3": ":1: * Expected `array`, got `int`",
    RULE * 201: ":603: * more than 200 rules",
    f"{RULE}# caf\udce9": ":4: * can't decode byte 0xe9",
}


@pytest.mark.parametrize(("text", "message"), BROKEN.items(), ids=[*range(len(BROKEN))])
def test_a_broken_file_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    store = Store.open_or_create(tmp_path)
    put_rules(tmp_path, text)
    with pytest.raises(
        PolicyError, match=re.escape(f"{KERNEL_RULES_FILE}{message}").replace(r"\*", ".*")
    ) as raised:
        kernel_rules_of(store)
    assert raised.value.hint


def test_a_broken_file_stops_ingest_and_never_reading(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    path = trace(tmp_path, "job")
    wh.ingest(path, run="job")
    wh.record(analyses=["temporal_breakdown"])
    put_rules(wh.root, "[[rule]]\npattern = '('\nkind = 'other'\n")
    files = files_under(wh.root)
    for change in (lambda: wh.ingest(path, run="other"), wh.upgrade):
        with pytest.raises(
            PolicyError, match=r"kernel_rules.toml:2: not a file of kernel rules: not an RE2 pattern"
        ):
            change()
    assert files_under(wh.root) == files
    wh = tw.open(tmp_path / "wh")
    assert communication(wh, "job") == COMMUNICATION[""]
    assert wh.history("temporal_breakdown.compute_ns").series[0].points[0].value == 110


def test_rules_in_a_bucket(s3: Proxy, tmp_path: Path) -> None:
    root = f"s3://{BUCKET}/kernel-rules"
    wh, objects = tw.open(root), RemoteObjects(store_url(root))
    path = trace(tmp_path, "job")
    objects.put({KERNEL_RULES_FILE: RULES.encode()})
    wh.ingest(path, run="job", jobs=1)
    assert kernel_rules_of(wh.store)[-1] == KernelRule("^acme::exchange$", "communication", "operator")
    assert communication(wh, "job") == COMMUNICATION[RULES]
    objects.put({KERNEL_RULES_FILE: b"rule = 3"})
    with pytest.raises(
        PolicyError, match=f"{root}/{KERNEL_RULES_FILE}:1: not a file of kernel rules: Expected"
    ):
        wh.ingest(path, run="other")
