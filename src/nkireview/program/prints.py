"""What a Program prints: the buffers that ``nl.device_print`` copies to, as outputs that can be asked for."""

from __future__ import annotations

import numpy as np

from nkireview.program.model import Output
from nkireview.program.program import Program

PRINTED = "device_print "
"""How the name of such a buffer begins; the prefix of the message follows."""


def prints(program: Program) -> tuple[Output, ...]:
    """One output for each printed tensor, in program order, named by its prefix.

    Appended to the outputs of the Program, ``execute`` gives their values; of a print in a device-side loop the last.
    """
    prefixes = {
        number: text.removeprefix(PRINTED)
        for number, text in enumerate(program.strings)
        if text.startswith(PRINTED)
    }
    if not prefixes:
        return ()
    columns = program.columns
    shown = np.flatnonzero(np.isin(columns.buffer_name, list(prefixes)))
    accesses = np.flatnonzero(np.isin(columns.access_buffer, shown))
    held, first = np.unique(columns.access_buffer[accesses], return_index=True)
    return tuple(
        Output(int(accesses[at]), None, prefixes[int(columns.buffer_name[buffer])])
        for buffer, at in zip(held.tolist(), first.tolist(), strict=True)
    )
