"""The README and the guides are correct: every line of their code blocks is run.

Lines that install are run by `.ci/run`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir, nullcontext
from pathlib import Path

import pytest

from cli_runner import environment, tw
from conftest import ROOT, deep
from object_store import BUCKET, forward, s3_server
from tracewarehouse import findings
from tracewarehouse.compare.history import record
from tracewarehouse.present.report import reports

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = sorted((ROOT / "notebooks" / "guides").glob("*.md"))
INSTALLS = "python3 -m venv "
# Guides with many commands, or an object store: run by the deep tests, and by every release.
LONG = {"past_one_machine", "across_ranks", "comparisons", "security"}
# The summaries that `tw record` of the README records.
RECORDED = ("step_summary", "temporal_breakdown")
# The findings that its checks compute.
FINDINGS = ("exposed_comm", "low_gpu_use", "slow_rank")
# What only a shell understands; inside quotes it may also be SQL, which then runs in a shell.
SHELL = re.compile(r"[|&;<>$`*?#~\\]")


def blocks(language: str, text: str = README) -> list[str]:
    """The code blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def shell_lines(text: str = README) -> list[str]:
    """Every line of the bash blocks."""
    return [line for block in blocks("bash", text) for line in block.splitlines() if line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as after the installation: `tw` on the PATH, and the data of the first steps."""
    return installed(tmp_path_factory.mktemp("readme"))


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> list[tuple[str, subprocess.CompletedProcess[str]]]:
    """Every line of the README but those that install, run in the folder in order."""
    # .ci/run runs those, and tests/unit/cli/test_demo.py the demo
    with pytest.MonkeyPatch.context() as patch:
        # The whole page, all findings and records of all summaries are tested elsewhere.
        patch.setattr(reports, "_SECTIONS", {})
        rules = findings.rules
        patch.setattr(
            findings, "rules", lambda catalog: tuple(each for each in rules(catalog) if each.name in FINDINGS)
        )
        every = record.recordable
        patch.setattr(record, "recordable", lambda catalog, names: every(catalog, names or RECORDED))
        return [(line, run(line, folder)) for line in shell_lines() if not line.startswith(INSTALLS)]


def installed(folder: Path) -> Path:
    """Prepares a folder as it is after installing."""
    shutil.copytree(ROOT / "tests" / "data" / "first-steps", folder / "tests" / "data" / "first-steps")
    script = folder / "bin" / "tw"
    script.parent.mkdir()
    code = "from tracewarehouse.cli import main; main()"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -W error -c '{code}' \"$@\"\n")
    script.chmod(0o755)
    return folder


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a line as a shell would, in the folder; a call of `tw` alone in this process, which is quicker."""
    if line.startswith("tw ") and not SHELL.search(line):
        with chdir(folder):
            result = tw(*shlex.split(line)[1:])
        return subprocess.CompletedProcess(line, result.code, result.out, result.err)
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder,
        env=environment({"PATH": path}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_the_two_install_lines_work() -> None:
    first, second = [line for line in shell_lines() if line.startswith(INSTALLS)]
    assert first.endswith("&& pip install -q '.[shell]' && tw demo")
    assert second.endswith("install -q -e '.[dev]' && .venv/bin/pytest")
    assert f"'^{INSTALLS}'" in (ROOT / ".ci" / "run").read_text()


def test_the_shell_lines_run_in_order(
    outcomes: list[tuple[str, subprocess.CompletedProcess[str]]],
) -> None:
    assert outcomes
    for line, done in outcomes:
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout, line


def test_printed_answers_are_those_of_the_commands(
    outcomes: list[tuple[str, subprocess.CompletedProcess[str]]],
) -> None:
    printed = {line: " ".join(done.stdout.split()) for line, done in outcomes}
    answers = [block for block in README.split("```")[1::2] if block.startswith(("\ncritical", "\nmedian"))]
    for line, answer in zip(("tw check sim/slow", "tw diff good slow"), answers, strict=True):
        for part in answer.split("…"):
            assert " ".join(part.split()) in printed[line]


def test_the_python_blocks_run(folder: Path) -> None:
    run("test -d warehouse || tw ingest tests/data/first-steps", folder)
    for at, block in enumerate(blocks("python")):
        if "import torch" in block:
            compile(block, "README.md", "exec")  # the recording script of tests/data runs the handler
            continue
        script = folder / f"block{at}.py"
        script.write_text(f"if __name__ == '__main__':\n{re.sub('^', '    ', block, flags=re.MULTILINE)}")
        done = run(f"'{sys.executable}' {script.name}", folder)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "guide",
    [
        *(path for path in GUIDES if path.stem not in LONG),
        *deep(*(path for path in GUIDES if path.stem in LONG)),
    ],
    ids=lambda path: path.stem,
)
def test_the_shell_lines_of_a_guide_run_in_order(
    guide: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guides that start like the README continue in its folder: a line that was run there is not repeated."""
    known = [line for line in shell_lines() if not line.startswith(INSTALLS)]
    text = guide.read_text(encoding="utf-8")
    lines = shell_lines(text)
    continues = lines[:1] == known[:1]
    if continues:
        request.getfixturevalue("outcomes")
    where = request.getfixturevalue("folder") if continues else installed(tmp_path)
    with s3_server() if "s3://" in "".join(lines) else nullcontext() as server:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        for name, value in (server.environment if server else {}).items():
            monkeypatch.setenv(name, value)
        for path in (where / "tests" / "data" / "first-steps").iterdir() if server else ():
            forward(server.upstream, "PUT", f"/{BUCKET}/traces/nightly/{path.name}", {}, path.read_bytes())
        for line in lines:
            # The README's fixture records a few analyses only.
            if not (continues and line in known) or line.startswith("tw record"):
                done = run(line, where)
                assert done.returncode == 0, (line, done.stderr)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 130


@pytest.mark.parametrize("page", [ROOT / "README.md", *GUIDES], ids=lambda path: path.stem)
def test_links_point_to_files_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
