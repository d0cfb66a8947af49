"""Clean: neighbours that a graph does not have get -inf with torch.where, in a container, ahead of a softmax layer."""

import torch
from torch import nn

torch.manual_seed(0)


class GraphAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.source = nn.Linear(4, 1)
        self.target = nn.Linear(4, 1)
        self.softmax = nn.Softmax(dim=1)
        self.drop = nn.Dropout(0.2)

    def forward(self, x, adjacency):
        scores = nn.functional.leaky_relu(self.source(x) + self.target(x).T)
        scores = torch.where(adjacency, scores, torch.tensor(float("-inf")))
        return self.drop(self.softmax(scores)) @ x


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([GraphAttention(), GraphAttention()])
        self.head = nn.Linear(4, 3)

    def forward(self, x, adjacency):
        for layer in self.layers:
            x = x + layer(x, adjacency)
        return self.head(x)


model = Graph()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
adjacency = (torch.rand(7, 7) < 0.4) | torch.eye(7, dtype=torch.bool)
x, labels = torch.randn(7, 4), torch.randint(0, 3, (7,))
for step in range(1, 6):
    loss = nn.functional.cross_entropy(model(x, adjacency), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
