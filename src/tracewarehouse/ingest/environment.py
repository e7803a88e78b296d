"""Labels from the environment: git commit, batch job, experiment run, CI commit, image, versions, GPU, host.

Only files and environment variables are read: no network, no subprocess, and on a failure a label is omitted.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tracewarehouse.errors import ParamError
from tracewarehouse.formats.redact.text import Redactor, check_text
from tracewarehouse.late_regex import late_regex

# Label → variables of batch systems, experiment trackers, CI services and container runtimes.
_VARIABLES: Final = {
    "slurm.job": ("SLURM_JOB_ID",),
    "wandb.run": ("WANDB_RUN_ID",),
    "ci.sha": (
        "GITHUB_SHA",
        "CI_COMMIT_SHA",
        "CIRCLE_SHA1",
        "BUILDKITE_COMMIT",
        "BITBUCKET_COMMIT",
        "BUILD_SOURCEVERSION",
        "GIT_COMMIT",
    ),
    "image": (
        "CONTAINER_IMAGE",
        "SLURM_CONTAINER_IMAGE",
        "APPTAINER_CONTAINER",
        "SINGULARITY_CONTAINER",
        "CI_JOB_IMAGE",
    ),
}
_COMMIT: Final = late_regex(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_COMMIT_DIGITS: Final = 12  # as many as Git needs in the largest repositories
_LONGEST: Final = 200
_CHANGE: Final = late_regex(rb"> ([0-9]{1,12}) [+-][0-9]{4}(?:\t.*)?$")
_TAIL_BYTES: Final = 4096


class Recorded(Struct, frozen=True):
    """The folders of traces that are ingested, and when the first of them was recorded."""

    folders: frozenset[Path]
    first_ns: int


def environment_labels(
    redactor: Redactor, environment: Mapping[str, str], folder: Path, traces: Recorded | None
) -> dict[str, str]:
    """The known labels of a process in `folder`; without values that look like secrets.

    `traces` are those that the process ingests. None: it is a training job; then also its W&B run, its
    versions of Python and torch, its GPU, and the host if the job runs on one machine.
    """
    labels = {name: _first(environment, variables) for name, variables in _VARIABLES.items()}
    labels["ci.sha"] = _short_commit(labels["ci.sha"])
    labels |= git_labels(folder, traces)
    if traces is None:
        if not labels["wandb.run"]:
            # The id of the active run, if the process has imported wandb.
            name = getattr(getattr(sys.modules.get("wandb"), "run", None), "id", None)
            labels["wandb.run"] = name if isinstance(name, str) else None
        labels |= _versions()
        sizes = [environment.get(name) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")]
        is_alone = sizes[0] == sizes[1] and environment.get("SLURM_NNODES", "1") == "1"
        labels["host"] = os.uname().nodename if is_alone else None
    return {name: value for name, value in labels.items() if value and _is_storable(redactor, name, value)}


def _versions() -> dict[str, str | None]:
    """Python, and of a process that has imported torch its version, CUDA or ROCm, and the GPU in use."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    if (torch := sys.modules.get("torch")) is not None:
        version: Any = getattr(torch, "version", None)
        versions["torch"] = str(getattr(torch, "__version__", ""))
        versions["cuda"] = getattr(version, "cuda", None)
        versions["rocm"] = getattr(version, "hip", None)
        with suppress(Exception):
            # A process that does not use a GPU yet must not start to.
            versions["gpu"] = str(torch.cuda.get_device_name()) if torch.cuda.is_initialized() else None
    return versions


def git_labels(folder: Path, traces: Recorded | None = None) -> dict[str, str | None]:
    """Commit and branch of the work tree around a folder; empty outside of one.

    With `traces`, also if one of them is not in this work tree, or was recorded before it had this commit.
    """
    try:
        tree = _work_tree(folder)
        if tree is None:
            return {}
        git = _git_folder(tree / ".git")
        if traces is not None:
            trees = {_work_tree(traced.resolve()) for traced in traces.folders}
            if trees != {tree.resolve()} or traces.first_ns < _checked_out_ns(git):
                return {}
        return _head(git)
    except (OSError, ValueError):
        return {}


def _work_tree(folder: Path) -> Path | None:
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)


def _checked_out_ns(git: Path) -> int:
    """When the work tree came to its commit, in whole seconds: by the log of HEAD, else by its files."""
    log = git / "logs" / "HEAD"
    if log.is_file():
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            last = file.read().rstrip().rpartition(b"\n")[2]
        if change := _CHANGE.search(last):
            return int(change[1]) * 10**9
    files = [file for file in (git / "HEAD", git / "index") if file.is_file()]
    return max(file.stat().st_mtime_ns // 10**9 * 10**9 for file in files)


def _git_folder(git: Path) -> Path:
    """The folder behind `.git`, which is a file with its path in a worktree or submodule."""
    if git.is_dir():
        return git
    text = git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
    return (git.parent / text).resolve()


def _head(git: Path) -> dict[str, str | None]:
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return {"git.commit": _short_commit(head)}
    ref = head.removeprefix("ref:").strip()
    common = git / "commondir"
    shared = (git / common.read_text(encoding="utf-8").strip()).resolve() if common.exists() else git
    return {
        "git.commit": _short_commit(_resolved(shared, ref)),
        "git.branch": ref.removeprefix("refs/heads/"),
    }


def _resolved(git: Path, ref: str) -> str | None:
    """The commit of a ref, from its own file or the packed refs."""
    loose = git / ref
    if ".." in ref.split("/"):
        return None
    if loose.is_file():
        return loose.read_text(encoding="utf-8").strip()
    packed = git / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {ref}")), None)


def _short_commit(text: str | None) -> str | None:
    return text[:_COMMIT_DIGITS] if text and _COMMIT.fullmatch(text) else None


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := environment.get(name, "").strip())), None)


def _is_storable(redactor: Redactor, name: str, value: str) -> bool:
    if len(value) > _LONGEST or not value.isprintable():
        return False
    try:
        check_text(redactor, "a label", {name: value})
    except ParamError:
        return False
    return True


def labels_of_process(redactor: Redactor, traces: Recorded | None = None) -> dict[str, str]:
    """The labels of this process and its working folder; none with TW_AUTO_LABELS=0."""
    if os.environ.get("TW_AUTO_LABELS", "1").lower() in ("0", "false", "no", "off"):
        return {}
    try:
        return environment_labels(redactor, os.environ, Path.cwd(), traces)
    except OSError:  # the working folder was deleted
        return {}
