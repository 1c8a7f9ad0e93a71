"""Every entry of the table of migrations: a text that it is about, and the text of the guide that needs it no more.

What each case expects, release and line, is written down from the migration guide, the release notes and the stubs of
the releases, not from the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

import pytest

from nkireview.checks.migration import DETECTORS, Needed, migration
from nkireview.checks.source import read_source
from nkireview.isa.migration import MigrationError, covers, migration_table, read_table, removed_since
from nkireview.isa.names import changed_names
from nkireview.isa.release import KNOWN, LATEST, LEGACY, Release
from nkireview.isa.table import ROWS

OLD = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.compiler as ncc
import numpy as np
"""
NEW = """\
import nki
import nki.language as nl
import nki.isa as nisa
import nki.collectives as ncc
import numpy as np
"""


@dataclass(frozen=True)
class Case:
    """What an entry finds: `since`, a body of a kernel of `start`, and one that it does not find anything in."""

    id: str
    since: str
    before: str
    after: str = "pass"
    start: str = "legacy"
    to: str = "0.6"
    line: int = 1
    whole: bool = False

    def text(self, body: str) -> str:
        head = OLD if self.start == "legacy" else NEW
        body = dedent(body).strip("\n")
        if self.whole:
            return f"{head}{body}\n"
        return f"{head}@nki.jit\ndef kernel(x, out):\n{indent(body, '    ')}\n"

    @property
    def expected_line(self) -> int:
        return self.line + (5 if self.whole else 7)


def gone(id: str, since: str, before: str, after: str = "pass", **more: object) -> Case:
    return Case(id, since, before, after, **more)  # type: ignore[arg-type]


CASES = (
    gone("allocator", "0.2", "t = nl.ndarray((128, 4), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))"),
    gone("allocator", "0.2", "t = nl.ndarray((128, 4), nl.float32, buffer=ncc.psum.alloc(place))"),
    gone("no-reorder", "0.2", "guard = ncc.no_reorder()", "guard = nl.no_reorder()"),
    gone("allocation-directive", "0.2", "ncc.multi_buffer(2)"),
    gone("bfp16", "0.2", "low = nl.bfp16.min"),
    gone("tensor-class", "0.2", "def other(x: nki.tensor):\n    pass", whole=True),
    gone(
        "mutable-tensor",
        "0.2",
        "import neuronxcc.nki.typing as nt\ndef k(x: nt.mutable_tensor): pass",
        line=2,
        whole=True,
    ),
    gone("framework-kernel", "0.2", "class Mine(nki.FrameworkKernel):\n    pass", whole=True),
    gone("framework-call", "0.2", "from torch_neuronx import nki_jit\nf = nki_jit(g)", line=2, whole=True),
    gone("private-module", "0.2", "from neuronxcc.nki.kernels.attention import flash_fwd", whole=True),
    gone("nccl", "0.2", "import neuronxcc.nki.nccl as nccl", whole=True),
    gone("custom-op", "0.2", "nisa._tiled_offloaded_fma(x)"),
    gone("math-call", "0.2", "y = nl.exp(x)", "y = nl.add(x, 1.0)", to="0.2"),
    gone("import", "0.2", "import neuronxcc.nki.typing as nt", "import math", whole=True),
    gone("mask", "0.2", "t = nl.load(x[0:128, 0:4], mask=rows)", "t = nl.load(x[0:128, 0:4])"),
    gone("mask", "0.2", "t = nl.load(x[0:128, 0:4],\n            mask=rows)", line=2),
    gone("iota-expression", "0.2", "t = nisa.iota(e, dtype=nl.int32)"),
    gone(
        "affine-select-predicate", "0.2", "t = nisa.affine_select(pred=p, on_true_tile=a, on_false_value=0.0)"
    ),
    gone("memset-shape", "0.2", "t = nisa.memset((128, 4), value=0, dtype=nl.int32)"),
    gone("dst-first", "0.2", "t = nisa.activation(op=nl.exp, data=a)"),
    gone("dst-first", "0.2", "t[...] = nisa.reciprocal(a)"),
    gone("dst-first", "0.2", "t = nisa.tensor_tensor(a, b, nl.add)"),
    gone(
        "dtype-of-instruction", "0.2", "t = nisa.tensor_copy(a, dtype=nl.bfloat16)", "t = nisa.tensor_copy(a)"
    ),
    gone("psum-accumulation", "0.2", "acc[...] += nisa.nc_matmul(a, b)"),
    gone("psum-accumulation", "0.2", "acc += nl.matmul(a, b, transpose_x=True)"),
    gone(
        "order-stream-shuffle",
        "0.2",
        "nisa.nc_stream_shuffle(a, b, [0])",
        "nisa.nc_stream_shuffle(src=a, dst=b, shuffle_mask=[0])",
    ),
    gone("unknown-keyword", "0.2", "nisa.dma_copy(dst=a, src=b, speed=2)", "nisa.dma_copy(dst=a, src=b)"),
    gone("matmul-accumulate-flag", "0.2", "t = nisa.nc_matmul(a, b, psumAccumulateFlag=3)"),
    gone(
        "matmul-onezero",
        "0.2",
        "nisa.nc_matmul(c, a, b, is_moving_zero=True)",
        "nisa.nc_matmul(c, a, b, is_moving_onezero=True)",
        start="0.2",
    ),
    gone(
        "double-row-name",
        "0.2",
        "t = nisa.nc_matmul(a, b, perf_mode='double_row_gen3')",
        "t = nisa.nc_matmul(a, b, perf_mode='double_row')",
    ),
    gone("device-print", "0.2", "nl.device_print(prefix='t', tensor=x)", "nl.device_print('t', x)"),
    gone("first-parameter-x", "0.3", "t = nl.copy(src=x)", "t = nl.copy(x)"),
    gone("first-parameter-of-like", "0.3", "t = nl.zeros_like(a=x)", "t = nl.zeros_like(x)"),
    gone(
        "first-parameter-of-expand", "0.3", "t = nl.expand_dims(data=x, axis=0)", "t = nl.expand_dims(x, 0)"
    ),
    gone(
        "softmax-compute-dtype",
        "0.3",
        "t = nl.softmax(x, axis=1, compute_dtype=nl.float32)",
        "t = nl.softmax(x, axis=1)",
    ),
    gone("rand-dtype", "0.3", "t = nl.rand((128, 4))", "t = nl.rand((128, 4), dtype=nl.float32)"),
    gone("random-seed-tensor", "0.3", "nl.random_seed(42)", "nl.random_seed(seed)"),
    gone(
        "numpy-operator",
        "0.2",
        "t = nisa.tensor_reduce(np.max, a, axis=1)",
        "t = nisa.tensor_reduce(nl.maximum, a, axis=1)",
    ),
    gone(
        "numpy-operator",
        "0.2",
        "t = nisa.activation(op=np.exp, data=a)",
        "t = nisa.activation(op=nl.exp, data=a)",
    ),
    gone(
        "reduction-operator",
        "0.2",
        "t = nisa.tensor_reduce(op=nl.max, data=a, axis=1)",
        "t = nisa.tensor_reduce(op=nl.maximum, data=a, axis=1)",
    ),
    gone(
        "operator-gone",
        "0.2",
        "t = nisa.tensor_scalar(a, op0=nl.logical_not, operand0=0)",
        "t = nisa.tensor_scalar(a, op0=nl.logical_xor, operand0=1)",
    ),
    gone(
        "numpy-dtype",
        "0.2",
        "t = nl.ndarray((128, 4), dtype=np.float32)",
        "t = nl.ndarray((128, 4), dtype=nl.float32)",
    ),
    gone(
        "block-dimension",
        "0.2",
        "t = nl.ndarray((8, nl.par_dim(128), 4), nl.float32)",
        "t = nl.ndarray((nl.par_dim(128), 8, 4), nl.float32)",
    ),
    gone("tile-operator", "0.2", "t = nl.load(x)\ny = t * 2.0", "t = nl.load(x)\ny = t.shape[0] * 2", line=2),
    gone("tile-operator", "0.2", "t = nl.zeros((128, 4), nl.float32)\nt += nl.load(x)", line=2),
    gone(
        "astype",
        "0.2",
        "t = nl.load(x)\ny = t.astype(nl.bfloat16)",
        "t = np.zeros(4)\ny = t.astype(np.int32)",
        line=2,
    ),
    gone("broadcast-method", "0.2", "t = nl.load(x)\ny = t.broadcast_to((128, 4))", line=2),
    gone("tile-method", "0.2", "t = nl.load(x)\ny = t.expand_dims(0)", line=2),
    gone("tile-assignment", "0.2", "t = nl.ndarray((128, 4), nl.float32)\nt[...] = nl.exp(a)", line=2),
    gone(
        "indirect-index",
        "0.2",
        "i = nl.load(index)\nt = nl.load(x[i[p, 0], f])",
        "i = [0, 1]\nt = nl.load(x[i[0], f])",
        line=2,
    ),
    gone("indirect-index", "0.2", "i = nl.load(index)\nnisa.dma_copy(dst=t, src=x[i, f])", line=2),
    gone(
        "nested-slice",
        "0.2",
        "t = nl.ndarray((8, 128, 4), nl.float32)\ny = nl.exp(t[0][0:128])",
        "t = nl.ndarray((8, 128, 4), nl.float32)\ny = nl.exp(t[0, 0:128])",
        line=2,
    ),
    gone(
        "parallel-loop",
        "0.2",
        "for i in nl.affine_range(4):\n    pass",
        "for i in nl.static_range(4):\n    pass",
    ),
    gone(
        "carried-dependence",
        "0.2",
        """
        m = nl.ndarray((128, 1), nl.float32)
        for i in nl.affine_range(4):
            m[...] = nl.maximum(m, nl.load(x))
        """,
        """
        m = nl.ndarray((128, 1), nl.float32)
        for i in nl.sequential_range(4):
            m[...] = nl.maximum(m, nl.load(x))
        """,
        line=2,
    ),
    gone(
        "traced-once",
        "0.2",
        """
        n = 0
        for i in range(8):
            t = nl.load(x)
            n += 1
        """,
        """
        n = 0
        for i in nl.static_range(8):
            t = nl.load(x)
            n += 1
        """,
        line=4,
    ),
    gone(
        "traced-once",
        "0.2",
        """
        for i in nl.sequential_range(8):
            if i == 0:
                t = nl.load(x)
        """,
        line=2,
    ),
    gone(
        "grid",
        "0.2",
        "@nki.jit\ndef k(x):\n    pass\nk[4, 2](a)",
        "@nki.jit\ndef k(x):\n    pass\nk[2](a)",
        line=4,
        whole=True,
    ),
    gone(
        "grid",
        "0.2",
        "@nki.jit\ndef k(x):\n    pass\nk[3](a)",
        "@nki.jit\ndef k(x):\n    pass\nk[1](a)",
        line=4,
        whole=True,
    ),
    gone(
        "grid-size",
        "0.2",
        "@nki.jit\ndef k(x):\n    pass\nk[n](a)",
        "@nki.jit\ndef k(x):\n    pass\nk[2](a)",
        line=4,
        whole=True,
    ),
    gone("grid", "0.2", "i = nl.program_id(1)", "i = 0"),
    gone("grid-size", "0.2", "i = nl.program_id(0)", "i = 0"),
    gone("written-parameter", "0.2", "nl.store(out[0:128], x)", "nl.store(made[0:128], x)"),
    gone(
        "nested-jit",
        "0.2",
        "@nki.jit\ndef part(x):\n    pass\n@nki.jit\ndef whole(x):\n    part(x)",
        "def part(x):\n    pass\n@nki.jit\ndef whole(x):\n    part(x)",
        line=6,
        whole=True,
    ),
    gone(
        "loop-directive",
        "0.2",
        "for i in nl.static_range(4, directives=None):\n    pass",
        "for i in nl.static_range(4):\n    pass",
    ),
    gone(
        "jit-option",
        "0.2",
        "@nki.jit(show_compiler_tb=True)\ndef k(x):\n    pass",
        "@nki.jit\ndef k(x):\n    pass",
        whole=True,
    ),
    gone("engine-constant", "0.2", "e = nisa.vector_engine", "e = nisa.engine.vector"),
    gone(
        "keyword-only",
        "0.3",
        "@nki.jit\ndef k(x, *, flag=True):\n    pass",
        "@nki.jit\ndef k(x, flag=True):\n    pass",
        line=2,
        whole=True,
        start="0.2",
    ),
    gone(
        "list-default",
        "0.3",
        "@nki.jit\ndef k(x, stride=[1, 1]):\n    pass",
        "@nki.jit\ndef k(x, stride=(1, 1)):\n    pass",
        line=2,
        whole=True,
        start="0.2",
    ),
    gone("is", "0.3", "if x is True:\n    pass", "if x == True:\n    pass", start="0.2"),
    gone("python-subset", "0.2", "try:\n    pass\nexcept ValueError:\n    pass"),
    gone(
        "dma-copy-rmw",
        "0.3",
        "nisa.dma_copy(a, b, dst_rmw_op=nl.add)",
        "nisa.dma_compute(a, [b], reduce_op=nl.add)",
        start="0.2",
    ),
    gone("dma-copy-rmw", "0.3", "nisa.dma_copy(dst=a, src=b, dst_rmw_op=nl.add)"),
    gone(
        "dma-copy-psum",
        "0.3",
        "p = nl.ndarray((128, 4), nl.float32, buffer=nl.psum)\nnisa.dma_copy(dst=out, src=p[0:128, 0:4])",
        "p = nl.ndarray((128, 4), nl.float32, buffer=nl.sbuf)\nnisa.dma_copy(dst=out, src=p[0:128, 0:4])",
        line=2,
        start="0.2",
    ),
    gone(
        "store-psum",
        "0.3",
        "p = nl.matmul(a, b, transpose_x=True)\nnl.store(made, p)",
        "p = nl.load(x)\nnl.store(made, p)",
        line=2,
    ),
    gone(
        "copy-psum",
        "0.3",
        "p = nl.ndarray((128, 4), nl.float32, buffer=nl.psum)\nt = nl.copy(p)",
        line=2,
        to="0.5",
    ),
    gone(
        "dma-cast",
        "0.3",
        "nisa.dma_copy(dst=a, src=b, dge_mode=nisa.dge_mode.hwdge)",
        "nisa.dma_copy(dst=a, src=b, dge_mode=nisa.dge_mode.swdge)",
        start="0.2",
    ),
    gone(
        "memset-integer",
        "0.3",
        "t = nl.ndarray((128, 4), dtype=nl.int32, buffer=nl.sbuf)\nnisa.memset(dst=t, value=2.0)",
        "t = nl.ndarray((128, 4), dtype=nl.int32, buffer=nl.sbuf)\nnisa.memset(dst=t, value=2)",
        line=2,
        start="0.2",
    ),
    gone(
        "memset-packed",
        "0.3",
        "t = nl.ndarray((128, 4), dtype=nl.float8_e5m2_x4)\nnisa.memset(dst=t, value=1)",
        "t = nl.ndarray((128, 4), dtype=nl.float8_e5m2_x4)\nnisa.memset(dst=t, value=0)",
        line=2,
        start="0.2",
    ),
    gone(
        "tensor-reduce-axis",
        "0.3",
        "nisa.tensor_reduce(a, nl.add, b, axis=1)",
        "nisa.tensor_reduce(a, nl.add, b, axis=2)",
        start="0.2",
    ),
    gone(
        "order-dma-compute",
        "0.3",
        "nisa.dma_compute(a, [b], [1.0], nl.add)",
        "nisa.dma_compute(a, [b], reduce_op=nl.add)",
        start="0.2",
    ),
    gone(
        "order-affine-select",
        "0.3",
        "nisa.affine_select(a, p, 0, 1, b, c)",
        "nisa.affine_select(a, p, offset=0, channel_multiplier=1, on_true_tile=b, on_false_value=c)",
        start="0.2",
    ),
    gone(
        "order",
        "0.4",
        "nisa.dma_copy(a, b, nisa.oob_mode.skip)",
        "nisa.dma_copy(a, b, oob_mode=nisa.oob_mode.skip)",
        start="0.3",
    ),
    gone(
        "sendrecv-engine",
        "0.3",
        "nisa.sendrecv(a, b, 0, 1, 0, use_gpsimd_dma=True)",
        "nisa.sendrecv(a, b, 0, 1, 0, dma_engine=nisa.dma_engine.gpsimd_dma)",
        start="0.2",
    ),
    gone(
        "register-move-source",
        "0.3",
        "nisa.register_move(r, imm=42)",
        "nisa.register_move(r, 42)",
        start="0.2",
    ),
    gone(
        "collective-channels",
        "0.3",
        "ncc.collective_permute_implicit([[a]], [[b]], g, num_channels=2)",
        "ncc.collective_permute_implicit([[a]], [[b]], g, channel_ids=[0, 1])",
        start="0.2",
    ),
    gone(
        "returned-hbm",
        "0.3",
        "o = nl.ndarray((4, 4), nl.float32, buffer=nl.hbm)\nreturn o",
        "o = nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)\nreturn o",
        line=2,
        start="0.2",
    ),
    gone(
        "integer-enumeration",
        "0.3",
        "nisa.dma_copy(a, b, dge_mode=2)",
        "nisa.dma_copy(a, b, dge_mode=nisa.dge_mode.swdge)",
        start="0.2",
    ),
    gone(
        "buffer-name",
        "0.3",
        "t = nl.ndarray((128, 4), dtype=nl.float16, buffer='sbuf')",
        "t = nl.ndarray((128, 4), dtype=nl.float16, buffer=nl.sbuf)",
        start="0.2",
    ),
    gone("dma-engine-alias", "0.3", "e = nisa.dma_engine", "e = nisa.dma_engine.dma", start="0.2"),
    gone(
        "platform-target",
        "0.3",
        "@nki.jit(platform_target='trn2')\ndef k(x):\n    pass",
        whole=True,
        start="0.2",
    ),
    gone(
        "jit-mode",
        "0.3",
        "@nki.jit(mode='trace')\ndef k(x):\n    pass",
        "@nki.jit\ndef k(x):\n    pass",
        whole=True,
        start="0.2",
    ),
    gone(
        "range-select-value",
        "0.3",
        "nisa.range_select(a, b, c, d, e, f, nisa.reduce_cmd.idle, on_false_value=0.0)",
        "nisa.range_select(a, b, c, d, e, f, nisa.reduce_cmd.idle, on_false_value=-3.4028235e38)",
        start="0.2",
    ),
    gone(
        "range-select-command",
        "0.3",
        "nisa.range_select(a, b, c, d, e, f, reduce_cmd=nisa.reduce_cmd.idle)",
        start="0.2",
    ),
    gone(
        "range-select-default",
        "0.2",
        "t = nisa.range_select(on_true_tile=a)",
        "t = nisa.range_select(on_true_tile=a, reduce_cmd=nisa.reduce_cmd.idle)",
    ),
    gone(
        "core-barrier-engine",
        "0.3",
        "nisa.core_barrier(x, (0, 1))",
        "nisa.core_barrier(x, (0, 1), engine=nisa.engine.gpsimd)",
        start="0.2",
    ),
    gone("num-programs-axes", "0.3", "n = nl.num_programs()", "n = nl.num_programs(0)", start="0.2"),
    gone(
        "comparison-dtype", "0.3", "t = nl.greater(a, b)", "t = nl.greater(a, b, dtype=nl.uint8)", start="0.2"
    ),
    gone(
        "unary-logical-dtype",
        "0.3",
        "t = nl.logical_not(a)",
        "t = nl.logical_not(a, dtype=nl.uint8)",
        start="0.2",
    ),
    gone("all-dtype", "0.3", "t = nl.all(a, axis=1)", "t = nl.all(a, axis=1, dtype=nl.uint8)"),
    gone("divide", "0.3", "t = nl.divide(a, b)", "t = nl.multiply(a, nl.reciprocal(b))"),
    gone("modulo", "0.3", "t = nl.mod(a, b)", "t = nl.bitwise_and(a, 7)"),
    gone("power-scalar", "0.3", "t = nl.power(a, 2)", "t = nl.power(a, b)"),
    gone(
        "broadcast",
        "0.3",
        "m = nl.max(nl.load(x), axis=1)\nt = nl.load(x)\ny = nl.subtract(t, m)",
        "m = nl.max(nl.load(x), axis=1)\nt = nl.sum(nl.load(x), axis=1)\ny = nl.subtract(t, m)",
        line=3,
    ),
    gone("matmul-transpose", "0.3", "t = nl.matmul(a, b)", "t = nl.matmul(a, b, transpose_x=True)"),
    gone("copy-lossy", "0.3", "t = nl.copy(a)", to="0.5"),
    gone(
        "shared-constant-dtype",
        "0.4",
        "t = nl.shared_constant(a, dtype=nl.bfloat16)",
        "t = nl.shared_constant(a)",
    ),
    gone("dma-transpose-rank", "0.4", "nisa.dma_transpose(dst=a, src=b)", start="0.3"),
    gone(
        "nc-transpose-engine",
        "0.4",
        "nisa.nc_transpose(a, b, engine=nisa.engine.vector)",
        "nisa.nc_transpose(a, b)",
        start="0.3",
    ),
    gone(
        "usable-sbuf",
        "0.4",
        "n = nl.tile_size.total_available_sbuf_size",
        "n = nl.tile_size.sbuf_fmax_bytes",
        start="0.3",
    ),
    gone(
        "reduce-subtract",
        "0.4",
        "nisa.tensor_scalar_reduce(a, b, nl.add, 1.0, nl.subtract)",
        "nisa.tensor_scalar_reduce(a, b, nl.add, 1.0, nl.add)",
        start="0.3",
    ),
    gone(
        "rsqrt-psum",
        "0.5",
        "p = nl.ndarray((128, 4), nl.float32, buffer=nl.psum)\nt = nl.rsqrt(p)",
        line=2,
        start="0.4",
    ),
    gone(
        "rsqrt-engine", "0.5", "t = nl.rsqrt(a)", "nisa.activation(dst=t, op=nl.rsqrt, data=a)", start="0.4"
    ),
    gone(
        "reshape-count",
        "0.5",
        "t = nl.ndarray((128, 4), nl.float32)\ny = t.reshape((128, 8))",
        "t = nl.ndarray((128, 4), nl.float32)\ny = t.reshape((128, 2, 2))",
        line=2,
        start="0.4",
    ),
    gone(
        "reshape-keyword",
        "0.5",
        "y = x.reshape(new_shape=(4, 4))",
        "y = x.reshape(shape=(4, 4))",
        start="0.4",
    ),
    gone(
        "view-offset",
        "0.5",
        "y = x[0:4, 0:8].ap([[8, 4], [1, 8]])",
        "y = x[0:4, 0:8].ap([[8, 4], [1, 8]], offset=0)",
        start="0.4",
    ),
    gone("tensor-constructor", "0.5", "t = nl.NkiTensor((4, 4), nl.float32, s)", start="0.4"),
    gone("quantize-scale", "0.5", "nisa.quantize_mx(a, b, c)", start="0.4"),
    gone("rng-engine", "0.5", "nisa.rng(a)", "nisa.rng(a, engine=nisa.engine.vector)", start="0.4"),
    gone(
        "random-state-engine",
        "0.5",
        "nisa.rand_set_state(a)",
        "nisa.rand_set_state(a, nisa.engine.gpsimd)",
        start="0.4",
    ),
    gone(
        "range-alias",
        "0.6",
        "for i in nl.affine_range(4):\n    pass",
        "for i in range(4):\n    pass",
        start="0.5",
    ),
    gone(
        "dynamic-range",
        "0.6",
        "for i in nl.dynamic_range(r):\n    pass",
        "nl.fori_loop(0, r, body)",
        start="0.5",
    ),
    gone(
        "while-register",
        "0.6",
        "r = nisa.register_alloc(5)\nwhile r:\n    pass",
        "r = nisa.register_alloc(5)\nnl.while_loop(r, body)",
        line=2,
        start="0.5",
    ),
    gone("copy-engine", "0.6", "t = nl.copy(a)", start="0.5"),
    gone("absent-index", "0.6", "nisa.nc_find_index8(a, b, c)", start="0.5"),
)


def needed(tmp_path: Path, text: str, start: str, to: str) -> tuple[Needed, ...]:
    path = tmp_path / "kernel.py"
    path.write_text(text, encoding="utf-8")
    return migration(read_source(path), Release.parse(start), Release.parse(to)).needed


def of(items: tuple[Needed, ...], id: str) -> list[Needed]:
    return [item for item in items if item.id == id]


@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case.id}" for at, case in enumerate(CASES)])
def test_the_old_text_needs_it_and_the_new_one_does_not(tmp_path: Path, case: Case) -> None:
    line = case.expected_line
    found = of(needed(tmp_path, case.text(case.before), case.start, case.to), case.id)
    assert [(item.line, str(item.since)) for item in found if item.line == line] == [(line, case.since)]
    imports = of(needed(tmp_path, case.text("pass"), case.start, case.to), case.id)
    assert len(of(needed(tmp_path, case.text(case.after), case.start, case.to), case.id)) == len(imports)


@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case.id}" for at, case in enumerate(CASES)])
def test_a_move_that_ends_before_it_does_not_name_it(tmp_path: Path, case: Case) -> None:
    earlier = max(release for release in KNOWN if release < Release.parse(case.since))
    if earlier < Release.parse(case.start):
        return
    assert of(needed(tmp_path, case.text(case.before), case.start, str(earlier)), case.id) == []


def test_every_entry_has_a_case_and_every_construct_a_detector() -> None:
    table = migration_table()
    assert {case.id for case in CASES} == {change.id for change in table.changes}
    assert {change.construct for change in table.changes if change.construct} == set(DETECTORS)


def test_every_parameter_that_an_instruction_lost_has_an_entry() -> None:
    changes = [change for change in migration_table().changes if change.keywords]
    for row in ROWS.values():
        name = f"{row.namespace}.{row.name}"
        for param in row.signature:
            since = removed_since(name, param.name)
            if since is not None and since > Release(0, 2):
                assert any(change.fits(name) and param.name in change.keywords for change in changes), (
                    f"{param.name} of {name}"
                )


@pytest.mark.parametrize(
    ("name", "since", "kind"),
    [
        ("nl.arange", "0.2", "gone"),
        ("nl.mgrid", "0.2", "gone"),
        ("nl.par_dim", "0.2", "gone"),
        ("nl.atomic_rmw", "0.2", "gone"),
        ("nl.loop_reduce", "0.2", "gone"),
        ("nki.baremetal", "0.2", "gone"),
        ("nki.benchmark", "0.2", "gone"),
        ("nki.profile", "0.2", "gone"),
        ("nki.simulate_kernel", "0.2", "renamed"),
        ("nki.trace", "0.2", "renamed"),
        ("nl.spmd_dim", "0.2", "gone"),
        ("nl.nc", "0.2", "gone"),
        ("nisa.tensor_copy_dynamic_src", "0.4", "renamed"),
    ],
)
def test_names_that_went(tmp_path: Path, name: str, since: str, kind: str) -> None:
    case = Case("", since, f"y = {name}(4)")
    (item,) = [
        each for each in needed(tmp_path, case.text(case.before), "legacy", "0.6") if each.what == name
    ]
    assert (str(item.since), item.kind, item.line, item.must) == (since, kind, 8, True)
    assert item.replacement and item.source


def test_a_name_that_came_back_is_named_for_the_release_that_lacks_it_alone(tmp_path: Path) -> None:
    text = Case("", "", "").text("t = nl.load(x)")
    (item,) = [each for each in needed(tmp_path, text, "legacy", "0.2") if each.what == "nl.load"]
    assert item.replacement == "nisa.dma_copy into a tile; it is back in 0.3"
    for to in ("0.3", "0.6"):
        assert not [each for each in needed(tmp_path, text, "legacy", to) if each.what == "nl.load"]


def test_what_is_to_be_written_says_the_signature_of_the_release(tmp_path: Path) -> None:
    text = Case("", "", "").text("t = nisa.tensor_scalar(a, nl.add, 1.0)")
    (item,) = of(needed(tmp_path, text, "legacy", "0.6"), "dst-first")
    assert item.what == "nisa.tensor_scalar without dst"
    assert item.replacement == (
        "allocate the result with nl.ndarray and pass it first: nisa.tensor_scalar(dst, data, op0, operand0, ...)"
    )
    text = Case("", "", "").text("t = nisa.affine_select(pred=p, on_true_tile=a, on_false_value=0.0)")
    (old,) = of(needed(tmp_path, text, "legacy", "0.2"), "affine-select-predicate")
    (new,) = of(needed(tmp_path, text, "legacy", "0.3"), "affine-select-predicate")
    assert "(dst, pattern, offset, channel_multiplier, on_true_tile, on_false_value, ...)" in old.replacement
    assert "(dst, pattern, channel_multiplier, on_true_tile, on_false_value, ...)" in new.replacement


@pytest.mark.parametrize(
    ("argument", "use"),
    [
        ("op=np.max", "op=nl.maximum"),
        ("op=np.amin", "op=nl.minimum"),
        ("op=np.sum", "op=nl.add"),
        ("op=np.multiply", "op=nl.multiply"),
        ("op0=np.bitwise_and", "op0=nl.bitwise_and"),
        ("np.exp", "nl.exp"),
        ("op=np.divide", "the operator of nki.language of that meaning"),
    ],
)
def test_functions_of_numpy_have_an_operator(tmp_path: Path, argument: str, use: str) -> None:
    text = Case("", "", "").text(
        f"t = nisa.tensor_reduce(data=a, axis=1, {argument})".replace("axis=1, np", "axis=1, op=np")
    )
    if argument == "np.exp":
        text = Case("", "", "").text("t = nisa.activation(np.exp, a)")
    (item,) = of(needed(tmp_path, text, "legacy", "0.6"), "numpy-operator")
    assert item.replacement == use


def test_an_enumeration_says_the_member(tmp_path: Path) -> None:
    text = Case("", "", "", start="0.2").text(
        "nisa.dma_copy(a, b, dge_mode=2)\nnisa.iota(t, p, 0, 1, engine=9)"
    )
    found = of(needed(tmp_path, text, "0.2", "0.3"), "integer-enumeration")
    assert [item.replacement for item in found] == [
        "dge_mode=nisa.dge_mode.hwdge",
        "the member of nki.isa, for instance nisa.dge_mode.hwdge",
    ]


def test_a_rule_of_one_name_covers_what_is_below_it_alone() -> None:
    assert covers("nki.nccl.*", "nki.nccl") and covers("nki.nccl.*", "nki.nccl.collectives")
    assert not covers("nki.nccl.*", "nki.ncclx") and not covers("nki.isa.iota", "nki.isa.iota.x")


def test_every_source_is_a_file_of_the_documentation() -> None:
    for change in migration_table().changes:
        for part in change.source.split("; ") if change.source else ():
            assert part.split(":")[0].split(" at tag")[0].endswith((".py", ".rst")), change.id


def test_what_the_table_says_agrees_with_the_names() -> None:
    for name in migration_table().renamed:
        assert LATEST not in changed_names()[name] and LEGACY in changed_names()[name]


ENTRY = '[[change]]\nid = "a"\nkind = "gone"\nsince = "0.3"\nreplacement = "b"\nsource = "c"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ENTRY, "a: has 0 of names, called, keywords, without, construct; expected exactly one"),
        (
            ENTRY + 'names = ["x"]\ncalled = ["y"]\n',
            "a: has 2 of names, called, keywords, without, construct; expected exactly one",
        ),
        (ENTRY + 'names = ["x"]\nsize = 3\n', "a: has an unknown key 'size'"),
        (
            ENTRY.replace("gone", "lost") + 'names = ["x"]\n',
            "a: kind 'lost' is not one of gone, renamed, form, meaning, default",
        ),
        (ENTRY + 'act = "look"\nnames = ["x"]\n', "a: act 'look' is not one of change, check"),
        (ENTRY + 'keywords = ["x"]\n', "a: does not say of what its argument is; expected of"),
        (ENTRY + 'of = ["y"]\nwithout = "x"\n', "a: without and at belong together"),
        (ENTRY + 'names = ["nki.language.arange"]\n', "a: nki.language.arange stands in names.toml already"),
        (
            ENTRY + 'of = ["nki.isa.dma_copy"]\nkeywords = ["dst_rmw_op"]\n',
            "a: the instruction table says since when; leave since out",
        ),
        (
            ENTRY.replace('since = "0.3"\n', "") + 'names = ["x"]\n',
            "a: says nothing of the release that changed it; expected since",
        ),
        (ENTRY.replace('source = "c"\n', "") + 'names = ["x"]\n', "a: names no source"),
        (ENTRY.replace('replacement = "b"\n', "") + 'names = ["x"]\n', "a: has no replacement"),
        ((ENTRY + 'names = ["x"]\n') * 2, "a: stands twice"),
        ('renamed = ["nki.nothing"]\n', "renamed: nki.nothing does not stand in names.toml"),
    ],
)
def test_a_wrong_entry_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(MigrationError) as raised:
        read_table(text)
    assert str(raised.value) == sentence


def test_a_right_entry_is_read() -> None:
    (change,) = read_table(ENTRY + 'names = ["x"]\n').changes
    assert (change.act, change.since, change.names) == ("change", Release(0, 3), ("x",))
