"""Device specifications: which device a name is, and figures that contradict each other."""

from __future__ import annotations

import re

import pytest

from conftest import ROOT
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck import engine

# Names as drivers report them. Those without a device are other products, slices of a GPU, or not known.
DEVICES = {
    "Tesla V100-SXM2-16GB": "V100 SXM2",
    "Tesla V100-SXM2-32GB": "V100 SXM2",
    "Tesla V100-SXM3-32GB": "V100 SXM3",
    "Tesla V100-DGXS-32GB": "V100 DGX Station",
    "Tesla V100-PCIE-16GB": "V100 PCIe",
    "Tesla V100S-PCIE-32GB": None,
    "Tesla T4": "T4",
    "NVIDIA T4": "T4",
    "NVIDIA T4G": None,
    "NVIDIA GeForce RTX 2080 Ti": "RTX 2080 Ti",
    "A100-SXM4-40GB": "A100 SXM4 40 GB",
    "NVIDIA A100-SXM4-40GB": "A100 SXM4 40 GB",
    "NVIDIA A100-PG509-200": "A100 SXM4 40 GB",
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": None,
    "NVIDIA A100-SXM4-80GB": "A100 SXM4 80 GB",
    "NVIDIA A100-SXM-80GB": "A100 SXM4 80 GB",
    "NVIDIA A100-SXM-64GB": None,
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40 GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80 GB",
    "NVIDIA A800-SXM4-80GB": None,
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "NVIDIA A10-24Q": None,
    "NVIDIA A16": None,
    "NVIDIA A30": "A30",
    "NVIDIA A40": "A40",
    "NVIDIA RTX A4000": None,
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40-24Q": None,
    "NVIDIA L40S": "L40S",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA GeForce RTX 4090 D": None,
    "NVIDIA GeForce RTX 4090 Laptop GPU": None,
    "NVIDIA GeForce RTX 5090": "RTX 5090",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H100 80GB HBM3 MIG 3g.40gb": None,
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H100": None,
    "NVIDIA H800": None,
    "NVIDIA H20": "H20",
    "NVIDIA H20-3e": None,
    "NVIDIA H200": "H200",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA GH200 480GB": None,
    "NVIDIA B200": "B200",
    "NVIDIA GB200": "GB200",
    "NVIDIA B300": "B300",
    "NVIDIA B300 SXM6 AC": "B300",
    "NVIDIA GB300": "GB300",
    "NVIDIA B200 MIG 1g.23gb": None,
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": None,
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI250": "MI250, one die",
    "AMD Instinct MI250X": "MI250X, one die",
    "AMD Instinct MI250X / MI250": "MI250X or MI250, one die",
    "AMD Instinct MI250X/MI250": "MI250X or MI250, one die",
    "AMD Instinct MI300A": "MI300A",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI300X VF": "MI300X",
    "AMD Instinct MI300X OAM": "MI300X",
    "AMD Instinct MI308X": None,
    "AMD Instinct MI325X": "MI325X",
    "AMD Instinct MI350X": "MI350X",
    "AMD Instinct MI355X": "MI355X",
    "TPU v4": "TPU v4",
    "TPU v4 lite": None,
    "TPU v5 lite": "TPU v5e",
    "TPU v5": "TPU v5p",
    "TPU v5p": "TPU v5p",
    "TPU v6 lite": "TPU v6e",
    "TPU v6e": "TPU v6e",
    "GAUDI2": "Gaudi 2",
    "GAUDI3": "Gaudi 3",
    "Intel(R) Data Center GPU Max 1550": "Max 1550",
    "Intel(R) Data Center GPU Max 1100": None,
    "NVIDIA Foo": None,
}
BODY = Catalog.load(ROOT / "sql").get("device_specs").body
SIZES = (
    "rule_id",
    "name",
    "memory_bytes_per_ns",
    "l2_bytes",
    "host_link_bytes_per_ns",
    "device_link_bytes_per_ns",
)


@pytest.fixture(scope="module")
def con() -> engine.Connection:
    return engine.connect(threads=1)


def test_a_name_is_one_device(con: engine.Connection) -> None:
    sql = f"SELECT DISTINCT name FROM ({BODY}) WHERE regexp_matches(?, pattern)"
    found = {each: [name for (name,) in con.execute(sql, [each]).fetchall()] for each in DEVICES}
    assert found == {each: [] if name is None else [name] for each, name in DEVICES.items()}


def test_every_device_has_a_name_above(con: engine.Connection) -> None:
    devices = {name for (name,) in con.execute(f"SELECT DISTINCT name FROM ({BODY})").fetchall()}
    assert devices == set(DEVICES.values()) - {None}


def test_a_device_has_one_row_per_type_and_one_set_of_facts(con: engine.Connection) -> None:
    rows = con.execute(f"SELECT {', '.join(SIZES)}, dtype FROM ({BODY})").fetchall()
    assert len({(row[0], row[-1]) for row in rows}) == len(rows)
    assert len({row[:-1] for row in rows}) == len({row[0] for row in rows}) == len({row[1] for row in rows})


@pytest.mark.parametrize(
    ("dtype", "slower", "least", "most"),
    [("fp8", "bf16", 1, 2), ("fp4", "fp8", 2, 3), ("int8", "bf16", 1, 4), ("bf16", "tf32", 2, 2)],
)
def test_dense_rates_are_as_many_times_those_of_wider_types(
    con: engine.Connection, dtype: str, slower: str, least: float, most: float
) -> None:
    """A figure with sparsity among dense ones would be twice as high. GeForce cards halve bf16, not int8."""
    sql = f"""
        SELECT fast.name, fast.flop_per_ns / slow.flop_per_ns AS ratio
        FROM ({BODY}) AS fast
        JOIN ({BODY}) AS slow ON slow.rule_id = fast.rule_id
        WHERE fast.dtype = ? AND slow.dtype = ? AND fast.rate_known AND slow.rate_known
    """
    rows = con.execute(sql, [dtype, slower]).fetchall()
    assert len(rows) >= 4
    assert [row for row in rows if not least - 0.05 <= row[1] <= most + 0.05] == []


def test_figures_that_vendors_give(con: engine.Connection) -> None:
    sql = f"SELECT dtype, flop_per_ns FROM ({BODY}) WHERE name = ? ORDER BY dtype"
    die = dict(con.execute(sql, ["MI250, one die"]).fetchall())
    # The vendor's table is of both dies: 362.1 and 90.5 TFLOP/s.
    assert die == {"bf16": 181_050, "fp16": 181_050, "int8": 181_050, "fp32": 45_250, "fp64": 45_250}
    sql = f"SELECT l2_bytes, host_link_bytes_per_ns, device_link_bytes_per_ns FROM ({BODY}) WHERE name = ?"
    assert con.execute(sql, ["A100 SXM4 80 GB"]).fetchone() == (41_943_040, 32, 300)
    assert con.execute(sql, ["L4"]).fetchone() == (None, 32, None)


def test_what_was_compared_is_said_by_type(con: engine.Connection) -> None:
    """Texts of a vendor seldom give all rates: those of H100 SXM that were read lack the one of fp64."""
    sql = f"SELECT list(dtype ORDER BY dtype) FROM ({BODY}) WHERE name = ? AND NOT checked"
    assert con.execute(sql, ["H100 SXM"]).fetchone() == (["fp64"],)
    assert con.execute(sql, ["A100 SXM4 80 GB"]).fetchone() == (None,)
    assert con.execute(sql, ["H20"]).fetchone() == (["bf16", "fp16", "fp32", "fp8", "int8", "tf32"],)


def test_sources_have_a_year(con: engine.Connection) -> None:
    rows = con.execute(f"SELECT DISTINCT source, source_date FROM ({BODY})").fetchall()
    assert [row for row in rows if not row[0] or not re.fullmatch(r"20[12]\d", row[1])] == []
