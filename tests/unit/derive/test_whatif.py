"""`tw whatif`: parsing of scales, their effect, and what they do not change."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

import cli_runner
import sketch
import tracewarehouse as tw
from ingesting import files_under
from tracewarehouse.derive.whatif import Scale, parse
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.warehouse import Warehouse

# The host launches two kernels and waits for them; the second waits for a copy on another stream that is over
# 20 ns before the first kernel is.
#            0  10     60 70                    210 220  230
#   t1       [mm]      [relu][== synchronize ========]
#   s7           [== gemm 20 to 120 ==][== relu 130 to 200 ==]
#   s20          [== copy 30 to 100 =]
STEP = """
job 0 step t1 5 0 230
job 0 op t1 aten::mm 0 40
job 0 call t1 cudaLaunchKernel 10 10 id=1
job 0 gpu s7 gemm 20 100 id=1
job 0 call t1 cudaMemcpyAsync 20 10 id=2
job 0 gpu s20 "Memcpy DtoD (Device -> Device)" 30 70 id=2
job 0 op t1 aten::relu 60 10
job 0 call t1 cudaLaunchKernel 60 5 id=3
job 0 gpu s7 relu 130 70 id=3
job 0 call t1 cudaDeviceSynchronize 80 130
"""


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder = tmp_path_factory.mktemp("whatif")
    sketch.write(STEP, folder)
    warehouse = tw.open(folder / "wh")
    warehouse.ingest(folder / "job")
    return warehouse


def estimates(wh: Warehouse, *scales: str, by: str = "category") -> dict[str, tuple[int, int]]:
    rows = wh.whatif("job", scales, by=by).rows()
    return {row["category"]: (row["base_ns"], row["new_ns"]) for row in rows}


BASE = {
    "length": 230, "computation": 170, "host": 10, "launch": 10, "kernel_gap": 10, "sync": 10, "host_gap": 20
}  # fmt: skip


def test_a_factor_of_1_changes_nothing(wh: Warehouse) -> None:
    assert estimates(wh, "all=1") == {name: (ns, ns) for name, ns in BASE.items()}


def test_savings_end_when_another_path_is_critical(wh: Warehouse) -> None:
    assert estimates(wh, "kernels[name=gemm]=0.9")["length"] == (230, 220)
    # Then the launch of relu is critical, at 60: 70 of relu, 10 back to the host, 20 to the end of the step.
    assert estimates(wh, "kernels[name=gemm]=0")["length"] == (230, 160)
    nothing = estimates(wh, "kernels=0")
    assert nothing["length"] == (230, 100)  # the host: relu's launch, at 60, then back at 80, and 20 after it
    assert nothing["computation"] == (170, 0)


def test_activities_with_slack_save_nothing(wh: Warehouse) -> None:
    for scale in ("kernels[kind=memory]=0", "kernels[kind=memory]=1.2", "host[op=aten::relu]=0", "earlier=0"):
        assert estimates(wh, scale) == {name: (ns, ns) for name, ns in BASE.items()}, scale
    longer = estimates(wh, "kernels[kind=memory]=3")  # 30 to 240: now the step ends when the copy does
    assert longer["length"] == (230, 240) and longer["memory"] == (0, 210)


@pytest.mark.deep
def test_filters_and_several_scales(wh: Warehouse) -> None:
    assert estimates(wh, "kernels[op=aten::mm]=0")["length"] == (230, 160)  # gemm, and the copy
    assert estimates(wh, "kernels[op=aten::*,name=*elu]=0.5")["length"] == (230, 195)
    twice = estimates(wh, "kernels[name=gemm]=0.9", "kernels[kind=computation]=0.9")
    assert twice["computation"] == (170, 81 + 63)
    assert estimates(wh, "all=0") == {name: (ns, 0) for name, ns in BASE.items()}
    assert estimates(wh, "all=0.333")["length"] == (230, 75)  # each part is rounded to whole ns


def test_by_operator(wh: Warehouse) -> None:
    rows = wh.whatif("job", "kernels[name=gemm]=0.5", by="op").rows()
    found = {(row["category"], row["op"], row["name"]): (row["base_ns"], row["new_ns"]) for row in rows}
    assert found["computation", "aten::mm", "gemm"] == (100, 50)
    assert found["computation", "aten::relu", "relu"] == (70, 70)
    assert found["sync", None, "cudaDeviceSynchronize"] == (10, 10)


def test_nothing_is_stored(wh: Warehouse) -> None:
    before = files_under(wh.root)
    wh.whatif("job", "kernels=0.5")
    assert files_under(wh.root) == before
    assert wh.critical_path_breakdown().skipped


def test_a_version_can_be_selected(wh: Warehouse) -> None:
    result = wh.whatif("job@v1", ["launch=0"], steps=5, ranks=0)
    assert result.provenance.runs == ("job@v1",)
    with pytest.raises(UnknownName, match="step: 6"):
        wh.whatif("job", "launch=0", steps=6)
    with pytest.raises(ParamError, match="unknown by"):
        wh.whatif("job", "launch=0", by="stream")


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("kernels=0.5", Scale("kernels", Fraction(1, 2))),
        ("all=2", Scale("all", Fraction(2))),
        ("host[op=aten::mm]=.25", Scale("host", Fraction(1, 4), op="aten::mm")),
        (
            "kernels[kind=memory,name='f<1, 2>(x)[]']=0",
            Scale("kernels", Fraction(0), kind="memory", name="f<1, 2>(x)[]"),
        ),
        ('kernels[name="it\'s",op=*]=1.0', Scale("kernels", Fraction(1), name="it's", op="*")),
    ],
)
def test_scales_are_parsed(text: str, scale: Scale) -> None:
    assert parse(text) == scale


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", "end", "expected what to scale"),
        ("kernel=1", "character 1", "expected what to scale"),
        ("kernels", "end", "expected `[` or `=`"),
        ("kernels[]=1", "character 9", "expected a filter"),
        ("kernels[knd=x]=1", "character 9", "expected a filter"),
        ("kernels[kind]=1", "character 13", "expected `=`"),
        ("kernels[kind=]=1", "character 14", "expected a value"),
        ("kernels[kind=comm]=1", "character 14", "expected a kind of GPU activity"),
        ("kernels[kind=memory=1", "character 14", "expected a kind of GPU activity"),
        ("kernels[name=x,name=y]=1", "character 16", "duplicate filter: name"),
        ("kernels[name='x]=1", "character 14", "unterminated quote"),
        ("kernels[name='x'y]=1", "character 17", "expected `,` or `]`"),
        ("kernels[name=x", "end", "expected `,` or `]`"),
        ("kernels[name=x]", "end", "expected `=` and a factor"),
        ("kernels=", "end", "expected a factor"),
        ("kernels=-1", "character 9", "expected a factor"),
        ("kernels=0.5x", "character 12", "unexpected text"),
    ],
)
def test_syntax_errors_have_a_position(text: str, place: str, what: str) -> None:
    with pytest.raises(ParamError) as slip:
        parse(text)
    assert slip.value.message.startswith(f"scale {text!r}, {place}: {what}")
    assert slip.value.hint and "kernels=0.5" in slip.value.hint


def test_on_the_command_line(wh: Warehouse) -> None:
    shown = cli_runner.tw("whatif", "job", "--scale", "kernels[name=gemm]=0.9", "-w", str(wh.root))
    assert shown.code == 0
    assert shown.out.splitlines()[:2] == [
        "run_id,rank,scope,category,base_ns,new_ns,saved_ns,period_ns",
        "job,0,step 5,length,230,220,10,200",
    ]
    done = cli_runner.tw(
        "whatif", "job", "--scale", "kernels[name=gemm]=0.9", "-w", str(wh.root), "-f", "table"
    )
    first, period, *_ = done.out.splitlines()
    assert first.startswith("rank 0, step 5: 230 ns → 220 ns (-4.3 %), ") and "200 ns" in period
    assert "length" not in done.out
    done = cli_runner.tw("whatif", "job", "--scale", "launch=0", "--json", "-w", str(wh.root))
    assert json.loads(done.out)["result"][0]["category"] == "length"
    slip = cli_runner.tw("whatif", "job", "--scale", "kernels[", "-w", str(wh.root))
    assert slip.code == 1 and "end: expected a filter" in slip.err
    assert cli_runner.tw("whatif", "job", "-w", str(wh.root)).code == 0
