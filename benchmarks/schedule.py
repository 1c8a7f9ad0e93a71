"""How fast and how large scheduling is: instructions a second, growth from 100,000 to a million, bytes an instruction.

    python benchmarks/schedule.py            # 100,000 and 1,000,000 instructions
    python benchmarks/schedule.py --small 20000 --large 200000

The program is a tiled matmul: two loads, a matmul, and for every eighth a copy out of PSUM and a store, with fresh
tiles in SBUF and PSUM. Each size runs in a process of its own, so that its peak memory can be read.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

from nkireview.isa.enums import Engine, Memory
from nkireview.program.access import Access
from nkireview.program.builder import ProgramBuilder
from nkireview.program.model import Header, Output
from nkireview.program.program import Program
from nkireview.program.tree import Group, TensorLeaf
from nkireview.schedule.timing import Timing
from nkireview.timeline.summary import summary

ACCUMULATED = 8


def build(instructions: int) -> Program:
    """A program of about so many instructions."""
    builder = ProgramBuilder()
    source = builder.buffer(memory=Memory.shared_hbm, shape=(128, 512), dtype="bfloat16")
    target = builder.buffer(memory=Memory.shared_hbm, shape=(128, 512), dtype="float32")
    read = builder.access(Access(source.id, "bfloat16", 0, ((512, 128), (1, 512))))
    written = builder.access(Access(target.id, "float32", 0, ((512, 128), (1, 512))))

    def tile(memory: Memory, columns: int, dtype: str) -> int:
        buffer = builder.buffer(memory=memory, shape=(128, columns), dtype=dtype, core=0)
        return builder.access(Access(buffer.id, dtype, 0, ((columns, 128), (1, columns)), 0))

    with builder.stream(core=0):
        while len(builder) < instructions:
            result = tile(Memory.psum, 512, "float32")
            for _ in range(ACCUMULATED):
                moving, stationary = (tile(Memory.sbuf, 512, "bfloat16") for _ in range(2))
                weights = builder.access(
                    Access(builder.buffers[-1].id, "bfloat16", 0, ((512, 128), (1, 128)), 0)
                )
                for loaded in (moving, stationary):
                    builder.append("dma_copy", ("dst", "src"), [loaded, read], {})
                builder.append(
                    "nc_matmul",
                    ("dst", "stationary", "moving"),
                    [result, weights, moving],
                    {"accumulate": None},
                )
            out = tile(Memory.sbuf, 512, "float32")
            builder.append("tensor_copy", ("dst", "src"), [out, result], {}, engine=Engine.vector)
            builder.append("dma_copy", ("dst", "src"), [written, out], {})
    header = Header("kernel", "trn2", "0.6")
    return builder.finish(header, Group("tuple", ("x",), (TensorLeaf(source.id),)), (Output(written),))


def measure(instructions: int) -> None:
    """Schedule one size and print seconds and bytes an instruction."""
    program = build(instructions)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    timing = Timing(program)
    found = summary(timing.timeline)
    seconds = time.process_time() - started
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(len(program), seconds, used / len(program), found.bound.value)


def main() -> None:
    """Measure both sizes and print the figures and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.one)
        return
    found = []
    for size in (options.small, options.large):
        text = subprocess.run(
            [sys.executable, __file__, "--one", str(size)], check=True, capture_output=True, text=True
        ).stdout.split()
        count, seconds, each = int(text[0]), float(text[1]), float(text[2])
        found.append(seconds)
        print(
            f"{count:,} instructions: {seconds:.2f} s of processor time, {count / seconds:,.0f} a second, "
            f"{each:.0f} bytes an instruction, {text[3]}-bound"
        )
    print(
        f"growth {found[1] / found[0]:.1f} times for {options.large / options.small:.0f} times the instructions"
    )


if __name__ == "__main__":
    main()
