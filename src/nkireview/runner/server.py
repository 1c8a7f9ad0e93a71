"""The fork server: a process with the heavy imports done, which forks one guardian for each job.

It is started by `pool.ForkServer` with a control socket, the folder for scratch directories and the modules to import.
On the control socket come fixed-size orders: run a job on the socket that comes with the order, or kill the
guardian of a job. When the control socket closes, everything below this process is killed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

from nkireview.runner import guardian, isolation, processes, scratch, wire, worker

# How long guardians have to end their jobs when the server ends.
END_S = 5.0


def main(arguments: list[str]) -> None:
    """Serve until the control socket closes: `arguments` are its descriptor, the scratch folder, the modules."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    for name in arguments[2:]:
        try:
            importlib.import_module(name)
        except Exception as error:
            wire.send(control, {"error": f"cannot import {name}: {worker.last_line(error)}"}, [])
            return
    # Each guardian reports for its own job whether this holds.
    with contextlib.suppress(isolation.NotHeldError, OSError):
        isolation.become_subreaper()
    gc.collect()
    gc.freeze()
    wire.send(control, {"ready": os.getpid()}, [])
    _Server(control, Path(arguments[1])).serve()


class _Server:
    def __init__(self, control: socket.socket, scratch_root: Path) -> None:
        self.control = control
        self.scratch_root = scratch_root
        self.guardians: dict[int, int] = {}
        self.wake = processes.signal_channel()

    def serve(self) -> None:
        while True:
            ready = select.select([self.control.fileno(), self.wake], [], [])[0]
            if self.wake in ready:
                processes.signals_in(self.wake)
            if self.control.fileno() in ready and not self._obey():
                break
            self._reap()
        self._end()

    def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.guardians:
                os.kill(pid, number)
            end = time.monotonic() + END_S
            while self.guardians and time.monotonic() < end:
                select.select([self.wake], [], [], END_S / 10)
                processes.signals_in(self.wake)
                self._reap()
        processes.kill_descendants()
        scratch.remove(self.scratch_root)

    def _obey(self) -> bool:
        """Carry out one order; False at the end of the control socket."""
        order, descriptors, _, _ = socket.recv_fds(self.control, wire.ORDER.size, 1)
        if not order:
            return False
        kind, number = wire.ORDER.unpack(order)
        if kind == wire.RUN:
            channel = socket.socket(fileno=descriptors[0])
            pid = os.fork()
            if pid == 0:
                self._become_guardian(channel, number)
            channel.close()
            self.guardians[pid] = number
        elif kind == wire.KILL:
            for pid, job in self.guardians.items():
                if job == number:
                    os.kill(pid, signal.SIGKILL)
        return True

    def _become_guardian(self, channel: socket.socket, number: int) -> NoReturn:
        try:
            processes.default_signals()
            processes.close_all_but((0, 1, 2, channel.fileno()))
            guardian.guard(channel, self._scratch(number))
        except (guardian.AbandonedError, wire.ChannelClosed):
            os._exit(0)
        except BaseException as error:
            try:
                wire.send(channel, {"error": worker.last_line(error)}, [])
            finally:
                os._exit(1)
        os._exit(0)

    def _reap(self) -> None:
        for pid in list(self.guardians):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                number = self.guardians.pop(pid)
                if status != 0:
                    self._clean_up_after(number)

    def _clean_up_after(self, number: int) -> None:
        """Do what a guardian that was killed could not do: its orphans have come to this process."""
        processes.kill_descendants(spare=self.guardians)
        scratch.remove(self._scratch(number))

    def _scratch(self, number: int) -> Path:
        return self.scratch_root / str(number)


if __name__ == "__main__":
    main(sys.argv[1:])
