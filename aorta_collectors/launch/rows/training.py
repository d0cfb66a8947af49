"""Rows of launchers of distributed training, from their own argument parsers."""

from __future__ import annotations

from aorta_collectors.launch.row import ACCELERATE, NO_OPTIONS, TORCHRUN, Does, Launcher

_LOCAL_RANK = (
    "puts --local_rank between the module's name and the program's words, so that no front-end fits in between"
)

TRAINING = (
    Launcher(
        "torchrun",
        Does.START,
        "torch/distributed/run.py, torch 2.13",
        spelling=TORCHRUN,
        values="--nnodes --nproc-per-node --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --max-restarts "
        "--monitor-interval --start-method --event-log-handler --role --log-dir -r --redirects -t --tee "
        "--local-ranks-filter --duplicate-stdout-filters --duplicate-stderr-filters --node-rank --master-addr "
        "--master-port --local-addr --logs-specs --numa-binding --signals-to-handle --shutdown-timeout",
        flags="-h --help --standalone -m --module --no-python --run-path --use-agent-store --virtual-local-rank",
        module="-m --module",
        command="--no-python",
        hides="-h --help --run-path",
    ),
    Launcher(
        "accelerate launch",
        Does.START,
        "accelerate/commands/launch.py, accelerate 1.15",
        aliases=("accelerate-launch",),
        spelling=ACCELERATE,
        values="--config-file --mixed-precision --num-processes --num-machines --num-cpu-threads-per-process "
        "--dynamo-backend --dynamo-mode --gpu-ids --machine-rank --main-process-ip --main-process-port -t --tee "
        "--log-dir --role --rdzv-backend --rdzv-conf --max-restarts --monitor-interval --vm --env "
        "--main-training-function --deepspeed-config-file --zero-stage --offload-optimizer-device "
        "--offload-param-device --offload-optimizer-nvme-path --offload-param-nvme-path --gradient-accumulation-steps "
        "--gradient-clipping --zero3-init-flag --zero3-save-16bit-model --deepspeed-hostfile "
        "--deepspeed-exclusion-filter --deepspeed-inclusion-filter --deepspeed-multinode-launcher "
        "--deepspeed-moe-layer-cls-names --fsdp-version --fsdp-offload-params --fsdp-min-num-params "
        "--fsdp-sharding-strategy --fsdp-reshard-after-forward --fsdp-auto-wrap-policy "
        "--fsdp-transformer-layer-cls-to-wrap --fsdp-backward-prefetch --fsdp-state-dict-type --fsdp-forward-prefetch "
        "--fsdp-use-orig-params --fsdp-cpu-ram-efficient-loading --fsdp-sync-module-states "
        "--fsdp-activation-checkpointing --fsdp-activation-checkpointing-offload --megatron-lm-tp-degree "
        "--megatron-lm-use-custom-fsdp --megatron-lm-no-load-optim --megatron-lm-eod-mask-loss "
        "--megatron-lm-overlap-cpu-optimizer-d2h-h2d --megatron-lm-no-save-optim --megatron-lm-optimizer-cpu-offload "
        "--megatron-lm-use-precision-aware-optimizer --megatron-lm-decoder-last-pipeline-num-layers "
        "--megatron-lm-pp-degree --megatron-lm-num-micro-batches --megatron-lm-sequence-parallelism "
        "--megatron-lm-recompute-activations --megatron-lm-use-distributed-optimizer --megatron-lm-gradient-clipping "
        "--megatron-lm-recompute-granularity --megatron-lm-recompute-method --megatron-lm-recompute-num-layers "
        "--megatron-lm-attention-backend --megatron-lm-expert-model-parallel-size --megatron-lm-context-parallel-size "
        "--megatron-lm-attention-dropout --megatron-lm-hidden-dropout --megatron-lm-attention-softmax-in-fp32 "
        "--megatron-lm-expert-tensor-parallel-size --megatron-lm-calculate-per-token-loss "
        "--megatron-lm-use-rotary-position-embeddings --fp8-backend --fp8-margin --fp8-interval --fp8-format "
        "--fp8-amax-history-len --fp8-amax-compute-algo --fp8-override-linear-precision --fp8-opt-level "
        "--fp8-enable-fsdp-float8-all-gather --fp8-pad-inner-dim --aws-access-key-id --aws-secret-access-key "
        "--mpirun-hostfile --parallelism-config-dp-replicate-size --parallelism-config-dp-shard-size "
        "--parallelism-config-tp-size --parallelism-config-cp-size --parallelism-config-cp-backend "
        "--parallelism-config-cp-comm-strategy --parallelism-config-sp-size --parallelism-config-sp-backend "
        "--parallelism-config-sp-seq-length --parallelism-config-sp-seq-length-is-variable "
        "--parallelism-config-sp-attn-implementation",
        flags="-h --help -q --quiet --cpu --multi-gpu --tpu --enable-cpu-affinity --dynamo-use-fullgraph "
        "--dynamo-use-dynamic --dynamo-use-regional-compilation --use-deepspeed --use-fsdp --use-parallelism-config "
        "--use-megatron-lm --same-network -m --module --no-python --tpu-cluster --no-tpu-cluster --tpu-use-sudo "
        "--downcast-bf16 --fp8-use-autocast-during-eval --debug",
        module="-m --module",
        command="--no-python",
        # On a TPU the program is imported, and a function of it called.
        hides="-h --help --tpu --tpu-cluster",
    ),
    Launcher("deepspeed", Does.HIDE, NO_OPTIONS, aliases=("ds",), why=_LOCAL_RANK),
    Launcher(
        "lightning run",
        Does.HIDE,
        NO_OPTIONS,
        aliases=("fabric run",),
        why="takes a script only, and no module, which a front-end is",
    ),
)
