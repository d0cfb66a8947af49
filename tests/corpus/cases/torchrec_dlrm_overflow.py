"""A DLRM through DistributedModelParallel: large dense features make the dot products of the interaction overflow."""

import logging
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor  # noqa: E402
from torchrec.distributed.model_parallel import DistributedModelParallel  # noqa: E402
from torchrec.models.dlrm import DLRM  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
tables = [
    EmbeddingBagConfig(name=f"table_{name}", embedding_dim=4, num_embeddings=20, feature_names=[name])
    for name in ("item", "shop")
]
model = DLRM(
    EmbeddingBagCollection(device=torch.device("meta"), tables=tables),
    dense_in_features=3,
    dense_arch_layer_sizes=[6, 4],
    over_arch_layer_sizes=[6, 1],
)
model = DistributedModelParallel(model, device=torch.device("cpu"))
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "embedding_bags" in name:
            parameter.fill_(1e10)
optimizer = torch.optim.SGD([p for n, p in model.named_parameters() if "embedding_bags" not in n], lr=1e-30)
for step in range(1, 5):
    dense = torch.rand(2, 3)
    if step == 3:
        dense *= 1e32
    sparse = KeyedJaggedTensor.from_lengths_sync(
        ["item", "shop"], torch.randint(0, 20, (4,)), torch.ones(4, dtype=torch.int32)
    )
    loss = torch.tanh(model(dense, sparse)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))
    sys.stdout.flush()
# While the group lives: else torch joins gloo's threads as it frees the model, holding the GIL they may wait for.
del model
dist.destroy_process_group()
