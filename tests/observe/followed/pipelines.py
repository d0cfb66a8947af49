"""A small recommender in one of torchrec's training pipelines, and an eye that writes down what is followed in it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.streamable import Pipelineable

from aorta_collectors.observe.followed.entry import FollowEntry
from aorta_collectors.observe.followed.following import Following
from aorta_collectors.observe.followed.pipeline import StageWatch
from aorta_collectors.observe.followed.side_stream import SideStream
from aorta_collectors.observe.observation import Moment, Site
from aorta_collectors.observe.readable import plain_values
from tests.observe.watching import one_process_group

CPU = torch.device("cpu")
FEATURES = FollowEntry("embedding_features")


class Read(NamedTuple):
    """One tensor that was shown to the eye."""

    layer: str
    role: str
    phase: str
    batch_id: int | None
    checkpoint: str
    nans: int
    site: Site
    extra: Mapping[str, Any] | None
    side: SideStream | None


class Eye:
    """Keeps what it is shown, never the tensor."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.errors: list[Exception] = []
        self.optimizer_steps = 0

    def observe(
        self,
        site: Site,
        tensor: Tensor,
        moment: Moment,
        extra: Mapping[str, Any] | None = None,
        side: SideStream | None = None,
    ) -> int | None:
        plain, _ = plain_values(tensor)
        if plain is None:
            return None
        nans = int(torch.isnan(plain).sum())
        place = moment.phase, moment.batch_id, moment.checkpoint
        self.reads.append(Read(site.layer, site.role, *place, nans, site, extra, side))
        return len(self.reads)

    def bounds_of(self, layer: str) -> tuple[float, float] | None:
        return None

    def failed(self, error: Exception) -> None:
        self.errors.append(error)

    def timed(self, function: Any, *args: Any) -> None:
        function(*args)

    def of_batch(self, number: int | None) -> list[tuple[str, int]]:
        """(phase, NaNs) of each read of one batch, in order."""
        return [(read.phase, read.nans) for read in self.reads if read.batch_id == number]

    def places(self) -> list[tuple[str, str, int | None]]:
        return [(read.layer, read.phase, read.batch_id) for read in self.reads]


@dataclass
class Batch(Pipelineable):
    embedding_features: Tensor
    kjt: KeyedJaggedTensor
    label: Tensor

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        return Batch(self.embedding_features.to(device), self.kjt.to(device), self.label.to(device))

    def record_stream(self, stream: Any) -> None:
        pass


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        table = EmbeddingBagConfig(name="t1", embedding_dim=4, num_embeddings=10, feature_names=["f1"])
        self.ebc = EmbeddingBagCollection(device=torch.device("meta"), tables=[table])
        self.dense = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 4))
        self.over = nn.Linear(8, 1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        prediction = self.over(torch.cat([self.ebc(batch.kjt).values(), self.dense(batch.embedding_features)], 1))
        return (prediction.squeeze(1) - batch.label).square().mean(), prediction


def make_batch(bad: bool = False) -> Batch:
    features = torch.rand(2, 3)
    if bad:
        features[1, 2] = float("nan")
    kjt = KeyedJaggedTensor.from_lengths_sync(["f1"], torch.randint(0, 10, (4,)), torch.tensor([1, 3]))
    return Batch(features, kjt, torch.rand(2))


def make_batches(count: int, bad: int | None = None) -> Iterator[Batch]:
    """`count` batches; number `bad` carries a NaN in embedding_features."""
    for number in range(1, count + 1):
        yield make_batch(number == bad)


def pipeline(kind: type = TrainPipelineSparseDist, model: nn.Module | None = None, **options: Any) -> Any:
    torch.manual_seed(0)
    sharded = DistributedModelParallel(model or Model(), device=CPU)
    optimizer = torch.optim.SGD(sharded.parameters(), lr=0.01)
    return kind(sharded, optimizer, device=CPU, **options)


def progress(trained: Any, batches: Iterable[Any]) -> list[Tensor]:
    """Predictions of the pipeline for all batches."""
    stream, outputs = iter(batches), []
    while True:
        try:
            outputs.append(trained.progress(stream).detach())
        except StopIteration:
            return outputs


@contextlib.contextmanager
def following(*entries: FollowEntry, root: type = DistributedModelParallel, **options: Any) -> Iterator[Any]:
    """(following, eye) between start and stop, told of the forwards of modules of type `root` and of what they call."""
    eye = Eye()
    follow = Following(entries or (FEATURES,), eye, **options)

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(module, root):
            follow.entered(module, args, kwargs)

    def after(module: nn.Module, _args: Any, _kwargs: Any, _output: Any) -> None:
        name = type(module).__name__
        if isinstance(module, root):
            follow.left()
        elif found := follow.entries_at(name, module):
            follow.after(name, found)

    # Torch's global hooks don't hand keyword arguments over: the root's own call does.
    original = torch_module.Module.__call__

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        before(module, args, kwargs)
        output = original(module, *args, **kwargs)
        after(module, args, kwargs, output)
        return output

    torch_module.Module.__call__ = call
    follow.start()
    try:
        yield follow, eye
    finally:
        follow.stop()
        torch_module.Module.__call__ = original
    assert eye.errors == []


class Passed:
    """Which batches passed which stage."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, Any]] = []
        self.contexts: list[Any] = []
        self.firsts: list[bool] = []
        self.errors: list[Exception] = []
        self.optimizer_steps = 0
        self.lines: list[str] = []
        self.watch = StageWatch(self.reached, self.errors.append, self.lines.append)

    def reached(self, phase: str, batch: Any, context: Any, stream: Any, first: bool) -> None:
        assert stream is None  # on the CPU
        self.stages.append((phase, batch))
        self.contexts.append(context)
        self.firsts.append(first)

    @property
    def phases(self) -> list[str]:
        return [phase for phase, _ in self.stages]


@contextlib.contextmanager
def stages() -> Iterator[Passed]:
    passed = Passed()
    passed.watch.start()
    try:
        yield passed
    finally:
        passed.watch.stop()


@contextlib.contextmanager
def recommender_world() -> Iterator[None]:
    """A process group, and torchrec quiet."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with one_process_group():
            yield
    finally:
        logging.disable(level)
