"""Several models in one program, models that are evaluated in between, and models that change."""

from __future__ import annotations

import copy

import torch
from shared import BAD_STEP, batch, main, say, two_layers
from torch import Tensor, nn


def adversarial(bad: bool) -> None:
    """The discriminator is called three times an iteration, and first."""
    generator, critic = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 4)), two_layers()
    ours = torch.optim.SGD(generator.parameters(), lr=0.1)
    theirs = torch.optim.Adam(critic.parameters(), lr=0.01)
    for step in range(1, 6):
        theirs.zero_grad()
        real = critic(batch(bad and step == BAD_STEP)).mean()
        made = generator(torch.randn(3, 2))
        loss = critic(made.detach()).mean() - real
        loss.backward()
        theirs.step()
        ours.zero_grad()
        fooled = -critic(made).mean()
        fooled.backward()
        ours.step()
        say(loss + fooled)


def teacher_and_student(bad: bool) -> None:
    teacher, student = two_layers(), two_layers()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for step in range(1, 5):
        x = batch(False)
        with torch.no_grad():
            target = teacher(x)
        if bad and step == BAD_STEP:
            x = x.clone().fill_(float("nan"))
        loss = nn.functional.mse_loss(student(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(loss)


def moving_average(bad: bool) -> None:
    """A copy of the model follows its parameters, and is evaluated each step."""
    model = two_layers()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 5):
        optimizer.zero_grad()
        loss = model(batch(bad and step == BAD_STEP)).square().mean()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        with torch.no_grad():
            say(loss + average(batch(False)).mean())


def evaluation_between(bad: bool) -> None:
    """Two batches are evaluated after each training step."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(1, 5):
        model.train()
        optimizer.zero_grad()
        loss = model(batch(bad and step == BAD_STEP)).square().mean()
        loss.backward()
        optimizer.step()
        say(loss)
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                say(model(batch(False)).mean())


def evaluation_goes_bad(bad: bool) -> None:
    """The batch of an evaluation is bad; no training step is."""
    model = two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 5):
        optimizer.zero_grad()
        loss = model(batch(False)).square().mean()
        loss.backward()
        optimizer.step()
        say(loss)
        model.eval()
        with torch.inference_mode():
            say(model(batch(bad and step == BAD_STEP)).mean())
        model.train()


def accumulation(bad: bool) -> None:
    """Three micro-batches a step of the optimizer; the second of the second is bad."""
    model = two_layers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(1, 4):
        optimizer.zero_grad()
        for micro in range(1, 4):
            loss = model(batch(bad and (step, micro) == (2, 2))).square().mean() / 3
            loss.backward()
            say(loss)
        optimizer.step()


def growing(bad: bool) -> None:
    """A layer is added after the first step and another is replaced after the second; that one is bad."""
    model = two_layers()
    for step in range(1, 5):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(batch(False)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(loss)
        if step == 1:
            model.append(nn.Linear(1, 2))
        if step == 2:
            model[2] = nn.Linear(4, 1)
            if bad:
                with torch.no_grad():
                    model[2].weight[0, 0] = float("nan")


def between_models(bad: bool) -> None:
    """An encoder, a module without parameters, and a decoder that are no parts of one model."""

    class Scale(nn.Module):
        factor = 1.0

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    encoder, scale, decoder = nn.Linear(4, 4), Scale(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    for step in range(1, 5):
        scale.factor = float("nan") if bad and step == BAD_STEP else 1.0
        loss = criterion(decoder(scale(encoder(batch(False)))), torch.zeros(3, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(loss)


def prepared(bad: bool) -> None:
    """A module without parameters that is called first, and is not the model."""

    class Normalise(nn.Module):
        shift = 1e-3

        def forward(self, x: Tensor) -> Tensor:
            return x / (x.std() + self.shift)

    normalise, model = Normalise(), two_layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 5):
        normalise.shift = float("nan") if bad and step == BAD_STEP else 1e-3
        loss = model(normalise(batch(False))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(loss)


def several_optimizers(bad: bool) -> None:
    """Two optimizers for the parts of one model; the second makes its parameters bad."""
    model = two_layers()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.RMSprop(model[2].parameters(), lr=0.01)
    for step in range(1, 5):
        if bad and step == BAD_STEP:
            second.param_groups[0]["lr"] = float("inf")
        loss = model(batch(False)).square().mean()
        for optimizer in (first, second):
            optimizer.zero_grad()
        loss.backward()
        first.step()
        second.step()
        say(loss)


def copied_midway(bad: bool) -> None:
    """Training goes on with a copy of the model, and then with a pickle of it."""
    import pickle

    model = two_layers()
    for step in range(1, 5):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(batch(bad and step == BAD_STEP)).square().mean()
        loss.backward()
        optimizer.step()
        say(loss)
        model = copy.deepcopy(model) if step == 1 else pickle.loads(pickle.dumps(model))
        model.zero_grad()


if __name__ == "__main__":
    main(globals())
