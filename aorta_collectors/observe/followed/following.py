"""Following named tensors of the batch: through the pipeline's stages, into the root's forward, past its modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn
from torch.fx import Proxy
from torch.utils.weak import TensorWeakRef

from aorta_collectors.observe.followed.batch import Found, expand, find, parameter_names
from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.followed.numbering import BatchNumbers, WeakTable, weaken
from aorta_collectors.observe.followed.pipeline import StageWatch
from aorta_collectors.observe.followed.side_stream import SideStream
from aorta_collectors.observe.jagged import metadata
from aorta_collectors.observe.observation import Moment, Site

_FORWARD = "forward"
_DISCOVERY_DEPTH = 2
_SITES = 4096


class FollowEye(Protocol):
    """Whoever looks at the tensors."""

    @property
    def optimizer_steps(self) -> int: ...  # taken so far
    def observe(
        self,
        site: Site,
        tensor: Tensor,
        moment: Moment,
        extra: Mapping[str, Any] | None = None,
        side: SideStream | None = None,
    ) -> int | None:
        """Look at `tensor` now, within `side.reading(tensor)` where there is a side; join it before the results.

        Returns None for a tensor that could not be read, any number otherwise."""

    def bounds_of(self, layer: str) -> tuple[float, float] | None: ...  # where a tensor's entry has no range
    def failed(self, error: Exception) -> None: ...  # of ours; the program must not notice
    def timed(self, function: Any, *args: Any) -> None: ...  # counts its time, and keeps what it raises


class _Held(NamedTuple):
    """A followed tensor of the batch in forward. Weak: the program may free it before its forward is over."""

    name: str
    tensor: TensorWeakRef
    jagged: Callable[[], Any]


class Following:
    """Finds the entries' tensors in each batch and shows them to `eye`, everywhere they are to be read.

    Args:
        most: Tensors of a batch that are read at a time.
        sparse: Whether jagged tensors get the role sparse, and metadata of their layout.
        sparse_heavy: Then also metadata that waits for the device.
        side: The stream of our own for entries that ask for one.
        log: Gets lines for the user, each at most once.

    Attributes:
        batch_id: Number of the batch that went into the root's forward last, or None.
        pipeline_checkpoints, forward_checkpoints: Stages passed, and forwards entered, where something was read.
        auto_discovered: Whether no entry's name was found in a batch, so that all its tensors were read instead.
    """

    def __init__(
        self,
        entries: tuple[FollowEntry, ...],
        eye: FollowEye,
        *,
        most: int = 64,
        sparse: bool = False,
        sparse_heavy: bool = False,
        side: SideStream | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.batch_id: int | None = None
        self.pipeline_checkpoints = 0
        self.forward_checkpoints = 0
        self.auto_discovered = False
        self._entries = entries
        self._eye = eye
        self._most = most
        self._sparse = sparse
        self._sparse_heavy = sparse_heavy
        self._log = log or (lambda line: None)
        self._side = side or SideStream(log=log)
        self._inline = SideStream(own=False)
        self._stage_entries = [index for index, entry in enumerate(entries) if entry.stages]
        self._stages = StageWatch(partial(eye.timed, self._reached), eye.failed, self._log)
        self._numbers = BatchNumbers()
        self._sites: dict[tuple[int, str, str], Site] = {}
        self._held: dict[int, list[_Held]] = {}
        self._module_calls = [0] * len(entries)
        self._parameters: WeakTable[tuple[str, ...]] = WeakTable()
        self._names_found = False
        self._unfound = set(range(len(entries)))
        self._unmatched = {index for index, entry in enumerate(entries) if entry.modules is not None}
        self._stage_passed = False

    # -- lifecycle and what the summary says

    def start(self) -> None:
        if self._stage_entries:
            self._stages.start()

    def stop(self) -> None:
        """Undo the wrappers and let go of the batch."""
        self._stages.stop()
        self.left()

    @property
    def pipeline_installed(self) -> bool:
        return self._stages.installed

    @property
    def mint_phase(self) -> str | None:
        """The stage where batches usually get their numbers; None where no stage is watched, and forward does it."""
        return self._stages.first_phase

    @property
    def unfound(self) -> list[str]:
        """Names that no batch has had so far."""
        return [self._entries[index].tensor for index in sorted(self._unfound)]

    @property
    def unmatched(self) -> list[int]:
        """Entries whose scope matches no module so far."""
        return sorted(self._unmatched)

    @property
    def stage_reads_active(self) -> bool:
        return self._side.active

    @property
    def stage_read_count(self) -> int:
        return self._side.count

    @property
    def batches_seen(self) -> int:
        return self._numbers.seen

    # -- the stages of the pipeline

    def _reached(self, phase: str, batch: Any, context: Any, stream: Any, first: bool) -> None:
        self._stage_passed = True
        # In a Future nothing is found, and it is never waited for; its batch is known again by the context.
        found = self._find(batch) or self._discover(batch, self._stage_entries[0])
        number = self._numbers.number(batch, _tensors(found), first=first, context=context)
        moment = Moment(phase, number)
        with self._side.after(stream), self._inline.after(stream):
            read = [self._read(index, found.get(index, ()), moment) for index in self._stage_entries]
        if any(read):
            self.pipeline_checkpoints += 1

    # -- the forward of the root

    def entered(self, root: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """The root is about to run its forward: read what is followed in its arguments."""
        self.left()
        self.batch_id = None
        try:
            self._enter(root, args, kwargs)
        except Exception as error:
            self._eye.failed(error)

    def left(self) -> None:
        """The root's forward is over."""
        self._held = {}
        self._module_calls = [0] * len(self._entries)

    def _enter(self, root: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        given = [*args, *kwargs.values()]
        if any(issubclass(type(value), Proxy) for value in given):
            return  # torchrec traces a model before its first batch
        names = self._names_of(root)
        found = self._find({**{names[i] if i < len(names) else i: value for i, value in enumerate(args)}, **kwargs})
        if not found and len(given) == 1:
            found = self._discover(given[0])
        elif not found:
            found = self._discover({**dict(enumerate(args)), **kwargs}, depth=_DISCOVERY_DEPTH + 1)
        tensors = _tensors(found)
        batch = given[0] if len(given) == 1 else next(filter(self._numbers.knows, given), None)
        # Where a pipeline runs, a batch that hasn't passed its stages is one that was built anew: its number is lost.
        first = bool(tensors) and not self._stage_passed
        self.batch_id = self._numbers.number(batch, tensors, first=first)
        moment = Moment(_FORWARD, self.batch_id)
        read = [self._read(index, parts, moment) for index, parts in found.items()]
        if any(read):
            self.forward_checkpoints += 1
        for index, parts in found.items():
            if self._entries[index].modules is not None:
                self._held[index] = [
                    _Held(part.name, TensorWeakRef(part.tensor), weaken(part.jagged)) for part in parts
                ]

    def _names_of(self, root: nn.Module) -> tuple[str, ...]:
        """Names of the positional parameters of the root's forward; a wrapper that takes anything has its module's."""
        names = self._parameters.get(root)
        if names is None:
            names = parameter_names(root)
            self._parameters.put(root, names)
        return names

    # -- past the modules

    def entries_at(self, path: str, module: nn.Module) -> tuple[int, ...]:
        """Which entries are read again after calls of this module, before any stride."""
        matching = tuple(
            index
            for index, entry in enumerate(self._entries)
            if entry.modules is not None and entry.modules.matches(path, module)
        )
        self._unmatched.difference_update(matching)
        return matching

    def after(self, layer: str, entries: tuple[int, ...]) -> None:
        """A module has been called that is in the scope of `entries`: each reads again if its stride says so."""
        moment = Moment(_FORWARD, self.batch_id, layer)
        for index in entries:
            group = self._entries[index].modules
            count = self._module_calls[index]
            self._module_calls[index] += 1
            if group is None or count % group.stride:
                continue
            for name, held, jagged in self._held.get(index, ()):
                tensor = held()
                if tensor is not None:
                    self._read(index, [Found(name, tensor, jagged())], moment)

    # -- finding and reading

    def _find(self, batch: Any) -> dict[int, list[Found]]:
        """What each entry's name stands for in `batch`, for those that find anything."""
        found: dict[int, list[Found]] = {}
        for index, entry in enumerate(self._entries):
            room = self._most - sum(len(read) for read in found.values())
            parts = find(batch, entry.tensor, room) if room else []
            if parts:
                found[index] = parts
        self._names_found |= bool(found)
        self._unfound.difference_update(found)
        return found

    def _discover(self, batch: Any, index: int = 0, depth: int = _DISCOVERY_DEPTH) -> dict[int, list[Found]]:
        """All tensors of a batch in which no name was found, on behalf of one entry.

        A call without a name that others had, such as that of a loss module, takes no batch.
        """
        parts = [] if self._names_found else expand("batch", batch, self._most, depth)
        if parts and not self.auto_discovered:
            self.auto_discovered = True
            wanted = ", ".join(repr(entry.tensor) for entry in self._entries)
            there = ", ".join(part.name for part in parts[:8])
            self._log(f"no batch has {wanted}; reading what it has instead, without a range: {there}")
        return {index: parts} if parts else {}

    def _read(self, index: int, parts: Iterable[Found], moment: Moment) -> int:
        """Show the tensors of one entry to the eye; returns how many were read."""
        entry, count = self._entries[index], 0
        moment = moment._replace(optimizer_step=self._eye.optimizer_steps)
        for name, tensor, jagged in parts:
            try:
                # What is read after a module has to be read before the next one changes it.
                aside = entry.side_stream and not moment.checkpoint
                side = self._side if aside else None if moment.phase == _FORWARD else self._inline
                sparse = self._sparse and jagged is not None
                with self._inline.reading(tensor):
                    extra = metadata(jagged, self._sparse_heavy) if sparse else None
                site = self._site(index, name, "sparse" if sparse else "track")
                count += self._eye.observe(site, tensor, moment, extra, side) is not None
            except Exception as error:
                self._eye.failed(error)
        return count

    def _bounds_of(self, index: int, name: str) -> tuple[float, float] | None:
        entry = self._entries[index]
        # What was read instead of a tensor that the batch does not have is not held to that tensor's range.
        if entry.bounds is not None and entry.tensor in name:
            return entry.bounds
        return self._eye.bounds_of(name)

    def _site(self, index: int, name: str, role: str) -> Site:
        site = self._sites.get((index, name, role))
        if site is None:
            if len(self._sites) >= _SITES:  # keys of a mapping that are never the same
                self._sites.clear()
            site = Site(name, "pipeline", role, bounds=self._bounds_of(index, name))
            self._sites[index, name, role] = site
        return site


def _tensors(found: Mapping[int, list[Found]]) -> list[Tensor]:
    return [part.tensor for parts in found.values() for part in parts]
