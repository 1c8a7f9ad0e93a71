"""What the Neuron profiler calls what we call otherwise: tracks, queues, opcodes; seen in exports of version 2.28."""

from __future__ import annotations

from types import MappingProxyType

ENGINES = MappingProxyType(
    {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd", "sync": "Sync"}
)
"""Lane -> engine, as in its ``subgroup``."""
MATRIX = "TensorMatrix"
"""The label of what the PE array computes; weights and all else of the queue stand under ``Tensor``."""
DMA_OPCODE = "DMA_DIRECT2D"
"""The opcode of an instruction that issues a DMA."""
OPCODES = MappingProxyType(
    {
        "nc_matmul": "MATMUL",
        "nc_matmul_mx": "MATMUL",
        "activation": "ACTIVATE",
        "activation_reduce": "ACTIVATE",
        "activate2": "ACTIVATE",
        "tensor_copy": "COPY",
    }
)
"""Instructions with another name than their own in capitals."""
REGULAR, TRANSPOSE = "REGULAR", "TRANSPOSE"
"""The ``instruction_type`` of matmuls."""


def opcode(name: str, lane: str) -> str:
    """The profiler's opcode of an instruction on an engine's lane; the name in capitals where none was seen."""
    if name.startswith("dma_"):
        return DMA_OPCODE
    if name == "nc_transpose" and lane == "tensor":
        return "MATMUL"
    return OPCODES.get(name, name.upper())


def label(opcode: str, lane: str) -> str:
    """The profiler's label, which names the track: ``TensorMatrix``, ``Tensor``, ``Vector``, ..."""
    return MATRIX if opcode == "MATMUL" else ENGINES[lane]


def queue(lane: str) -> tuple[str, str]:
    """Name and type of the queue of the DMAs that a lane issues: ``("qSyncDynamicHW", "hardware_dynamic")``."""
    if lane == "gpsimd":
        return "qGpSimdDynamic", "software_dynamic"
    return f"q{ENGINES[lane]}DynamicHW", "hardware_dynamic"
