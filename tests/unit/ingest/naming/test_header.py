"""Facts in headers of traces, in known spellings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tracewarehouse.ingest.naming import header_facts, header_of, rank_in_stored_header

NOTHING = {
    "world_size": None,
    "backend": None,
    "process_groups": None,
    "device_name": None,
    "device_count": None,
    "device_properties": False,
    "host": None,
    "framework_version": None,
}


@pytest.mark.parametrize(
    ("header", "facts"),
    [
        ({}, {}),
        ({"distributedInfo": {"backend": "nccl"}}, {"backend": "nccl"}),
        (
            {"distributedInfo": {"rank": 3, "world_size": 16, "backend": "nccl"}},
            {"backend": "nccl", "world_size": 16},
        ),
        ({"distributedInfo": {"world_size": "8"}}, {"world_size": 8}),
        ({"distributedInfo": {"pg_config": [{"ranks": []}]}}, {"process_groups": '[{"ranks": []}]'}),
        ({"distributedInfo": ["odd"]}, {}),
        ({"deviceProperties": []}, {}),
        (
            {"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}] * 8},
            {"device_name": "NVIDIA H100", "device_count": 8},
        ),
        ({"deviceProperties": [{"id": 0, "name": ""}] * 8}, {"device_count": 8}),
        (
            {"deviceProperties": [{"name": "NVIDIA H100", "totalGlobalMem": 85_045_477_376}]},
            {"device_name": "NVIDIA H100", "device_count": 1, "device_properties": True},
        ),
        ({"computeProperties": [{"name": "Tesla V100"}]}, {"device_name": "Tesla V100", "device_count": 1}),
        ({"host_name": "vm"}, {"host": "vm"}),
        (
            {
                "metadata": {
                    "system": {"torch_env_info": {"torch_version": "2.6.0"}, "env": {"HOSTNAME": "a39c"}}
                }
            },
            {"framework_version": "2.6.0", "host": "a39c"},
        ),
    ],
)
def test_facts_of_a_header(header: dict[str, Any], facts: dict[str, Any]) -> None:
    assert header_facts(header_of(json.dumps(header))) == {**NOTHING, **facts}


@pytest.mark.parametrize(
    ("rank", "read"),
    [
        (0, 0),
        (34, 34),
        ("7", 7),
        (-1, None),
        (True, None),
        (None, None),
        (1.0, None),
        ("x", None),
        (10**7, None),
    ],
)
def test_a_rank_is_a_small_integer(rank: object, read: int | None) -> None:
    assert rank_in_stored_header({"distributedInfo": {"rank": rank}}) == read


@pytest.mark.parametrize("text", ["", "[]", "null", "nonsense"])
def test_without_a_header_nothing_is_known(text: str) -> None:
    assert header_facts(header_of(text)) == NOTHING
