"""Importing a user's Python file, in a child process only. What goes wrong becomes one sentence."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from nkireview.runner.worker import last_line

_PACKAGE = str(Path(__file__).resolve().parents[1])
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class LoadError(Exception):
    """A file cannot be used: `reason` without the place, and the innermost place in the user's files if known."""

    def __init__(self, reason: str, file: str = "", line: int = 0) -> None:
        super().__init__(f"{reason} ({Path(file).name}:{line})" if line else reason)
        self.reason = reason
        self.file = file
        self.line = line


def load_module(path: str | Path) -> ModuleType:
    """Import a Python file under its full dotted name if it lies in a package, else under its stem.

    The folder above the package, or the file's own folder, goes to the front of `sys.path`. Raises `LoadError`;
    exceptions of this package's own types pass through.
    """
    given = Path(path)
    if not given.is_file():
        what = "is a folder, expected a Python file" if given.is_dir() else "file not found"
        raise LoadError(f"{given}: {what}")
    file = given.resolve()
    root, name = _dotted_name(file)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        return _import_from_package(file, root, name) if root != file.parent else _import_alone(file, name)
    except (LoadError, MemoryError):
        raise
    except Exception as error:
        if type(error).__module__.startswith("nkireview."):
            raise
        raise _load_error(error, given, root) from None


def innermost(error: BaseException, root: Path) -> tuple[str, int]:
    """File and line of the innermost frame below `root`, else outside this package and all libraries, else ("", 0)."""
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    foreign = [each for each in frames if not each[0].startswith(("<", _PACKAGE))]
    near = [each for each in foreign if _is_below(Path(each[0]), root)]
    far = [each for each in foreign if not each[0].startswith(_LIBRARIES)]
    return (near or far or [("", 0)])[-1]


def _is_below(file: Path, root: Path) -> bool:
    """Whether a file belongs to `root`, and not to an environment of installed packages inside it."""
    return file.is_relative_to(root) and "site-packages" not in file.relative_to(root).parts


def _dotted_name(file: Path) -> tuple[Path, str]:
    """The folder to import from and the module's full name there."""
    parts = [] if file.name == "__init__.py" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _import_from_package(file: Path, root: Path, name: str) -> ModuleType:
    package = name.partition(".")[0]
    loaded = sys.modules.get(package)
    if loaded is not None and str(root / package) not in getattr(loaded, "__path__", ()):
        raise LoadError(
            f"{file}: its package {package!r} has the name of another that is loaded; rename the folder"
        )
    return importlib.import_module(name)


def _import_alone(file: Path, name: str) -> ModuleType:
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file):
        return loaded
    if loaded is not None or name in sys.stdlib_module_names:
        # The file must not stand in for the module whose name it happens to have.
        name = f"submission_{name}"
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(file)))
    if spec is None or spec.loader is None:
        raise LoadError(f"{file}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _load_error(error: Exception, given: Path, root: Path) -> LoadError:
    if isinstance(error, SyntaxError):
        return LoadError(
            f"{given}: not valid Python: {error.msg}", error.filename or str(given), error.lineno or 0
        )
    file, line = innermost(error, root)
    if isinstance(error, ValueError) and not line:  # Python 3.10 on bytes that are no source text
        return LoadError(f"{given}: not valid Python: {error}")
    if isinstance(error, ModuleNotFoundError) and error.name:
        return LoadError(f"{given}: imports {error.name!r}, which is not installed", file, line)
    return LoadError(f"{given}: raised {last_line(error)} while it was imported", file, line)
