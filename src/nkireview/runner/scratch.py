"""The scratch directory of one job: how much is in it, and how to remove it whatever the job made of it."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

# An empty file costs an inode: counting a block for each bounds the walk as well as the disk.
ENTRY_BYTES = 4096


class ScratchError(OSError):
    """A job arranged its scratch directory so that it cannot be measured."""


def used_bytes(root: Path, limit: int) -> int:
    """Bytes below `root`, at least `ENTRY_BYTES` for each entry; stops counting above `limit`."""
    total = 0
    stack = [str(root)]
    while stack and total <= limit:
        folder = stack.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    total += max(status.st_blocks * 512, ENTRY_BYTES)
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                    if total > limit:
                        break
        except (FileNotFoundError, NotADirectoryError):  # the job removed it meanwhile
            continue
        except OSError as error:
            raise ScratchError(
                f"made a part of its scratch directory unreadable ({error.strerror})"
            ) from error
    return total


def remove(root: Path) -> None:
    """Remove `root` with all below it; call it when nothing writes there any more.

    Sub-folders are first moved up into `root`, so that no nesting, however deep, overflows a path or a stack.
    """
    if not root.exists():
        return
    numbers = itertools.count()
    root.chmod(0o700)
    while paths := list(root.iterdir()):
        for path in paths:
            if path.is_symlink() or not path.is_dir():
                path.unlink()
                continue
            path.chmod(0o700)
            for inner in list(path.iterdir()):
                if inner.is_symlink() or not inner.is_dir():
                    inner.unlink()
                else:
                    inner.chmod(0o700)
                    inner.rename(_free(root, numbers))
            path.rmdir()
    root.rmdir()


def _free(root: Path, numbers: itertools.count[int]) -> Path:
    while os.path.lexists(path := root / f"moved-{next(numbers)}"):
        pass
    return path
