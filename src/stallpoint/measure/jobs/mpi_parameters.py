"""Algorithms of the MPI library, chosen by its parameters, and read back at run time.

Libraries read parameters from environment variables at initialisation. Most libraries report them as control variables
of MPI_T, the MPI standard's interface for tools (mpi4py lacks it, so the library is called directly).

Sources: Open MPI's ``ompi_info --param coll tuned --level 9`` (4.1 and 5.0 agree); MPICH's control variables
(4.0 and newer), as its own tests of algorithms set them; Intel's developer reference, I_MPI_ADJUST family.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from stallpoint.errors import CannotRun
from stallpoint.measure.mpi import MPI
from stallpoint.strategies.options import FREE_SCHEMES, forced_scheme


@dataclass(frozen=True)
class MpiLibrary:
    """One family of MPI libraries."""

    version: str
    """Begin of the text that `MPI_Get_library_version` returns."""
    prefix: str
    """Prefix of parameters in the environment."""
    common: Mapping[str, str]
    """Parameters of every forced scheme, which keep other components from overruling it."""
    schemes: Mapping[str, Mapping[str, str]]
    """Parameters of each reduction scheme."""
    readable: bool = True
    """Whether the parameters in force can be read through MPI_T."""


LIBRARIES = (
    MpiLibrary(
        version="Open MPI",
        prefix="OMPI_MCA_",
        # Open MPI uses the component of highest priority. Only tuned has these algorithms, and by default the priority
        # of han (35 in Open MPI 5.0), hcoll (90) and other components is higher.
        common={"coll_tuned_priority": "100", "coll_tuned_use_dynamic_rules": "true"},
        schemes={
            "ring": {"coll_tuned_allreduce_algorithm": "ring"},
            "recursive-doubling": {"coll_tuned_allreduce_algorithm": "recursive_doubling"},
            "rabenseifner": {"coll_tuned_allreduce_algorithm": "rabenseifner"},
            "binary-tree": {"coll_tuned_reduce_algorithm": "binary", "coll_tuned_bcast_algorithm": "binary_tree"},
        },
    ),
    MpiLibrary(
        version="MPICH",
        prefix="",
        # Algorithms of the network device are excluded. MPICH replaces an algorithm that does not fit (Rabenseifner's
        # with fewer values than ranks). MPIR_CVAR_COLLECTIVE_FALLBACK=error would forbid that, but MPI_Init would fail.
        common={"MPIR_CVAR_DEVICE_COLLECTIVES": "none"},
        schemes={
            "ring": {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"},
            "recursive-doubling": {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "recursive_doubling"},
            "rabenseifner": {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "reduce_scatter_allgather"},
            # MPICH's tree is binomial for both reduce and broadcast.
            "binary-tree": {
                "MPIR_CVAR_REDUCE_INTRA_ALGORITHM": "binomial",
                "MPIR_CVAR_BCAST_INTRA_ALGORITHM": "binomial",
            },
        },
    ),
    MpiLibrary(
        version="Intel(R) MPI",
        prefix="",
        common={},
        schemes={
            "ring": {"I_MPI_ADJUST_ALLREDUCE": "8"},
            "recursive-doubling": {"I_MPI_ADJUST_ALLREDUCE": "1"},
            "rabenseifner": {"I_MPI_ADJUST_ALLREDUCE": "2"},
            "binary-tree": {"I_MPI_ADJUST_REDUCE": "2", "I_MPI_ADJUST_BCAST": "1"},
        },
        readable=False,
    ),
)


def choose(reduction: str) -> None:
    """Set the parameters of the scheme `reduction`, before MPI is initialised; `CannotRun` for an unknown library."""
    for name, value in _wanted(reduction).items():
        os.environ[_library().prefix + name] = value


def verify(reduction: str) -> None:
    """Raise `CannotRun` unless the MPI library, once initialised, uses the parameters of the scheme `reduction`."""
    parameters = _wanted(reduction)
    if not parameters or not _library().readable:
        return
    found = read(parameters)
    for name, value in parameters.items():
        if not agrees(value, found.get(name)):
            raise CannotRun(
                f"reduction {reduction}: the MPI library has {name} = {found.get(name, 'no such parameter')} in force, "
                f"not {value}; unset it where it is set (environment, mpirun --mca, a configuration file)"
            )


def in_force(reduction: str) -> str:
    """Return the scheme's parameters with the values that the library uses: ``coll_tuned_priority=100 ...``."""
    parameters = _wanted(reduction)
    if not parameters:
        return ""
    if not _library().readable:
        return " ".join(f"{name}={value} (not readable)" for name, value in parameters.items())
    return " ".join(f"{name}={value}" for name, value in read(parameters).items())


def read(names: Iterable[str]) -> dict[str, str]:
    """Return the values of the MPI library's control variables `names`; missing variables are left out."""
    tool = _Tool()
    return {name: value for name in names if (value := tool.read(name)) is not None}


def _wanted(reduction: str) -> dict[str, str]:
    """Return the parameters of the scheme `reduction` with their values."""
    if not forced_scheme(reduction):
        return {}
    library = _library()
    return {**library.common, **library.schemes[reduction]}


def _library() -> MpiLibrary:
    text = _version()
    found = next((library for library in LIBRARIES if text.startswith(library.version)), None)
    if found is None:
        supported = ", ".join(library.version for library in LIBRARIES)
        raise CannotRun(
            f"reduction schemes are chosen through parameters of {supported}; this library is "
            f"{text.splitlines()[0].strip()}: only reduction: {', '.join(FREE_SCHEMES)} can be used with it"
        )
    return found


def agrees(wanted: str, found: str | None) -> bool:
    """Return whether a parameter has the `wanted` value. A library may report the number of an algorithm, not its name;
    the number 0 means that the library chooses."""
    if found is None:
        return False
    return found == wanted or (found.isdigit() and found != "0" and not wanted.isdigit())


def _version() -> str:
    return str(MPI.Get_library_version())


class _Tool:
    """MPI_T, the MPI standard's interface for tools, in mpi4py's library. It is initialised once, never finalised."""

    def __init__(self) -> None:
        self._mpi = _mpi_t()

    def read(self, name: str) -> str | None:
        """Return the value of a control variable; None if the library has no variable of this name."""
        index, handle, count = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
        if self._mpi.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index)):
            return None
        if self._mpi.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)):
            return None
        value = (ctypes.c_char * 4096)()
        self._mpi.MPI_T_cvar_read(handle, value)
        self._mpi.MPI_T_cvar_handle_free(ctypes.byref(handle))
        if count.value > 1:  # the variable is an array of characters: a text
            return value.value.decode()
        number = int.from_bytes(value.raw[:4], "little", signed=True)  # a value of one byte is padded with zeros
        return self._value_names(index).get(number, str(number))

    def _value_names(self, index: ctypes.c_int) -> dict[int, str]:
        """Return the names of a control variable's possible values, by value; empty if the values have no names."""
        length, verbosity, bind, scope = (ctypes.c_int() for _ in range(4))
        datatype, choices = ctypes.c_void_p(), ctypes.c_void_p()
        self._mpi.MPI_T_cvar_get_info(
            index, None, ctypes.byref(length), ctypes.byref(verbosity), ctypes.byref(datatype),
            ctypes.byref(choices), None, ctypes.byref(length), ctypes.byref(bind), ctypes.byref(scope),
        )  # fmt: skip
        items, text, value = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int()
        if not choices or self._mpi.MPI_T_enum_get_info(choices, ctypes.byref(items), None, ctypes.byref(length)):
            return {}
        names = {}
        for item in range(items.value):
            length.value = len(text)
            self._mpi.MPI_T_enum_get_item(choices, item, ctypes.byref(value), text, ctypes.byref(length))
            names[value.value] = text.value.decode()
        return names


@cache
def _mpi_t() -> ctypes.CDLL:
    library = ctypes.CDLL(MPI.__file__)  # mpi4py's module: functions of the MPI library can be called through it
    thread_level = ctypes.c_int()
    if library.MPI_T_init_thread(int(MPI.THREAD_MULTIPLE), ctypes.byref(thread_level)):
        raise CannotRun("the MPI library does not offer MPI_T, by which its parameters could be verified")
    return library
