"""Threads, workers of data loaders, and ranks."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from shared import BAD_STEP, batch, main, say, two_layers
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[Tensor]):
    """Twelve rows; a worker may call a small model of its own for each."""

    def __init__(self, bad: bool, preprocess: nn.Module | None = None) -> None:
        self.bad = bad
        self.preprocess = preprocess

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Tensor:
        row = torch.full((4,), index / 10)
        if self.bad and index == 3 * (BAD_STEP - 1):
            row[0] = float("nan")
        if self.preprocess is not None:
            with torch.no_grad():
                row = self.preprocess(row)
        return row


def _train_on(loader: Any) -> None:
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        say(loss)


def forking_loader(bad: bool) -> None:
    """Workers are forks, and call a module for each row."""
    _train_on(DataLoader(Rows(bad, nn.Linear(4, 4)), batch_size=3, num_workers=2, multiprocessing_context="fork"))


def threads(bad: bool) -> None:
    """Two models are trained in two threads, a step in turn."""
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    models = [two_layers(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))]
    batches = [[batch(bad and number == 1 and step == BAD_STEP) for step in range(1, 5)] for number in range(2)]

    def train(number: int) -> None:
        optimizer = torch.optim.SGD(models[number].parameters(), lr=0.1)
        for x in batches[number]:
            turns[number].acquire()
            optimizer.zero_grad()
            loss = models[number](x).square().mean()
            loss.backward()
            optimizer.step()
            say(loss)
            turns[1 - number].release()

    workers = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def worker_thread(bad: bool) -> None:
    """All calls are made in one thread that is not the main one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(_train_on, [batch(bad and step == BAD_STEP) for step in range(1, 5)]).result()


def data_parallel(bad: bool) -> None:
    """DistributedDataParallel over one rank, without synchronising in each other micro-batch."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(two_layers())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 5):
        optimizer.zero_grad()
        with model.no_sync():
            model(batch(False)).square().mean().backward()
        loss = model(batch(bad and step == BAD_STEP)).square().mean()
        loss.backward()
        optimizer.step()
        say(loss)
    # While the group lives: else torch joins gloo's threads as it frees the model, holding the GIL they may wait for.
    del model
    dist.destroy_process_group()


def _rank(rank: int, bad: bool, path: str) -> None:
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2)
    torch.manual_seed(0)
    model = two_layers()
    fully_shard(model[0])
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(1, 5):
        optimizer.zero_grad()
        loss = model(batch(bad and rank == 1 and step == BAD_STEP)).square().mean()
        loss.backward()
        optimizer.step()
        if rank == 0:
            say(loss)
    dist.barrier()
    dist.destroy_process_group()


def sharded_ranks(bad: bool) -> None:
    """Two ranks of a fork server share the parameters (FSDP2); the batch of the second is bad."""
    mp.set_forkserver_preload(["torch._dynamo", "torch.distributed.fsdp"])  # once, not in each rank
    with tempfile.TemporaryDirectory() as directory:
        mp.start_processes(_rank, (bad, os.path.join(directory, "store")), nprocs=2, start_method="forkserver")


if __name__ == "__main__":
    main(globals())
