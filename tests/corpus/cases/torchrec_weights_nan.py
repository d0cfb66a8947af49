"""An EmbeddingBagCollection with per-sample weights; one weight of the KeyedJaggedTensor is NaN."""

import logging
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, PoolingType  # noqa: E402

torch.manual_seed(0)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        tables = [
            EmbeddingBagConfig(
                name=f"table_{name}",
                embedding_dim=4,
                num_embeddings=20,
                feature_names=[name],
                pooling=PoolingType.SUM,
            )
            for name in ("item", "shop")
        ]
        self.embeddings = EmbeddingBagCollection(tables=tables, is_weighted=True)
        self.head = nn.Linear(8, 1)

    def forward(self, features):
        return self.head(self.embeddings(features).values())


model = Recommender()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 5):
    weights = torch.rand(12)
    if step == 3:
        weights[9] = float("nan")
    features = KeyedJaggedTensor(
        keys=["item", "shop"],
        values=torch.randint(0, 20, (12,)),
        weights=weights,
        lengths=torch.tensor([2, 1, 3, 2, 2, 2]),
    )
    loss = (model(features) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
