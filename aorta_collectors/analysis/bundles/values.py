"""Values of observations, from the safetensors files beside their lines."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aorta_collectors.analysis.bundles.observation import Observation
from aorta_collectors.errors import ArtifactError
from aorta_collectors.evidence.directory import Anchor

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

# A file is mapped while it is open, and the observations of a step are mostly in one.
_MOST_OPEN = 4


class ValueFiles:
    """The files of one directory; a context manager. No link is followed.

    Args:
        directory: In which the lines lie too.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: OrderedDict[str, tuple[Any, contextlib.ExitStack]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._close_oldest()

    def read(self, observation: Observation) -> Tensor:
        """A tensor in host memory, of the observation's dtype and shape.

        Raises:
            ArtifactError: Its values were not kept, or what lies there is not what the line tells of.
        """
        import torch
        from safetensors import SafetensorError

        if observation.file is None or observation.key is None:
            raise ArtifactError(f"the values of {observation.name} were not kept")
        place = f"{self._directory / observation.file}: {observation.key}"
        try:
            found: Tensor = self._file(observation.file).get_tensor(observation.key)
        except SafetensorError as error:
            raise ArtifactError(f"{place}: {error}") from None
        wanted = getattr(torch, observation.dtype, None)
        if not isinstance(wanted, torch.dtype):
            raise ArtifactError(f"{place}: this torch has no dtype {observation.dtype}")
        if found.dtype != wanted and found.dtype == torch.uint8:  # bytes of a dtype that such files have no name for
            with contextlib.suppress(RuntimeError):
                found = found.reshape(-1).view(wanted).reshape(observation.shape)
        if found.dtype != wanted or list(found.shape) != observation.shape:
            raise ArtifactError(
                f"{place} is {found.dtype} of shape {list(found.shape)}, and its line says {observation.dtype} of "
                f"shape {observation.shape}"
            )
        return found

    def _file(self, name: str) -> Any:
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name][0]
        from safetensors import safe_open

        if len(self._open) >= _MOST_OPEN:
            self._close_oldest()
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(Anchor(self._directory).open(self._directory))
            descriptor = stack.enter_context(directory.opened(name))
            # By its descriptor: under its name, a link may have taken its place by now.
            file = stack.enter_context(safe_open(f"/proc/self/fd/{descriptor}", framework="pt"))
            self._open[name] = file, stack.pop_all()
        return file

    def _close_oldest(self) -> None:
        _, (_, stack) = self._open.popitem(last=False)
        stack.close()
