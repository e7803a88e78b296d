"""Display names of time categories and breakdown levels: the same in the CLI, in reports and in charts."""

from __future__ import annotations

from collections.abc import Mapping

# The parts of exposed communication in an account.
EXPOSED = ("exposed_wait", "exposed_transfer", "exposed_unassigned")

CATEGORIES: Mapping[str, str] = {
    "compute": "computation",
    "exposed_comm": "exposed communication",
    "exposed_wait": "exposed: waiting for the last rank",
    "exposed_transfer": "exposed transfer",
    "exposed_unassigned": "exposed communication, unmatched",
    "hidden_comm": "overlapped communication",
    "comm_wait": "waiting for the last rank",
    "exposed_memory": "exposed memcpy/memset",
    "other": "other GPU work",
    "idle_host": "idle: waiting for launch",
    "idle_dataloader": "idle: waiting for data",
    "idle_sync": "idle: after a blocking call",
    "idle_call": "idle: inside the launching call",
    "idle_latency": "idle: usual launch latency",
    "idle_queued": "idle: work queued",
    "idle_graph": "idle: inside a graph launch",
    "idle_unknown": "idle: launch not in the trace",
    "idle_outside": "outside the GPU window",
    "longer": "slower than base",
    "shorter": "faster than base",
    "base": "base",
    "head": "head",
}

# Row labels of a heat map have room for about 14 characters.
SHORT_CATEGORIES: Mapping[str, str] = {
    "compute": "computation",
    "exposed_wait": "exposed wait",
    "exposed_transfer": "exposed transf.",
    "exposed_unassigned": "exposed comm.",
    "exposed_memory": "exposed memory",
    "other": "other work",
    "idle_host": "idle: launch",
    "idle_dataloader": "idle: data",
    "idle_sync": "idle: sync",
    "idle_call": "idle: in call",
    "idle_latency": "idle: latency",
    "idle_queued": "idle: queued",
    "idle_graph": "idle: in graph",
    "idle_unknown": "idle: unknown",
    "idle_outside": "outside",
}

LEVELS: Mapping[str, str] = {
    "breakdown": "by GPU activity and idle cause",
    "kernels": "by kernel (calls_ns: change in calls, or their work; speed_ns: change in time of each)",
    "operators": "by operator",
    "categories": "by training phase and kernel kind",
    "modules": "by module (calls_ns: change in call count; speed_ns: change in time per call)",
    "work": "by work (calls_ns: change in FLOP or bytes; speed_ns: change in time per FLOP or byte)",
    "ranks": "by rank (its time divided by the number of ranks, so that rows sum to the mean)",
}

HOST_LEVELS: Mapping[str, str] = {  # without GPU activities
    "breakdown": "by what the training thread runs",
    "kernels": "by operator, call, annotation and frame",
    "operators": "by operator, call, annotation and frame",
    "categories": "by what the training thread runs",
    "modules": "by what the training thread runs",
    "work": "by what the training thread runs",
    "ranks": "by rank",
}

# What analyses call a category in their own columns and values.
_ALIASES: Mapping[str, str] = {
    "computation": "compute",
    "communication": "exposed_comm",
    "memory": "exposed_memory",
    "compute_ns": "compute",
    "exposed_comm_ns": "exposed_comm",
    "exposed_memory_ns": "exposed_memory",
    "other_ns": "other",
    "idle_ns": "idle",
    "host_wait": "idle_host",
    "kernel_wait": "idle_latency",
    "host": "idle_host",
    "call": "idle_call",
    "latency": "idle_latency",
    "queued": "idle_queued",
    "graph": "idle_graph",
    "unknown": "idle_unknown",
    "before_first": "idle_outside",
    "after_last": "idle_outside",
    "overlap_ns": "hidden_comm",
    "exposed_ns": "exposed_comm",
}


def category(name: str) -> str:
    """The category of a column, kernel kind or idle cause; other names are returned unchanged."""
    return _ALIASES.get(name, name)


def category_name(key: str) -> str:
    """The display name of a category; a key without one is its own name."""
    if base_category(key) != key:
        return f"exposed: waiting for {key.partition(' for ')[2]}"
    return CATEGORIES.get(key, key)


def base_category(part: str) -> str:
    """The category of a row of a breakdown: of `exposed_wait for rank 1` it is `exposed_wait`."""
    return "exposed_wait" if part.startswith("exposed_wait for ") else part


def idle_cause(key: str) -> str:
    """The display name of an idle category without its `idle: ` prefix."""
    return category_name(key).removeprefix("idle: ")
