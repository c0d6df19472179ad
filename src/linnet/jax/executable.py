"""A StableHLO program compiled by XLA, through the client that JAX holds for a device.

This is the one file that uses what JAX doesn't document: a device's `client`, with
`compile_and_load`, `serialize_executable` and `deserialize_executable`, and `jaxlib`'s types for
their options. `jax.jit` takes Python functions alone, and with 64-bit types only where a whole
process has them; the client takes the text as it is, and changes nothing for other code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

Array = Any
"""A `jax.Array`."""
Device = Any
"""A `jax.Device`."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What an executable needs, in bytes, as XLA planned it."""

    arguments: int
    outputs: int
    aliased: int
    """The part of the outputs that takes the memory of donated arguments."""
    temporaries: int


class Executable:
    """A program that is loaded on one device."""

    def __init__(self, loaded: Any, client: Any):
        self._loaded = loaded
        self._client = client

    def __call__(self, arguments: Sequence[Array]) -> list[Array]:
        """Runs it on arrays of the device; donated ones are gone after. Doesn't wait."""
        found = self._loaded.execute_sharded(arguments)
        return [parts[0] for parts in found.disassemble_into_single_device_arrays()]

    def serialized(self) -> bytes:
        return self._client.serialize_executable(self._loaded)

    @property
    def memory(self) -> Memory:
        found = self._loaded.get_compiled_memory_stats()
        return Memory(
            found.argument_size_in_bytes,
            found.output_size_in_bytes,
            found.alias_size_in_bytes,
            found.temp_size_in_bytes,
        )

    @property
    def optimised(self) -> str:
        """The program after XLA's own passes, as HLO text."""
        return "\n".join(module.to_string() for module in self._loaded.hlo_modules())


def compile_text(text: str, device: Device, flags: dict[str, bool]) -> Executable:
    """Compiles a module for a device. Raises `ValueError` for text that is no valid program."""
    client = device.client
    try:
        loaded = client.compile_and_load(text, _devices(device), _options(device, flags))
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"XLA can't compile the program: {error}") from error
    return Executable(loaded, client)


def load_serialized(data: bytes, device: Device, flags: dict[str, bool]) -> Executable:
    """What `serialized` gave, on a device of the same kind.

    Only for data that this user's own process wrote: it holds machine code.
    """
    client = device.client
    loaded = client.deserialize_executable(data, _devices(device), _options(device, flags))
    return Executable(loaded, client)


def platform(device: Device) -> str:
    """What an executable's code depends on beside its program: JAX, XLA and the device's kind."""
    client = device.client
    versions = f"jax {jax.__version__}, jaxlib {version('jaxlib')}"
    return f"{versions}, {client.platform} {client.platform_version}, {device.device_kind}"


def _devices(device: Device) -> Any:
    return xla_client.DeviceList((device,))


def _options(device: Device, flags: dict[str, bool]) -> Any:
    options = xla_client.CompileOptions()
    options.device_assignment = xla_client.DeviceAssignment.create(np.array([[device.id]]))
    options.env_option_overrides = list(flags.items())
    return options
