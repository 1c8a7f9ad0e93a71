"""Limits of registers, of meetings and of forms that are rare, at their bound and beyond, with sentences."""

from __future__ import annotations

from typing import Any

import pytest
from call_kit import Made, T

from nkireview.isa.enums import Memory
from nkireview.isa.table import ROWS

HBM, SHARED, PSUM = Memory.hbm, Memory.shared_hbm, Memory.psum
BASES = {
    made.name: made
    for made in (
        Made("register_alloc", {}, {"x": 1, "dst": ("register", 0)}),
        Made("register_move", {}, {"dst": ("register", 0), "src": 1}),
        Made("register_load", {"src": T((1, 1), "int32")}, {"dst": ("register", 0)}),
        Made("register_store", {"dst": T((1, 1), "int32")}, {"src": ("register", 0)}),
        Made(
            "sendrecv",
            {"src": T((128, 256)), "dst": T((128, 256))},
            {"send_to_rank": 1, "recv_from_rank": 1, "pipe_id": 0},
            lnc=2,
        ),
        Made("core_barrier", {"data": T((1, 1), memory=SHARED)}, {"cores": (0, 1)}, lnc=2),
        *(
            Made(
                name,
                {"srcs0": T((4, 8), memory=HBM), "dsts0": T(shape, memory=HBM)},
                {"replica_group": ((0, 1), (2, 3)), "collective_dim": 0, **more},
            )
            for name, shape, more in (
                ("reduce_scatter", (2, 8), {"op": "add"}),
                ("all_to_all", (4, 8), {}),
            )
        ),
    )
}
BASES["old_move"] = Made("register_move", {}, {"dst": ("register", 0), "imm": 1}, nki="0.2")
SWAP = {"dma_engine": "gpsimd_dma"}
OLD_SWAP = {"use_gpsimd_dma": True, "nki": "0.2"}

Case = tuple[str, dict[str, Any], str | None]


def filled(name: str, parameter: str) -> list[Case]:
    """What may be put into a register."""
    return [
        (name, {parameter: value}, text)
        for value, text in (
            (2**32 - 1, None),
            (-(2**31), None),
            (("register", 3), None),
            (2**32, f"{parameter} 4294967296 does not fit into the 32 bits of a register"),
            (-(2**31) - 1, f"{parameter} -2147483649 does not fit into the 32 bits of a register"),
            (1.5, f"{parameter} is 1.5, a register takes an integer or another register"),
            (True, f"{parameter} is True, a register takes an integer or another register"),
        )
    ]


ONE_ELEMENT = "must be 1; a register holds one element; pass a tensor of shape (1, 1) or (1,)"
CASES: list[Case] = [
    *filled("register_alloc", "x"),
    *filled("register_move", "src"),
    *filled("old_move", "imm"),
    *(
        (name, changes, text)
        for name, operand in (("register_load", "src"), ("register_store", "dst"))
        for changes, text in (
            ({}, None),
            ({operand: T((1,), "int32", HBM)}, None),
            ({f"{operand}.shape": (1, 2)}, f"{operand} element count is 2, {ONE_ELEMENT}"),
            ({f"{operand}.shape": (2, 1)}, f"{operand} element count is 2, {ONE_ELEMENT}"),
            ({f"{operand}.memory": PSUM}, f"{operand} is in PSUM, expected HBM or SBUF"),
        )
    ),
    ("sendrecv", {}, None),
    *(
        ("sendrecv", {f"{operand}.shape": (129, 256)}, f"{operand} partition size 129 exceeds 128")
        for operand in ("src", "dst")
    ),
    ("sendrecv", {"src.shape": (127, 256)}, "src partition size 127 differs from dst partition size 128"),
    ("sendrecv", {"src.shape": (128, 255)}, "src free size 255 differs from dst free size 256"),
    ("sendrecv", {"dst.dtype": "int32"}, "dst dtype int32 differs from src dtype float32"),
    ("sendrecv", {"lnc": 1}, "needs LNC=2, the kernel is launched with LNC=1"),
    *(
        ("sendrecv", {name: value}, f"{name} is {value}, must be 0 or 1")
        for name in ("send_to_rank", "recv_from_rank")
        for value in (2, -1, True)
    ),
    ("sendrecv", {"send_to_rank": 0, "recv_from_rank": 0}, None),
    ("sendrecv", SWAP, None),
    ("sendrecv", {"src.shape": (128, 257), "dst.shape": (128, 257)}, None),
    *(
        (
            "sendrecv",
            {**swap, f"{operand}.shape": (128, 257)},
            f"{operand} has 1028 bytes a partition, gpsimd_dma moves at most 1024 of dtype float32",
        )
        for swap in (SWAP, OLD_SWAP)
        for operand in ("src", "dst")
    ),
    (
        "sendrecv",
        {**SWAP, "src": T((128, 257), "bfloat16"), "dst": T((128, 257), "bfloat16")},
        "src has 514 bytes a partition, gpsimd_dma moves at most 512 of dtype bfloat16",
    ),
    ("sendrecv", OLD_SWAP, None),
    ("sendrecv", {**SWAP, "nki": "0.3", "src.shape": (112, 256), "dst.shape": (112, 256)}, None),
    *(
        (
            "sendrecv",
            {**swap, "nki": nki, "src.shape": (120, 256), "dst.shape": (120, 256)},
            "src has 120 partitions, gpsimd_dma needs a multiple of 16",
        )
        for swap, nki in ((OLD_SWAP, "0.2"), (SWAP, "0.3"))
    ),
    ("sendrecv", {**SWAP, "nki": "0.4", "src.shape": (120, 256), "dst.shape": (120, 256)}, None),
    ("sendrecv", {"nki": "0.3", "src.shape": (120, 256), "dst.shape": (120, 256)}, None),
    ("sendrecv", {"src.memory": PSUM}, "src is in PSUM, expected SBUF"),
    ("core_barrier", {}, None),
    ("core_barrier", {"lnc": 1}, "needs LNC=2, the kernel is launched with LNC=1"),
    *(
        ("core_barrier", {"cores": cores}, f"cores is {cores}, must be (0, 1)")
        for cores in ((0,), (1, 0), (0, 1, 2), 2)
    ),
    ("core_barrier", {"data.memory": HBM}, "data is in HBM, expected shared_hbm or SBUF"),
    *(
        (name, changes, text)
        for name in ("reduce_scatter", "all_to_all")
        for changes, text in (
            ({}, None),
            ({"srcs0": None}, "srcs holds no tensor, at least one is needed"),
            ({"dsts0": None}, "dsts holds no tensor, at least one is needed"),
            ({"srcs1": T((4, 8), memory=HBM)}, "srcs holds 2 tensors and dsts 1, as many are needed"),
        )
    ),
]


@pytest.mark.parametrize(
    ("name", "changes", "text"), CASES, ids=lambda value: value if isinstance(value, str) else None
)
def test_limit(name: str, changes: dict[str, Any], text: str | None) -> None:
    found = BASES[name].changed(changes).breaches()
    if text is None:
        assert found == []
    else:
        assert text in found


@pytest.mark.parametrize("name", ["sendrecv", "core_barrier"])
def test_cores_meet_from_v3_and_0_2_on(name: str) -> None:
    made = BASES[name]
    assert made.changed({"target": "trn1"}).breaches() == ["needs NeuronCore-v3 or v4, not v2"]
    assert made.changed({"nki": "0.1"}).breaches() == ["exists since NKI 0.2, not in NKI 0.1"]
    for nki in ("0.2", "0.3", "0.6"):
        for target in ("trn2", "trn3"):
            assert made.changed({"target": target, "nki": nki}).breaches() == []


def test_cores_meet_as_a_pair() -> None:
    assert {found.name for found in ROWS.values() if found.meets == "cores"} == {"sendrecv", "core_barrier"}
