"""The library's signatures as text: `__init__.pyi`, from which editors and type checkers know every option.

`python -m resync.static` writes the file beside this one, and one for every public name of a module in `formulas`
(`periods.pyi`, ...), which no type checker would find; a test compares them with the declarations.
"""

import re
import types
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from resync.files import write_text
from resync.methods import METHODS

FILE = Path(__file__).with_name("__init__.pyi")

_HEAD = '''"""{doc}"""

# Written by `python -m resync.static`: change the declarations in src/resync/methods.py and src/resync/sync/options.
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from resync.attach import Synchronised as Synchronised
from resync.formulas import averaging as gossip
from resync.formulas import mixing as mixing
from resync.formulas import periods as periods
from resync.formulas import schedules as schedules
from resync.formulas import topology as topology
from resync.formulas.periods import Period

__all__ = {names}
'''


def files() -> dict[Path, str]:
    """Every file with its content."""
    aliases = {
        FILE.with_name(f"{name}.pyi"): f"from resync.formulas.{module} import *  # noqa: F403\n"
        for name, module in import_module("resync").FORMULAS.items()
    }
    return {FILE: text(), **aliases}


def text() -> str:
    """The content of `__init__.pyi`."""
    package = import_module("resync")
    head = _HEAD.format(doc=package.__doc__, names=list(package.__all__))
    return "\n\n".join([head.rstrip(), *(_function(name, method) for name, method in METHODS.items())]) + "\n"


def _function(name: str, method: Callable[..., Any]) -> str:
    """The signature of a method, and a docstring that ends with the step as it stands in the paper."""
    _, _, *options = signature(method).parameters.values()
    lines = ["    model: nn.Module,", "    optimizer: Optimizer,", "    *,"]
    lines += [f"    {_option(each)}," for each in options]
    doc = indent("\n\n".join([cleandoc(method.__doc__ or ""), *_step(method.__doc__ or "")]), "    ").strip()
    doc = doc.replace("\\", "\\\\")
    body = f'    """{doc}\n    """'
    return "\n".join([f"def {name}(", *lines, ") -> Synchronised:", "\n".join(map(str.rstrip, body.splitlines()))])


def _step(doc: str) -> Iterator[str]:
    """The docstring of the class that takes the steps, in the module to which the method refers."""
    if named := re.search(r"resync\.sync\.\w+", doc):
        classes = [each for each in vars(import_module(named[0])).values() if isinstance(each, type)]
        own = next(each for each in classes if each.__module__ == named[0])
        yield f"The step ({named[0]}): {cleandoc(own.__doc__ or '')}"


def _option(each: Parameter) -> str:
    default = "" if each.default is Parameter.empty else f" = {_value(each.default)}"
    return f"{each.name}: {_type(each.annotation)}{default}"


def _value(value: Any) -> str:
    """A default as source; `...` for one that is an object."""
    simple = value is None or isinstance(value, (bool, int, float, str, tuple))
    return repr(value) if simple and value != float("inf") else "..."


def _type(annotation: Any) -> str:
    """An annotation as source; `Any` for what users give in several forms that a model then reads."""
    if annotation is None or annotation is types.NoneType:
        return "None"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(_type, arguments)))
    if origin is not None:
        inside = ", ".join("..." if each is Ellipsis else _type(each) for each in arguments)
        name = "Sequence" if origin is Sequence else getattr(origin, "__name__", "Any")
        return f"{name}[{inside}]" if name != "Any" else name
    if annotation in (bool, int, float, str):
        return str(annotation.__name__)
    return "Period" if getattr(annotation, "__name__", "") == "Period" else "Any"


if __name__ == "__main__":
    for path, content in files().items():
        write_text(path, content)
        print(path)
