"""Each notebook runs from its first cell to its last, and prints the expected lines."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from conftest import ROOT, deep
from tracewarehouse.temp_folders import new_folder

# Results of the simulated runs; the notebooks themselves only assert what holds for any run.
EXPECTED_LINES = {
    "first_look": ("the other ranks wait for rank 2", "│ 0    ┆ 1.0          ┆ 1.0     │", "input_bound"),
    "compare_two_runs": (
        *(", slower; mean", ": this recording is slower; runs of one job vary by 1–3 %, some by more: "),
        "largest change: sm90_xmma_gemm",
    ),
    "find_the_slow_rank": (
        "the others wait for rank 3",
        "rank 3 runs the same kernels as rank 0, and they take 1.3 times as long",
    ),
    "who_holds_up_the_job": ("\nnamed: 5\n", "│ 5    ┆ computation   ┆ 0.889226 "),
    "where_do_the_flops_go": (
        *("\n52% of the peak, FLOP known for 97% of", "misaligned_gemm: none"),
        *("│ aten::mm ", "┆ clone, mul ┆ 3 ", "3.1% of GPU time in generated kernels"),
    ),
    "sql_over_many_runs": ("best: H100 with batch 8", "aten::sum"),
    "a_runs_history": ("\n+10.3% between night-07 and night-08", "checks of the loss, accepted\n"),
    "inference_with_graphs": ("with an operator: 146 of 146 ", "┆ aligned ", "│ Linear "),
    "why_did_it_run_out_of_memory": (
        *("step 31 failed", "\nfragmentation\n", "18 blocks of at most 1.0 GiB", "train.py:52 logits"),
        "failed allocations: 1 before, 0 after",
    ),
    "coming_from_hta": (
        "kinds of changes: added, decreased, increased, unchanged\n",
        "rank0-with-counters.json",
    ),
}

# Run by the deep tests: what they call is tested elsewhere too.
LONG = (
    *("a_runs_history", "coming_from_hta", "compare_two_runs", "find_the_slow_rank", "sql_over_many_runs"),
    *("who_holds_up_the_job", "why_did_it_run_out_of_memory"),
)


def test_every_notebook_is_tested() -> None:
    assert {path.stem for path in (ROOT / "notebooks").glob("*.py")} == set(EXPECTED_LINES)
    assert {path.suffix for path in (ROOT / "notebooks").iterdir() if path.is_file()} == {".py"}


@pytest.mark.parametrize("name", EXPECTED_LINES)
def test_notebook_has_a_question_prose_and_short_cells(name: str) -> None:
    """Its title is a question, code cells are short, and it says where to use one's own data."""
    text = (ROOT / "notebooks" / f"{name}.py").read_text(encoding="utf-8")
    first, *cells = re.split(r"^# %%", text, flags=re.MULTILINE)[1:]
    assert re.match(r" \[markdown\]\n# # [^\n]+\?\n#\n", first), first
    assert sum(cell.startswith(" [markdown]") for cell in cells) >= 4
    assert 'ut your own warehouse here: wh = tw.open("warehouse")' in text
    assert max(len(cell.splitlines()) for cell in cells) <= 35


@pytest.mark.parametrize("name", [*(name for name in EXPECTED_LINES if name not in LONG), *deep(*LONG)])
def test_notebook_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "working").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "working")
    new_folder()  # the folder of this process, which it keeps until it ends, is elsewhere
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    runpy.run_path(str(ROOT / "notebooks" / f"{name}.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert [each for each in EXPECTED_LINES[name] if each not in out] == []
    assert list((tmp_path / "working").iterdir()) == []
    assert list((tmp_path / "temporary").iterdir()) == [], "temporary files are left"
