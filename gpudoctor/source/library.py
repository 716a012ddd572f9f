"""What libraries' names mean: canonical spelling and the kind of value that a call returns."""

from __future__ import annotations

import re
from functools import cache

_TOPS = frozenset(["torch", "torchvision", "torchaudio", "torchtext", "torchdata", "torchmetrics", "numpy", "accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "transformers", "datasets", "deepspeed", "apex", "bitsandbytes", "timm", "tqdm", "contextlib", "os", "sys", "time", "datetime", "functools", "itertools", "math", "random", "argparse", "collections", "json", "cupy", "cuda", "nvtx", "wandb", "tensorboard", "logging", "pathlib", "typing", "dataclasses", "threading", "multiprocessing", "copy", "tempfile", "PIL", "cv2", "scipy", "sklearn", "pandas", "horovod", "ray", "xformers", "flash_attn", "diffusers", "peft", "trl", "evaluate", "hydra", "omegaconf", "yaml", "einops", "rich", "click", "fire", "typer", "warnings", "re", "io", "abc", "enum", "queue", "concurrent", "asyncio", "subprocess", "shutil", "pickle", "gc", "ctypes", "operator", "string", "socket", "uuid", "types", "inspect", "traceback"])

_RENAMES = tuple((re.compile(pattern), to) for pattern, to in (
    (r"^pytorch_lightning\b", "lightning.pytorch"),
    (r"^lightning_fabric\b", "lightning.fabric"),
    (r"^lightning\.(LightningModule|LightningDataModule|Trainer|Callback|seed_everything)$", r"lightning.pytorch.\1"),
    (r"^lightning\.pytorch\.(core|core\.module|core\.lightning|trainer|trainer\.trainer)\.(\w+)$", r"lightning.pytorch.\2"),
    (r"^lightning\.Fabric$", "lightning.fabric.Fabric"),
    (r"^torch\.nn\.parallel\.distributed\.", "torch.nn.parallel."),
    (r"^torch\.nn\.parallel\.data_parallel\.DataParallel$", "torch.nn.DataParallel"),
    (r"^torch\.nn\.parallel\.DataParallel$", "torch.nn.DataParallel"),
    (r"^torch\.nn\.modules\.\w+\.", "torch.nn."),
    (r"^torch\.nn\.modules\.", "torch.nn."),
    (r"^torch\.nn\.utils\.clip_grad\.", "torch.nn.utils."),
    (r"^torch\.utils\.data\.(dataloader|distributed|sampler|dataset)\.", "torch.utils.data."),
    (r"^torch\.distributed\.(distributed_c10d|c10d_logger)\.", "torch.distributed."),
    (r"^torch\.optim\.(?!lr_scheduler)[a-z_]+\.(?=[A-Z])", "torch.optim."),
    (r"^torch\.(cuda\.)?amp\.grad_scaler\.", r"torch.\1amp."),
    (r"^torch\.(cuda\.)?amp\.autocast_mode\.", r"torch.\1amp."),
    (r"^torch\.cuda\.streams\.", "torch.cuda."),
    (r"^torch\.cuda\.memory\.", "torch.cuda."),
    (r"^torch\.autograd\.grad_mode\.", "torch."),
    (r"^torch\.autograd\.(no_grad|inference_mode|set_grad_enabled|enable_grad)$", r"torch.\1"),
    (r"^torch\.functional\.", "torch."),
    (r"^torch\.distributed\.fsdp\.\w+\.(?=[A-Z])", "torch.distributed.fsdp."),
    (r"^accelerate\.accelerator\.", "accelerate."),
    (r"^tqdm\.(auto|notebook|std|asyncio|rich)\.", "tqdm."),
    (r"^torch\.multiprocessing\.spawn\.spawn$", "torch.multiprocessing.spawn"),
))

_KINDS = {
    "torch.nn.parallel.DistributedDataParallel": "ddp",
    "apex.parallel.DistributedDataParallel": "apexddp",
    "torch.nn.DataParallel": "dp",
    "torch.distributed.fsdp.FullyShardedDataParallel": "fsdp",
    "torch.distributed.fsdp.fully_shard": "fsdp",
    "torch.utils.data.DataLoader": "loader",
    "torchdata.stateful_dataloader.StatefulDataLoader": "loader",
    "torch.utils.data.DistributedSampler": "distsampler",
    "torch.utils.data.RandomSampler": "sampler",
    "torch.utils.data.SequentialSampler": "sampler",
    "torch.utils.data.WeightedRandomSampler": "sampler",
    "torch.utils.data.SubsetRandomSampler": "sampler",
    "torch.utils.data.BatchSampler": "batchsampler",
    "torch.utils.data.TensorDataset": "dataset",
    "torch.utils.data.Subset": "dataset",
    "torch.utils.data.ConcatDataset": "dataset",
    "torch.cuda.Stream": "stream", "torch.Stream": "stream", "torch.cuda.ExternalStream": "stream",
    "torch.cuda.current_stream": "stream", "torch.cuda.default_stream": "stream",
    "torch.cuda.Event": "event", "torch.Event": "event",
    "torch.amp.GradScaler": "scaler", "torch.cuda.amp.GradScaler": "scaler",
    "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler": "scaler", "torch.cpu.amp.GradScaler": "scaler",
    "accelerate.Accelerator": "accelerator",
    "lightning.fabric.Fabric": "fabric",
    "lightning.pytorch.Trainer": "trainer",
    "torch.distributed.get_rank": "rank", "torch.distributed.get_node_local_rank": "rank", "torch.distributed.get_world_size": "world",
    "torch.cuda.device_count": "world",
    "torch.device": "device",
    "torch.autocast": "autocast", "torch.amp.autocast": "autocast", "torch.cuda.amp.autocast": "autocast", "torch.cpu.amp.autocast": "autocast",
    "torch.no_grad": "nograd", "torch.inference_mode": "nograd", "torch.set_grad_enabled": "gradmode", "torch.enable_grad": "gradmode",
    "contextlib.nullcontext": "nullctx", "contextlib.suppress": "nullctx", "contextlib.ExitStack": "exitstack",
    "torch.cuda.stream": "streamctx", "torch.cuda.StreamContext": "streamctx", "torch.cuda.device": "devicectx",
    "torch.distributed.is_initialized": "flag", "torch.distributed.is_available": "flag", "torch.cuda.is_available": "flag",
    "torch.distributed.init_process_group": "", "torch.distributed.new_group": "group",
    "torch.nn.utils.clip_grad_norm_": "tensor", "torch.nn.utils.clip_grad_value_": "",
    "torch.Generator": "generator", "torch.optim.lr_scheduler.LambdaLR": "scheduler",
    "torch.multiprocessing.spawn": "", "torch.cuda.CUDAGraph": "cudagraph", "torch.cuda.graph": "graphctx",
    "torch.nn.Parameter": "param", "torch.nn.parameter.Parameter": "param",
    "datetime.timedelta": "timedelta",
    "torch.finfo": "", "torch.iinfo": "", "torch.Size": "", "torch.dtype": "",
    "transformers.get_scheduler": "scheduler",
}

COLLECTIVES = frozenset((
    "all_reduce", "broadcast", "barrier", "all_gather", "all_gather_into_tensor", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    "gather", "all_to_all", "all_to_all_single", "all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list",
    "monitored_barrier", "all_reduce_coalesced", "all_gather_coalesced",
))
MODULE_SELF = frozenset((
    "to", "cuda", "cpu", "half", "float", "double", "bfloat16", "train", "eval", "requires_grad_", "apply", "to_empty", "share_memory", "type",
))
PASS_THROUGH = frozenset(("tqdm.tqdm", "tqdm.trange", "rich.progress.track", "builtins.iter", "builtins.list", "builtins.tuple", "builtins.reversed",
                          "builtins.sorted", "itertools.islice", "copy.copy", "builtins.set", "itertools.cycle", "typing.cast"))
_NOT_TENSORS = frozenset((
    "manual_seed", "load", "save", "device", "compile", "is_tensor", "set_default_dtype", "set_default_device", "get_rng_state", "set_num_threads",
    "is_grad_enabled", "initial_seed", "seed", "get_default_dtype", "set_float32_matmul_precision", "use_deterministic_algorithms",
    "numel", "is_floating_point", "typename", "Generator", "set_printoptions", "get_num_threads", "is_complex", "set_rng_state",
))


def is_library(dotted: str) -> bool:
    """True for names that are never the user's own modules."""
    return dotted.split(".", 1)[0] in _TOPS


@cache
def canonical(name: str) -> str:
    """One spelling for each public name, whatever module it was imported from."""
    for pattern, to in _RENAMES:
        name = pattern.sub(to, name)
    return name


@cache
def kind_of_call(name: str) -> str:
    """The kind that a call of the library's `name` returns; empty where it is unknown."""
    if name in _KINDS:
        return _KINDS[name]
    head, _, last = name.rpartition(".")
    if head.startswith("torch.optim.lr_scheduler") or re.fullmatch(r"transformers\.(optimization\.)?get_\w*schedule\w*", name):
        return "scheduler"
    if head in ("torch.optim", "apex.optimizers", "bitsandbytes.optim", "deepspeed.ops.adam", "torch.distributed.optim") and last[:1].isupper():
        return "optimizer"
    if last in ("AdamW", "Adafactor") and head.startswith("transformers"):
        return "optimizer"
    if head == "torch.nn" and last[:1].isupper():
        return "module"
    if re.match(r"(torchvision|timm|transformers|diffusers|torchaudio)\b", name) and (
            last in ("from_pretrained", "create_model", "from_config") or head.startswith("torchvision.models")):
        return "" if re.search(r"Tokenizer|Processor|FeatureExtractor|Config", name) else "module"
    if head in ("torch.nn.functional", "torch.linalg", "torch.fft", "torch.special"):
        return "tensor"
    if head == "torch" and last[:1].islower() and last not in _NOT_TENSORS and not last.startswith(("is_", "set_", "get_", "_")):
        return "tensor"
    if head == "torchvision.datasets" and last[:1].isupper():
        return "dataset"
    return ""


@cache
def is_module_base(name: str) -> bool:
    """True for library classes whose subclasses are nn.Modules."""
    head, _, last = name.rpartition(".")
    return (head == "torch.nn" or name.startswith(("torchvision.models.", "timm.models.", "torch.nn."))
            or last in ("PreTrainedModel", "LightningModule", "ModelMixin") or (name.startswith("transformers.") and "Model" in last))
