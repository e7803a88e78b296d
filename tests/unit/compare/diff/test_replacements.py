"""Which kernels replaced which: precision and recall on simulated models with injected renames.

Each pair renames kernels to names of the same role from other libraries, removes kernels, and adds others,
half of them at the place of a removed one: as often as it, but with another role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

import tracewarehouse as tw
from tracewarehouse.compare.diff.pairing import LocatedKernel, replacements
from tracewarehouse.simulation import Noise

SEED = 20_261_123
SETTINGS: dict[str, Any] = {"ranks": 2, "layers": 2, "steps": 2, "memory": False, "noise": Noise(0, 0, 0, 0)}
# Names of kernels of several libraries, by what they do.
NAMES = {
    "matrix product": (
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn",
        "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8",
        "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0",
        "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNN",
        "triton_tem_fused_addmm_12",
    ),
    "attention": (
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_64x128x128_4x1x1",
        "attn_fwd.kd",
    ),
    "normalization": (
        "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, float, 9>(float*)",
        "triton_red_fused_native_layer_norm_3",
        "void apex::rms_norm_kernel<float>(float*, float const*)",
    ),
    "pointwise": (
        "triton_poi_fused_gelu_5",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)",
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl>(int)",
        "triton_poi_fused_native_dropout_7",
        "void fused_dropout_add_kernel<float>(float*)",
    ),
    "reduction": (
        "triton_red_fused_sum_2",
        "void cub::DeviceReduceKernel<cub::Policy600, int*>(int*)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
    ),
    "optimizer": (
        "void multi_tensor_apply_kernel<AdamFunctor<float>>(long)",
        "void fused_adam_kernel<float>(float*, float*)",
        "void at::native::multi_tensor_sgd(long)",
    ),
    "embedding": (
        "void at::native::embedding_backward_feature_kernel<float>(long const*)",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "void at::native::_scatter_gather_elementwise_kernel<128>(int)",
    ),
}
# What the kernels of the simulated model do, by a part of their names; the first that fits.
ROLES = {
    "gemm": "matrix product",
    "flash": "attention",
    "SoftMax": "normalization",
    "layer_norm": "normalization",
    "dropout": "pointwise",
    "indexSelect": "embedding",
    "multi_tensor": "optimizer",
    "reduce_kernel": "reduction",
    "elementwise": "pointwise",
}


def true_role(name: str) -> str:
    return next(role for text, role in ROLES.items() if text in name)


@dataclass(frozen=True)
class Pair:
    """The kernels of both sides, and old name → new name of those that were renamed."""

    base: list[LocatedKernel]
    head: list[LocatedKernel]
    renamed: dict[str, str]


def model(folder: Path) -> list[LocatedKernel]:
    """The computation of a simulated run by kernel and place."""
    tw.simulate(folder / "sim" / "run", **SETTINGS)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", jobs=1)
    counts: dict[tuple[str, str | None, str | None, str], int] = {}
    for row in warehouse.analyze("step_kernels").rows():
        if row["kind"] == "computation" and row["name"]:
            key = row["name"], row["path_sig"], row["op_sig"], row["module_path"]
            counts[key] = counts.get(key, 0) + row["count"]
    return [
        LocatedKernel("computation", name, path, op, count, 1_000 * count, module)
        for (name, path, op, module), count in sorted(counts.items())
    ]


def injected(base: Sequence[LocatedKernel], chance: Random) -> Pair:
    """Up to two kernels renamed, up to two gone and two new."""
    names = sorted({kernel.name for kernel in base})
    chosen = chance.sample(names, 4)
    renamed = {old: chance.choice(NAMES[true_role(old)]) for old in chosen[: chance.randint(0, 2)]}
    gone = chosen[2 : 2 + chance.randint(0, 2)]
    head = [replace(each, name=renamed.get(each.name, each.name)) for each in base if each.name not in gone]
    for _ in range(chance.randint(0, 2)):
        head += _new(base, gone, set(renamed.values()), chance)
    return Pair(list(base), head, renamed)


def _new(
    base: Sequence[LocatedKernel], gone: Sequence[str], taken: set[str], chance: Random
) -> list[LocatedKernel]:
    """A kernel of any role at any place, or of another role where a removed one was, and as often."""
    if gone and chance.random() < 0.5:
        old = chance.choice(gone)
        role = chance.choice([role for role in NAMES if role != true_role(old)])
        places = [each for each in base if each.name == old]
    else:
        role, places = chance.choice(list(NAMES)), [chance.choice(base)]
    free = [name for name in NAMES[role] if name not in taken]
    return [replace(place, name=free[0]) for place in places] if free else []


def study(base: Sequence[LocatedKernel], count: int) -> tuple[int, int, int, list[str]]:
    """Renames injected, pairs found, right ones, and the false pairs."""
    injections, right, false = 0, 0, []
    for seed in range(count):
        pair = injected(base, Random(SEED + seed))
        found, _ = replacements(pair.base, pair.head)
        names = {(old, new) for each in found.values() for old in each.old for new in each.new}
        injections += len(pair.renamed)
        right += len(names & set(pair.renamed.items()))
        false += [f"{old[:40]} → {new[:40]}" for old, new in sorted(names - set(pair.renamed.items()))]
    return injections, right + len(false), right, false


class At(NamedTuple):
    """A kernel of a side: what it computes, in an operator of a module, and how often per interval."""

    name: str
    op: str
    module: str = "Net_0 > MLP_0"
    calls: int = 4
    shapes: str = "[8,8]"

    @property
    def kernel(self) -> LocatedKernel:
        modules = [] if self.module.startswith("(") else self.module.split(" > ")
        op_sig, _, dtype = self.op.partition(" ")
        path = " > ".join([*(f"nn.Module: {each}" for each in modules), op_sig])
        op_sig = f'{op_sig} [{self.shapes}] ["{dtype or "c10::BFloat16"}"]'
        return LocatedKernel("computation", self.name, path, op_sig, self.calls, 10, self.module)


LINEAR, OTHER, GELU = "Net_0 > MLP_0 > Linear_0", "Net_0 > MLP_0 > Linear_1", "Net_0 > MLP_0 > GELU_0"
NO_MODULE = "(outside any module)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}Functor<float> >(int)"
GEMM, PRODUCT = At("sm80_xmma_gemm_tn", "aten::addmm", LINEAR), At("nvjet_tst_64x8", "aten::bmm")
OTHER_GEMM = GEMM._replace(module=OTHER)
OTHER_LIBRARY = At("Cijk_B", "aten::addmm", NO_MODULE)
ACT = At(ELEMENTWISE.format("Gelu"), "aten::gelu", GELU)
CAST = At("void bfloat16_copy_kernel_cuda(int)", "aten::copy_", LINEAR)
SOFTMAX = At("void cunn_SoftMaxForward<8>(float*)", "aten::_softmax")
# Base, head, and the changes in words with the names of both sides.
CASES: dict[str, tuple[list[At], list[At], list[str]]] = {
    "another architecture": (
        [GEMM],
        [GEMM._replace(name="sm90_xmma_gemm_tn")],
        ["replaced: sm80_xmma_gemm_tn → sm90_xmma_gemm_tn"],
    ),
    "another library": (
        [GEMM],
        [GEMM._replace(name="nvjet_tst")],
        ["replaced: sm80_xmma_gemm_tn → nvjet_tst"],
    ),
    "another number of Inductor": (
        [At("triton_poi_fused_a_0", "triton_poi_fused_a_0", NO_MODULE), At("triton_red_b_1", "r", NO_MODULE)],
        [At("triton_poi_fused_a_3", "triton_poi_fused_a_3", NO_MODULE), At("triton_red_b_1", "r", NO_MODULE)],
        ["replaced: triton_poi_fused_a_0 → triton_poi_fused_a_3"],
    ),
    "another operator in the module": (
        [GEMM],
        [At("cutlass3x_sm90_gemm", "aten::_scaled_mm c10::Float8_e4m3fn", LINEAR), CAST],
        ["re-typed bf16 → fp8: sm80_xmma_gemm_tn → cutlass3x_sm90_gemm"],
    ),
    "another type": (
        [At("ampere_sgemm_128x64_tn", "aten::addmm float", LINEAR)],
        [At("ampere_bf16_s16816gemm_bf16", "aten::addmm c10::BFloat16", LINEAR), CAST],
        ["re-typed fp32 → bf16: ampere_sgemm_128x64_tn → ampere_bf16_s16816gemm_bf16"],
    ),
    "a fusion named by both halves": (
        [GEMM, OTHER_GEMM, ACT],
        [At("cutlass_gemm_gelu", "aten::addmm", LINEAR), OTHER_GEMM],
        [f"fused: sm80_xmma_gemm_tn + {ACT.name} → cutlass_gemm_gelu"],
    ),
    "a fusion without modules": (
        [GEMM._replace(module=NO_MODULE, calls=8), ACT._replace(module=NO_MODULE)],
        [
            GEMM._replace(module=NO_MODULE),
            At("triton_poi_fused_addmm_gelu_0", "aten::linear", NO_MODULE),
        ],
        [f"fused: sm80_xmma_gemm_tn + {ACT.name} → triton_poi_fused_addmm_gelu_0"],
    ),
    "a fusion with a name of another location": (
        [GEMM, ACT, At("cutlass_gemm_gelu", "aten::addmm", "Net_0 > Head_0")],
        [
            At("cutlass_gemm_gelu", "aten::addmm", LINEAR),
            At("cutlass_gemm_gelu", "aten::addmm", "Net_0 > Head_0"),
        ],
        [f"fused: sm80_xmma_gemm_tn + {ACT.name} → cutlass_gemm_gelu"],
    ),
    "a product that a kernel in the place of the activation took over": (
        [GEMM, OTHER_GEMM, ACT],
        [At("triton_poi_fused_0", "aten::gelu", GELU), OTHER_GEMM],
        [f"fused: sm80_xmma_gemm_tn + {ACT.name} → triton_poi_fused_0"],
    ),
    "a new operator instead of three": (
        [PRODUCT._replace(calls=8), SOFTMAX],
        [At("void flash_fwd_kernel<8>(int)", "aten::_flash_attention")],
        [f"fused: nvjet_tst_64x8 + {SOFTMAX.name} → void flash_fwd_kernel<8>(int)"],
    ),
    "a split": (
        [At("cutlass_gemm_gelu", "aten::addmm", LINEAR), OTHER_GEMM],
        [GEMM, OTHER_GEMM, ACT],
        [f"split: cutlass_gemm_gelu → sm80_xmma_gemm_tn + {ACT.name}"],
    ),
    # Innocent kernels.
    "copies that are added": ([GEMM], [GEMM, CAST], []),
    "more calls": ([GEMM], [GEMM._replace(calls=8)], []),
    "an activation that is gone": ([GEMM, ACT], [GEMM], []),
    "an activation that is gone beside a replaced product": (
        [GEMM, ACT],
        [GEMM._replace(name="nvjet_tst")],
        ["replaced: sm80_xmma_gemm_tn → nvjet_tst"],
    ),
    "a copy in place of an activation": ([GEMM, ACT], [GEMM, CAST], []),
    "another activation of the same template": (
        [ACT],
        [At(ELEMENTWISE.format("Add"), "aten::add", "Net_0 > MLP_0 > Residual_0")],
        [],
    ),
    "one product for another in another module": ([GEMM], [At("nvjet_tst", "aten::mm", OTHER)], []),
    "calls that are not as often": ([GEMM], [GEMM._replace(name="nvjet_tst", calls=12)], []),
    "two products under other names with another batch: the shapes of their weights agree": (
        [
            GEMM._replace(module=NO_MODULE, shapes="[8,8],[8,16]"),
            OTHER_LIBRARY._replace(shapes="[8,24],[24,64]"),
        ],
        [
            At("nvjet_a", "aten::addmm", NO_MODULE, 4, "[32,24],[24,64]"),
            At("nvjet_b", "aten::addmm", NO_MODULE, 4, "[32,8],[8,16]"),
        ],
        ["replaced: sm80_xmma_gemm_tn → nvjet_b", "replaced: Cijk_B → nvjet_a"],
    ),
    "one word for two": (
        [GEMM, At("Cijk_B", "aten::addmm", OTHER), ACT],
        [At("cutlass_gemm_gelu", "fused", "Net_0 > MLP_0")],
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_kernels_that_do_the_same_work_are_one_row(case: str) -> None:
    base, head, wanted = CASES[case]
    sides = [[each.kernel for each in side] for side in (base, head)]
    found = replacements(sides[0], sides[1])
    for side in found:
        assert [f"{each.change}: {each.label}" for each in dict.fromkeys(side.values())] == wanted
    # The other way round a fusion is a split, with the same kernels.
    back = replacements(sides[1], sides[0])
    assert {(each.new, each.old) for each in back[0].values()} == {
        (each.old, each.new) for each in found[0].values()
    }
    assert back[0].keys() == found[1].keys()


def test_renames_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    injections, found, right, false = study(model(tmp_path), 200)
    with capsys.disabled():
        print(
            f"\n{right} of {found} pairs are right; {right} of {injections} renames found", *false, sep="\n"
        )
    assert right >= 0.98 * found
    assert right >= 0.95 * injections


def test_kernels_that_prepare_a_convolution_do_not_replace_one() -> None:
    def kernel(name: str) -> LocatedKernel:
        return LocatedKernel("computation", name, "Conv2d_0", "aten::cudnn_convolution", 4, 100)

    convolution, other = "volta_scudnn_128x64_relu_interior_nn_v1", "cudnn_ampere_scudnn_128x64_nn_v1"
    for name in (
        "void cudnn::ops::nchwToNhwcKernel<float, float, float>(float)",
        "void cask_cudnn::computeWgradBOffsetsKernel(int)",
        "void cudnn::cnn::im2col4d_kernel<float, long>(float)",
    ):
        assert replacements([kernel(convolution)], [kernel(name)]) == ({}, {})
    assert replacements([kernel(convolution)], [kernel(other)])[0][kernel(convolution)].new == (other,)


def test_several_candidates_are_paired_only_by_similar_names() -> None:
    def kernels(*names: str) -> list[LocatedKernel]:
        return [LocatedKernel("computation", name, "Linear_0", "aten::addmm", 4, 100) for name in names]

    small, large = "ampere_sgemm_32x32_tn", "cutlass_gemm_kernel<128>(int)"
    assert replacements(kernels(small, large), kernels("nvjet_a_matmul", "Cijk_B")) == ({}, {})
    found, _ = replacements(kernels(small, large), kernels("Cijk_B", "ampere_sgemm_128x64_tn"))
    assert {old.name: joined.new[0] for old, joined in found.items()} == {
        small: "ampere_sgemm_128x64_tn",
        large: "Cijk_B",
    }
