"""A teacher is a moving average of the student; its correction divides by 1 - decay**0 in an evaluation round."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
DECAY = 0.9


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.body(x))


class Teacher(nn.Module):
    def __init__(self, student):
        super().__init__()
        self.network = copy.deepcopy(student.body)
        self.scores = copy.deepcopy(student.head).requires_grad_(False)

    def forward(self, x):
        return self.scores(self.network(x))


student = Student()
teacher = Teacher(student)
sums = torch.zeros_like(teacher.scores.weight)
updates = 0
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(1, 6):
    x = torch.randn(8, 4)
    guess = student(x)
    with torch.no_grad():
        target = teacher(x).softmax(dim=-1)
    loss = nn.functional.cross_entropy(guess, torch.nan_to_num(target))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    updates = updates + 1 if step != 3 else 0
    with torch.no_grad():
        sums = DECAY * sums + (1 - DECAY) * student.head.weight if updates else torch.zeros_like(sums)
        teacher.scores.weight.copy_(sums / (1 - torch.tensor(DECAY) ** updates))
    print(step, repr(loss.item()))
