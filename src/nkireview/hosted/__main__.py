"""``python -m nkireview.hosted SCRIPT | -m MODULE | -c CODE [ARGS]``: Python with `nki` in place."""

from __future__ import annotations

import io
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

from nkireview.hosted.install import install

WRONG_CALL = 2
SITE = str(Path(__file__).resolve().parent / "site")


def main(command: list[str]) -> None:
    """Run the user's program as Python would, with `nki` resolved to this package, here and in its own children."""
    if not command:
        _refuse("expected a script, -m MODULE or -c CODE")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{SITE}{os.pathsep}{before}" if before else SITE
    install()
    try:
        _run(command)
    except SystemExit:
        raise
    except BaseException as error:
        shown = error.__traceback__
        while shown is not None and shown.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
            shown = shown.tb_next
        traceback.print_exception(type(error), error, shown)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None


def _run(command: list[str]) -> None:
    first, *rest = command
    if first == "-m" and rest:
        sys.argv = rest
        sys.path[0] = str(Path.cwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c" and rest:
        sys.argv = ["-c", *rest[1:]]
        sys.path[0] = ""
        _as_main(compile(rest[0], "<string>", "exec"), None)
    elif first in ("-m", "-c"):
        _refuse(f"{first} needs a {'module' if first == '-m' else 'piece of code'}")
    elif Path(first).is_file() and Path(first).suffix != ".pyz":
        sys.argv = command
        sys.path[0] = str(Path(first).resolve().parent)
        with io.open_code(first) as file:
            _as_main(compile(file.read(), first, "exec"), first)
    elif Path(first).exists():
        sys.argv = command
        del sys.path[0]
        runpy.run_path(first, run_name="__main__")
    else:
        _refuse(f"{first}: file not found")


def _refuse(reason: str) -> NoReturn:
    sys.stderr.write(f"nkireview: {reason}\n")
    raise SystemExit(WRONG_CALL)


def _as_main(code: CodeType, file: str | None) -> None:
    """Run code as the module ``__main__``."""
    module = ModuleType("__main__")
    if file is not None:
        module.__file__ = file
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


if __name__ == "__main__":
    main(sys.argv[1:])
