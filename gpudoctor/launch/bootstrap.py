"""Run the user's script as `__main__` in a watched rank: `python -m gpudoctor.launch.bootstrap [-m] SCRIPT ARGS…`."""

from __future__ import annotations

import builtins
import os
import runpy
import signal
import sys
import types

from gpudoctor.launch.rank import Rank
from gpudoctor.probes.settings import from_environment


def main(arguments: list[str]) -> None:
    """Run the script, and leave the process as the script would have left it."""
    settings = from_environment()
    rank = Rank(settings) if settings is not None else None
    if rank is not None:
        rank.begin()
    code: object = 0
    try:
        if arguments[0] == "-m":
            _run_module(arguments[1], arguments[2:])
        else:
            _run_file(arguments[0], arguments[1:])
    except SystemExit as error:
        code = error.code
        _end(rank, error)
    except BaseException as error:
        error.__traceback__ = _without_ours(error.__traceback__)
        _end(rank, error)
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            _die_of_interrupt()
        code = 1
    else:
        _end(rank, None)
    sys.exit(code)  # type: ignore[arg-type]


def _end(rank: Rank | None, error: BaseException | None) -> None:
    if rank is not None:
        rank.last_words(error)
        rank.finish()


def _run_file(script: str, arguments: list[str]) -> None:
    path = os.path.abspath(script)
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None)
    main_module.__spec__ = None
    sys.modules["__main__"] = main_module
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(path)
    with open(path, "rb") as file:
        program = compile(file.read(), path, "exec")
    exec(program, main_module.__dict__)


def _run_module(name: str, arguments: list[str]) -> None:
    sys.argv = [name, *arguments]
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module
    runpy._run_module_as_main(name, alter_argv=True)  # type: ignore[attr-defined]


def _without_ours(tb: types.TracebackType | None) -> types.TracebackType | None:
    here = os.path.dirname(__file__)
    while tb is not None and (tb.tb_frame.f_code.co_filename.startswith(here) or tb.tb_frame.f_code.co_filename == "<frozen runpy>"):
        tb = tb.tb_next
    return tb


def _die_of_interrupt() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main(sys.argv[1:])
