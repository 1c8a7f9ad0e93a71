"""How fast and how large the search for races is: instructions a second, growth to a million, bytes an instruction.

    python benchmarks/hazards.py            # 100,000 and 1,000,000 instructions
    python benchmarks/hazards.py --small 20000 --large 200000

Two cores halve the rows of a matrix: in each round each loads its tiles, works on them and stores them to a shared
matrix, meets the other one at a barrier, loads what the other one has stored, and meets it again. All of the search is
counted: storage places, uses, cells, dependences, the order; the fastest of three looks counts. Each size runs in a
process of its own; peak memory is that of the objects made, by tracemalloc, in a second process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import tracemalloc

from nkireview.checks.races import Races, races
from nkireview.isa.enums import Engine, Memory
from nkireview.isa.table import ROWS
from nkireview.program.access import Access
from nkireview.program.builder import ProgramBuilder
from nkireview.program.model import Header, Output
from nkireview.program.program import Program
from nkireview.program.scope import Scope
from nkireview.program.storage import storage
from nkireview.program.tree import Group, TensorLeaf
from nkireview.schedule.uses import uses

CORES = 2
TILES = 64
"""Tiles of each core in a round."""
COLUMNS = 512
EACH = 6
"""Instructions for each tile: load, three steps, store, and a load of the other core's tile."""


LOOKS = 3
"""Looks at one size, of which the fastest counts."""


def build(instructions: int, missing: int = -1) -> Program:
    """A program of about so many instructions; in the round `missing` the first barrier is left out."""
    builder = ProgramBuilder()
    rows = CORES * TILES * 128
    source, between = (
        builder.buffer(memory=Memory.shared_hbm, shape=(rows, COLUMNS), dtype="float32") for _ in range(2)
    )
    whole = builder.access(Access(between.id, "float32", 0, ((COLUMNS, rows), (1, COLUMNS))))

    def part(buffer: int, number: int) -> int:
        pattern = (COLUMNS, 128), (1, COLUMNS)
        return builder.access(Access(buffer, "float32", number * 128 * COLUMNS, pattern))

    rounds = max(instructions // (CORES * (TILES * EACH + 2)), 1)
    for core in range(CORES):
        with builder.stream(core=core):
            for turn in range(rounds):
                for number in range(TILES):
                    tiles = []
                    for _ in range(2):
                        buffer = builder.buffer(
                            memory=Memory.sbuf, shape=(128, COLUMNS), dtype="float32", core=core
                        )
                        tiles.append(
                            builder.access(Access(buffer.id, "float32", 0, ((COLUMNS, 128), (1, COLUMNS)), 0))
                        )
                    here = core * TILES + number
                    first, second = tiles
                    builder.append("dma_copy", ("dst", "src"), [first, part(source.id, here)], {})
                    for engine in (Engine.vector, Engine.scalar, Engine.gpsimd):
                        builder.append("tensor_copy", ("dst", "src"), [second, first], {}, engine=engine)
                        first, second = second, first
                    builder.append("dma_copy", ("dst", "src"), [part(between.id, here), first], {})
                if turn != missing:
                    builder.append("core_barrier", ("data",), [whole], {"cores": (0, 1)})
                for number in range(TILES):
                    there = (1 - core) * TILES + number
                    builder.append(
                        "dma_copy", ("dst", "src"), [tiles[number % 2], part(between.id, there)], {}
                    )
                builder.append("core_barrier", ("data",), [whole], {"cores": (0, 1)})
    header = Header("kernel", "trn2", "0.6", lnc=CORES)
    return builder.finish(header, Group("tuple", ("x",), (TensorLeaf(source.id),)), (Output(whole),))


def look(program: Program) -> Races:
    """The whole search."""
    stored = storage(program, ROWS)
    return races(Scope.of(program, ROWS), stored, uses(program, stored))


def measure(instructions: int, memory: bool, missing: int) -> None:
    """Look at one size and print instructions, seconds, bytes an instruction and races."""
    program = build(instructions, missing)
    if memory:
        tracemalloc.start()
    times = []
    for _ in range(1 if memory else LOOKS):
        started = time.process_time()
        found = look(program)
        times.append(time.process_time() - started)
    seconds = min(times)
    peak = tracemalloc.get_traced_memory()[1] if memory else 0
    print(len(program), seconds, peak / len(program), len(found.races), sum(r.count for r in found.races))


def main() -> None:
    """Measure both sizes and print the figures and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--missing", type=int, default=-1, help="the round without its first barrier")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.one, options.memory, options.missing)
        return
    found = []
    for size in (options.small, options.large):
        command = [sys.executable, __file__, "--one", str(size), "--missing", str(options.missing)]
        texts = [
            subprocess.run(command + more, check=True, capture_output=True, text=True).stdout.split()
            for more in ([], ["--memory"])
        ]
        count, seconds, each = int(texts[0][0]), float(texts[0][1]), float(texts[1][2])
        found.append(seconds)
        print(
            f"{count:,} instructions: {seconds:.2f} s of processor time, {count / seconds:,.0f} a second, "
            f"{each:.0f} bytes an instruction, {texts[0][3]} races of {texts[0][4]} pairs"
        )
    print(
        f"growth {found[1] / found[0]:.1f} times for {options.large / options.small:.0f} times the instructions"
    )


if __name__ == "__main__":
    main()
