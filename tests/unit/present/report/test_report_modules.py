"""The module tree of the report: shares add up, siblings that differ are named, nothing without modules."""

from __future__ import annotations

import pytest

import sketch
import tracewarehouse as tw
from tracewarehouse.present.report.data import report_data
from tracewarehouse.present.report.document import Section, TreeNode
from tracewarehouse.present.report.kernels import modules_sections

LAYERS = 6
LATE = 300  # ns of the main kernel of one layer: 200 more than in the others, 2 % of the recording
SKETCH = "\n".join(
    [
        'a 0 py t1 "nn.Module: Net_0" 0 10000',
        *(
            line
            for layer in range(LAYERS)
            for line in (
                f'a 0 py t1 "nn.Module: Layer_{layer}" {10 + 100 * layer} 90',
                f'a 0 py t1 "nn.Module: Linear_{layer}" {20 + 100 * layer} 20',
                f"a 0 call t1 cudaLaunchKernel {25 + 100 * layer} 5 id={2 * layer + 1}",
                f"a 0 call t1 cudaLaunchKernel {60 + 100 * layer} 5 id={2 * layer + 2}",
                f"a 0 gpu s7 k {20000 + 1000 * layer} {LATE if layer == 4 else 100} id={2 * layer + 1}",
                f"a 0 gpu s7 k {20500 + 1000 * layer} 50 id={2 * layer + 2}",
            )
        ),
        "a 0 gpu s7 orphan 30000 60",
        'b 0 py t1 "nn.Module: Net_0" 0 100',
        'b 0 py t1 "nn.Module: Linear_0" 10 30',
        "c 0 op t1 aten::mm 0 100",
        *(
            line
            for step in range(1, 5)
            for line in (
                f"d 0 step t1 {step} {1000 * step} 1000",
                f'd 0 py t1 "nn.Module: Net_0" {1000 * step + 10} 500',
                f"d 0 call t1 cudaLaunchKernel {1000 * step + 20} 5 id={2 * step}",
                f"d 0 call t1 cudaLaunchKernel {1000 * step + 600} 5 id={2 * step + 1}",
                f"d 0 gpu s7 k {1000 * step + 100} {100 * step} id={2 * step}",
                f"d 0 gpu s7 k {1000 * step + 700} 50 id={2 * step + 1}",
            )
        ),
    ]
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A run of layers, one on the host only, one without modules, and one with steps."""
    folder = tmp_path_factory.mktemp("modules")
    sketch.write(SKETCH, folder)
    warehouse = tw.open(folder / "warehouse")
    for run in "abcd":
        warehouse.ingest(folder / run, run=run, jobs=1)
    return warehouse


def sections(warehouse: tw.Warehouse, run: str) -> list[Section]:
    with report_data(warehouse.selection.select(runs=run)) as data:
        return modules_sections(data)


def check(nodes: tuple[TreeNode, ...]) -> None:
    """Asserts that self and children sum to the total of each node."""
    for node in nodes:
        if node.children:
            assert node.total == pytest.approx(node.own + sum(child.total for child in node.children))
            check(node.children)


def test_shares_of_the_tree_add_up(warehouse: tw.Warehouse) -> None:
    (section,) = sections(warehouse, "a")
    assert sum(node.total for node in section.trees) == pytest.approx(1)
    check(section.trees)
    net, outside = section.trees
    assert (net.name, outside.name) == ("Net_0", "(outside any module)")
    assert len(net.children) == LAYERS and net.is_open


def test_the_layer_that_differs_is_named(warehouse: tw.Warehouse) -> None:
    (section,) = sections(warehouse, "a")
    assert section.summary == (
        "13 modules with 1.10 µs of GPU time (94.8 %); Layer_4 differs most from its siblings: "
        "2.33 × the median of 6 siblings."
    )
    first, *others = section.trees[0].children
    assert first.name == "Layer_4" and first.is_open and first.note
    assert not any(node.note for node in others)
    assert [table.name for table in section.tables] == ["module_summary", "module_siblings"]


def test_a_run_on_the_host_shows_host_time(warehouse: tw.Warehouse) -> None:
    (section,) = sections(warehouse, "b")
    assert section.summary == "2 modules with 100 ns of host time (100 %)."
    assert section.trees[0].text == "100 ns (100 %), self 70 ns"
    check(section.trees)


def test_without_modules_the_section_is_hidden(warehouse: tw.Warehouse) -> None:
    assert sections(warehouse, "c") == []


def test_with_steps_times_are_those_of_the_mean_complete_step(warehouse: tw.Warehouse) -> None:
    (section,) = sections(warehouse, "d")
    complete = [row["step"] for row in warehouse.select("d").step_summary().rows() if not row["partial"]]
    mean_ns = sum(100 * step for step in complete) / len(complete)
    assert len(complete) < 4 and section.summary == (
        f"1 module with {mean_ns:.0f} ns of GPU time per step ({mean_ns / 10:.0f} % of the step)."
    )
    net, outside = section.trees
    assert net.text.startswith(f"{mean_ns:.0f} ns (") and outside.text.startswith("50 ns (")
