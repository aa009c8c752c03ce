"""`weir-udf build FILE.py [-o MODULE]`: makes a module of a Python file and what it imports, which itself imports nothing but,
if the file uses `weir_udf.log`, the host's log."""

import argparse
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from .transform import Module

PACKAGE = Path(__file__).resolve().parent

# What the runtime looks for: a class with the world's functions. Errors that are meant for the host become its `err`.
ENTRY = """
import gc
import {name}
from componentize_py_types import Err
from weir_udf.transform import Module

def _answering(function):
    def answer(self, *arguments):
        try:
            return function(*arguments)
        except ValueError as error:
            raise Err(str(error)) from error
    return answer

class WitWorld:
    pass

for _name in {functions}:
    setattr(WitWorld, _name, _answering(getattr(Module.built, _name)))

# What is there now stays; what a batch makes is rarely in circles, so looking for them can wait for many batches.
gc.freeze()
gc.set_threshold(200_000, 20)
"""

FUNCTIONS = {
    "transformer": ["configure", "transform"],
    "aggregator": ["configure", "accumulate", "merge", "emit", "state_version", "migrate"],
}


def fail(message):
    """Ends with a message."""
    raise SystemExit(f"weir-udf: {message}")


def inspect(file):
    """Imports the file, to see what it exports and whether it logs."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if Module.kind is None:
        fail(f"{file.name} exports nothing: decorate a function or class with `@transformer` or `@aggregator`")
    return Module.kind, "weir_udf.log" in sys.modules


def contract():
    """The folder of the contract: in the package, or, within Weir's repository, beside it."""
    folders = [PACKAGE / "wit", PACKAGE.parent.parent / "wit"]
    return next(folder for folder in folders if (folder / "udf.wit").is_file())


def tool():
    """The compiler, installed beside this package."""
    beside = Path(sysconfig.get_path("scripts")) / "componentize-py"
    found = str(beside) if beside.exists() else shutil.which("componentize-py")
    return found or fail("componentize-py is missing: run `pip install componentize-py==0.25.1`")


def build(file, output, paths):
    """Makes the module."""
    if not file.is_file():
        fail(f"no such file: {file}")
    kind, logs = inspect(file)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shutil.copytree(PACKAGE, folder / "weir_udf", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "weir_entry.py").write_text(ENTRY.format(name=file.stem, functions=FUNCTIONS[kind]))
        command = [tool(), "-q", "-d", str(contract()), "-w", kind + ("-logging" if logs else ""), "componentize", "--stub-wasi"]
        for path in [folder, file.parent, *paths]:
            command += ["-p", str(path)]
        output.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([*command, "weir_entry", "-o", str(output)], check=False)
    if done.returncode != 0:
        fail("componentize-py failed: see above")
    print(f"{output} {output.stat().st_size} bytes")


def main():
    """The command."""
    parser = argparse.ArgumentParser(prog="weir-udf", description=__doc__)
    parser.add_argument("command", choices=["build"])
    parser.add_argument("file", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="default: the file's name with .wasm, here")
    parser.add_argument("-p", "--path", type=Path, action="append", default=[], help="a folder with packages that the file imports")
    arguments = parser.parse_args()
    output = arguments.output or Path(arguments.file.stem + ".wasm")
    build(arguments.file.resolve(), output.resolve(), [path.resolve() for path in arguments.path])


if __name__ == "__main__":
    main()
