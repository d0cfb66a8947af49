"""A training in a spawned child process, with no process group; a pooled sequence has length 0."""

import multiprocessing
import sys

import torch
from torch import nn


class MeanPool(nn.Module):
    def forward(self, x, lengths):
        present = (torch.arange(x.shape[1]) < lengths.unsqueeze(-1)).unsqueeze(-1)
        return (x * present).sum(dim=1) / lengths.unsqueeze(-1)


class Sentences(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.pool = MeanPool()
        self.head = nn.Linear(4, 2)

    def forward(self, tokens, lengths):
        return self.head(self.pool(self.embedding(tokens), lengths))


def train(seed):
    torch.manual_seed(seed)
    model = Sentences()
    for step in range(1, 5):
        lengths = torch.tensor([3, 2, 1 if step != 3 else 0])
        logits = model(torch.randint(0, 9, (3, 4)), lengths)
        loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1, 1]))
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        model.zero_grad()
        print(step, repr(loss.item()))
    sys.stdout.flush()


if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=train, args=(0,))
    child.start()
    child.join()
    print("exit code", child.exitcode)
