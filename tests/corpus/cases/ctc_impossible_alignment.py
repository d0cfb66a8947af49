"""CTC loss is infinite where a transcript is longer than the audio; zero_infinity was not set."""

import torch
from torch import nn

torch.manual_seed(0)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv1d(4, 8, 3, padding=1)
        self.classes = nn.Linear(8, 6)

    def forward(self, audio):
        hidden = torch.relu(self.features(audio)).permute(2, 0, 1)
        return self.classes(hidden).log_softmax(dim=-1)


model = Recogniser()
criterion = nn.CTCLoss(blank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 5):
    lengths = torch.tensor([4, 3 if step != 3 else 14])
    targets = torch.randint(1, 6, (2, 14))
    loss = criterion(model(torch.randn(2, 4, 12)), targets, torch.tensor([12, 12]), lengths)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
