"""Scripts that both loggers can watch: each wraps its model in DistributedModelParallel, the stock one's only root.

None needs a port. Each prints what it computed, so that two runs can be held against each other.
"""

_BEGIN = """
import argparse, logging, sys, warnings
from dataclasses import dataclass
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--bad", type=int, default=0)
parser.add_argument("--value", type=float, default=float("nan"))
for switch in ("--plain", "--keyword", "--inplace", "--gradients", "--complex", "--spoil"):
    parser.add_argument(switch, action="store_true")
args = parser.parse_args()
import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.streamable import Pipelineable
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
"""

#: A recommender in TrainPipelineSparseDist. Batch --bad carries one --value in `embedding_features` from the copy on.
#: --plain and --keyword: without a pipeline, on batches that are dictionaries; prints their keys after the step.
PIPELINE = (
    _BEGIN
    + """
@dataclass
class Batch(Pipelineable):
    embedding_features: torch.Tensor
    parts: list
    kjt: KeyedJaggedTensor
    label: torch.Tensor

    def to(self, device, non_blocking=False):
        parts = [part.to(device) for part in self.parts]
        return Batch(self.embedding_features.to(device), parts, self.kjt.to(device), self.label.to(device))

    def record_stream(self, stream):
        pass


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        table = EmbeddingBagConfig(name="t1", embedding_dim=4, num_embeddings=50, feature_names=["f1", "f2"])
        self.ebc = EmbeddingBagCollection(device=torch.device("meta"), tables=[table])
        self.project = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4))
        self.over = nn.Linear(12, 1)

    def forward(self, batch):
        if isinstance(batch, dict):
            batch = Batch(**{field: batch[field] for field in ("embedding_features", "parts", "kjt", "label")})
        joined = torch.cat([self.ebc(batch.kjt).values(), self.project(batch.embedding_features)], 1)
        prediction = self.over(joined).squeeze(1)
        return (prediction - batch.label).square().mean(), prediction


def batches():
    for number in range(1, args.steps + 1):
        features = torch.rand(3, 6) * 50
        if number == args.bad:
            features[1, 2] = args.value
        lengths = torch.tensor([1, 0, 3, 2, 1, 1])
        kjt = KeyedJaggedTensor.from_lengths_sync(["f1", "f2"], torch.randint(0, 50, (8,)), lengths)
        yield Batch(features, [torch.rand(3), torch.rand(2, 2) - 5], kjt, torch.rand(3))


model = DistributedModelParallel(Model(), device=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
if args.plain or args.keyword:
    for batch in batches():
        optimizer.zero_grad()
        batch = dict(vars(batch))
        loss, prediction = model(batch=batch) if args.keyword else model(batch)
        loss.backward()
        optimizer.step()
        print(prediction.tolist(), list(batch))
    sys.exit()
pipeline = TrainPipelineSparseDist(model, optimizer, device=torch.device("cpu"))
stream = batches()
while True:
    try:
        print(pipeline.progress(stream).tolist())
    except StopIteration:
        break
"""
)

#: A transformer. From step --bad on, the second block's attention scores hold an Inf, which softmax makes NaN.
#: --gradients prints the gradient of each block's `mlp` input from all uses of that tensor.
TRANSFORMER = (
    _BEGIN
    + """
class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(()))
        self.break_now = False

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = self.scale * (q @ k.transpose(-1, -2)) * 0.3
        if self.break_now:
            scores = scores / torch.zeros(())
        weights = scores.masked_fill(mask, -1e4).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width)), weights


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(args.inplace), nn.Linear(2 * width, width))

    def forward(self, x, mask):
        attended, weights = self.attention(self.norm(x), mask=mask)
        x = x + attended
        if args.gradients:
            x.register_hook(lambda grad: print("gradient", grad.abs().max().item()))
        return x + self.mlp(x), weights


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([Block(8, 2) for _ in range(2)])
        self.head = nn.Linear(8, 20)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x, mask)
        return self.head(x)


model = DistributedModelParallel(Transformer(), device=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for step in range(1, args.steps + 1):
    tokens = torch.randint(0, 20, (2, 5))
    model.module.blocks[1].attention.break_now = 0 < args.bad <= step
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
)

#: Modules that return one awkward tensor each. --spoil: the program overwrites the tensors right after they were seen.
VALUES = (
    _BEGIN
    + """
nan, inf = float("nan"), float("inf")
MADE = {
    "clean": torch.arange(-6.0, 6.0).view(3, 4),
    "empty": torch.empty(0, 3),
    "negative_and_nan": torch.tensor([-3.0, nan, -2.5]),
    "all_nan": torch.full((2, 2), nan),
    "mixed": torch.tensor([[1.0, -inf, 3.0, nan], [0.0, 5.0, inf, 2e10], [-7.0, 1.0, 1.0, 1.0]]),
    "huge": torch.tensor([[[1.0, 2.0], [3.0, -1e11]], [[1.0, 2.0], [1e12, 0.5]]]),
    "scalar": torch.tensor(-inf),
    "subnormal": torch.tensor([1e-41, -1e-42, 0.0]),
    "negative_zero": torch.tensor([-0.0, -0.0]),
    "transposed": torch.tensor([[1.0, nan, 2.0], [inf, 4.0, 5.0]]).t(),
    "every_other": torch.tensor([nan, 1.0, inf, 2.0, 3.0, -4.0])[1::2],
    "expanded": torch.tensor([[2.0], [nan]]).expand(2, 3),
    "float16": torch.tensor([6e4, -inf, 1.0], dtype=torch.float16),
    "bfloat16": torch.tensor([3e38, nan, 1e-3], dtype=torch.bfloat16),
    "float64": torch.tensor([1e300, -1e-300, inf], dtype=torch.float64),
    "int64": torch.tensor([[3, -7], [2**40, 0]]),
    "int32": torch.tensor([-5, 4], dtype=torch.int32),
    "uint8": torch.tensor([0, 255], dtype=torch.uint8),
    "truth": torch.tensor([True, False, True]),
}
if args.complex:
    MADE["complex64"] = torch.tensor([complex(1, -2), complex(nan, 0)])


class Make(nn.Module):
    def __init__(self, tensor):
        super().__init__()
        self.tensor = tensor

    def forward(self, x):
        return self.tensor


class Twice(nn.Module):
    def forward(self, x):
        return x.mul_(2)


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.twice = Twice()
        self.made = nn.ModuleDict({f"make_{name}": Make(tensor) for name, tensor in MADE.items()})
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        self.twice(x)
        for made in self.made.values():
            tensor = made(x)
            if args.spoil:
                tensor.contiguous().zero_()
        return x * self.weight


model = DistributedModelParallel(Values(), device=torch.device("cpu"))
for step in range(1, 3):
    print(model(torch.tensor([2.0, -3.0])).tolist())
"""
)

#: What training loops do besides: a layer called twice and one with a tied weight, two micro-batches to a step, a
#: frozen layer, two optimizers, activation checkpointing, an evaluation in between, and a step whose forward raises.
LOOP = (
    _BEGIN
    + """
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.twice = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.first.weight
        self.unused = nn.Linear(4, 4)
        self.recomputed = nn.Linear(4, 4)

    def forward(self, x, fail=False):
        x = self.twice(self.twice(self.first(x)).relu())
        if fail:
            raise ValueError("as asked for")
        x = checkpoint(self.recomputed, x, use_reentrant=False)
        return self.tied(self.frozen(x))


model = DistributedModelParallel(Model(), device=torch.device("cpu"), init_data_parallel=False)
named = dict(model.module.named_parameters())
matrices = torch.optim.SGD([param for param in named.values() if param.ndim == 2 and param.requires_grad], lr=0.1)
vectors = torch.optim.Adam([param for param in named.values() if param.ndim == 1 and param.requires_grad], lr=0.1)
for step in range(1, args.steps + 1):
    for _ in range(2):
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
    matrices.step()
    vectors.step()
    matrices.zero_grad()
    vectors.zero_grad()
    print(loss.item())
    if step == 2:
        with torch.no_grad():
            print(model.eval()(torch.randn(3, 4)).sum().item())
        model.train()
    if step == 3:
        try:
            model(torch.randn(3, 4), fail=True)
        except ValueError as error:
            print(error)
"""
)
