"""A study's own networks: each is a user's function that builds a network, and the inputs that the network takes.

The function is named ``module:function`` or ``path/to/file.py:function``. Modules and paths are searched first in the
working directory. The function takes no arguments and returns an `nn.Module`. If the module's ``forward`` has two
required arguments, it maps inputs and labels to the loss. If it has one, it maps inputs to logits [b, classes] (for
tokens [b, length, vocabulary]), and stallpoint adds softmax and cross-entropy. The weights keep the values that the
function gives them. User code is imported only when the network is built: the check of a study takes an instant.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from stallpoint.errors import InputError
from stallpoint.networks.inputs import Images, Inputs, Tokens

if TYPE_CHECKING:
    import torch
    from torch import nn

_LIBRARY_FOLDER = Path(__file__).parents[1]
_SUFFIX = ".py"
_INPUT_KEYS = "image_size, or sequence_length and vocabulary"


@dataclass(frozen=True)
class OwnNetwork:
    """A network that the study describes under ``networks``."""

    name: str
    source: str
    """Module, or file ending in ``.py``."""
    function: str
    takes: Inputs

    def outline(self) -> nn.Module:
        """Return the network after a trial run on two samples; raise `InputError` if the run fails or returns no loss.

        The network is on PyTorch's meta device (without values) if it can be built and run there, else on the CPU.
        """
        return _built_on_meta_or_cpu(self._run_on)

    def sketch(self) -> nn.Module:
        """Return the network, without values if possible. It is not run, as a first run loads libraries for seconds."""
        return _built_on_meta_or_cpu(self._built_on)

    def build(self, seed: int) -> nn.Module:
        """Build the network in training mode; equal seeds give equal initial weights."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._built().train()

    def _built(self) -> nn.Module:
        from torch import nn

        from stallpoint.networks.layers import WithLoss

        function = self._function()
        with self._user_code(f"{self.function}()"):
            network = function()
        if not isinstance(network, nn.Module):
            self._refuse(f"{self.function}() returned {type(network).__name__}, not an nn.Module")
        return network if _takes_labels(network) else WithLoss(network)

    def _built_on(self, device: torch.device) -> nn.Module:
        with device:
            return self._built().train()

    def _run_on(self, device: torch.device) -> nn.Module:
        import torch

        network = self._built_on(device)
        with device, self._user_code("forward"), torch.no_grad():
            loss = network(*self.takes.example(2, device))
        if not isinstance(loss, torch.Tensor) or loss.ndim or not loss.is_floating_point():
            self._refuse("forward(inputs, labels) should return the loss, a scalar")
        if not any(parameter.requires_grad for parameter in network.parameters()):
            self._refuse("it has no parameters to learn")
        return network

    def _function(self) -> Callable[[], Any]:
        with self._user_code(f"importing {self.source}"):
            module = _module_from_file(self.source) if self.source.endswith(_SUFFIX) else _imported_module(self.source)
        function: Callable[[], Any] | None = getattr(module, self.function, None)
        if not callable(function):
            self._refuse(f"{self.source} has no function {self.function}")
        return function

    @contextmanager
    def _user_code(self, action: str) -> Iterator[None]:
        """Turn errors of the user's code in the block into an `InputError` that names the entry and the line."""
        try:
            yield
        except InputError as error:
            self._refuse(f"{action} {error}", error)
        except (Exception, SystemExit) as error:
            self._refuse(f"{action} failed{_user_line(error)}: {type(error).__name__}: {error}", error)

    def _refuse(self, problem: str, cause: BaseException | None = None) -> NoReturn:
        raise InputError(f"networks.{self.name}.build: {problem}") from cause


def _built_on_meta_or_cpu(build_on: Callable[[torch.device], nn.Module]) -> nn.Module:
    """Return the network that `build_on` builds on PyTorch's meta device. If building fails there, the CPU is used."""
    import torch

    try:
        return build_on(torch.device("meta"))
    except Exception:  # a function that needs values fails on the meta device, and is called again for the CPU
        return build_on(torch.device("cpu"))


def file_of(entry: Mapping[str, Any]) -> Path | None:
    """Return the file that an entry under ``networks`` names; None if the entry names a module."""
    source, _, _ = entry["build"].rpartition(":")
    return Path(source) if source.endswith(_SUFFIX) else None


def own_network(name: str, entry: Mapping[str, Any]) -> OwnNetwork:
    """Return the network of the study's entry ``networks.<name>``; raise `InputError` if the entry is not valid."""
    source, separator, function = entry["build"].rpartition(":")
    if not (separator and source and function.isidentifier()):
        raise InputError(f"networks.{name}.build: {entry['build']!r} should be MODULE:FUNCTION or FILE.py:FUNCTION")
    if (file := file_of(entry)) and not file.is_file():
        raise InputError(f"networks.{name}.build: there is no file {file}")
    input_keys = {key for key in ("image_size", "sequence_length", "vocabulary") if key in entry}
    if input_keys == {"image_size"}:
        return OwnNetwork(name, source, function, Images(entry["image_size"]))
    if input_keys == {"sequence_length", "vocabulary"}:
        return OwnNetwork(name, source, function, Tokens(entry["sequence_length"], entry["vocabulary"]))
    found = ", ".join(sorted(input_keys)) or "nothing"
    raise InputError(f"networks.{name}: needs its input, {_INPUT_KEYS}, but has {found}")


def _user_line(error: BaseException) -> str:
    """Return the innermost line of the user's code (in the working directory) that led to `error`, or an empty text."""
    user_lines = [
        f" at {os.path.relpath(frame.filename)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(Path.cwd())
        and not Path(frame.filename).is_relative_to(_LIBRARY_FOLDER)
        and "site-packages" not in Path(frame.filename).parts
    ]
    return user_lines[-1] if user_lines else ""


def _takes_labels(network: nn.Module) -> bool:
    """Return whether ``forward`` has at least two required arguments."""
    required_arguments = [
        parameter
        for parameter in inspect.signature(network.forward).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return len(required_arguments) >= 2


@contextmanager
def _import_path(folder: Path) -> Iterator[None]:
    """Search `folder` first for modules that the block imports."""
    sys.path.insert(0, str(folder.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.resolve()))


def _imported_module(name: str) -> ModuleType:
    with _import_path(Path.cwd()):
        return import_module(name)


def _module_from_file(source: str) -> ModuleType:
    path = Path(source)
    module_spec = spec_from_file_location(path.stem, path)
    assert module_spec, "every .py file has a loader"
    assert module_spec.loader
    module = module_from_spec(module_spec)
    with _import_path(path.parent):
        module_spec.loader.exec_module(module)
    return module
