"""`gpudoctor plan`: counts are exact, formulas agree with real models, choices follow from the cards."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpudoctor.cli import cli
from gpudoctor.errors import InputError, UsageError
from gpudoctor.machine.plan.advise import advise, usable
from gpudoctor.machine.plan.costs import Costs
from gpudoctor.machine.plan.gpus import parse_count, parse_gpus
from gpudoctor.machine.plan.hf_config import read_shape
from gpudoctor.machine.plan.shapes import costs_of, shape_of_numbers
from gpudoctor.machine.plan.split import balanced_split, share_batch

MODELS = ("gpt", "net", "perceptron")


def small(batch: int = 2, precision: str = "mixed") -> Costs:
    return costs_of(shape_of_numbers(1_100_000_000, 22, 2048, 32, 32000, kv_heads=4), batch, 2048, precision)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_meta_counts_equal_real_bytes(name: str, precision: str) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    from gpudoctor.probes.model_cost import DTYPES, OPTIMIZERS, cost, tensors
    from tests.machine import small_models

    told = cost({"factory": f"tests.machine.small_models:{name}", "optimizers": list(OPTIMIZERS), "precision": precision})
    dtype = DTYPES[precision]
    for optimizer, make in OPTIMIZERS.items():
        model, inputs = getattr(small_models, name)()
        model = model.to(dtype)
        given = [t.to(dtype) if t.is_floating_point() else t for t in tensors(inputs)]
        stepper = make(list(model.parameters()))
        out = model(*given)
        (out if out.dim() == 0 else out.sum()).backward()
        stepper.step()
        assert told["parameter_bytes"] == sum(p.nbytes for p in model.parameters())
        assert told["gradient_bytes"] == sum(p.grad.nbytes for p in model.parameters())
        assert told["buffer_bytes"] == sum(b.nbytes for b in model.buffers())
        held = [t for s in stepper.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
        assert told["states"][optimizer] == sum(t.nbytes for t in held), optimizer


def test_checkpointing_keeps_less_and_peaks_lower() -> None:
    pytest.importorskip("torch", reason="needs torch")
    from gpudoctor.probes.model_cost import cost

    told = cost({"factory": "tests.machine.small_models:gpt", "optimizers": ["sgd", "adamw"], "precision": "fp32"})
    assert [b["parameters"] for b in told["blocks"]] == [49984] * 3
    assert told["activations_checkpointed"] < told["activations"]
    assert told["peak_checkpointed"]["sgd"] < told["peak"]["sgd"] < told["peak"]["adamw"]
    assert told["boundary"] == 2 * 64 * 64 * 4


FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {"pad_token_id": 0}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 64, "tie_word_embeddings": True}),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {"head_dim": 64}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", {"head_dim": 64}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", {"num_local_experts": 4}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 256, "n_layer": 3, "n_head": 8}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}),
    "opt": ("OPTConfig", "OPTForCausalLM", {"ffn_dim": 1024, "word_embed_proj_dim": 256}),
    "bert": ("BertConfig", "BertModel", {}),
    "bert for masks": ("BertConfig", "BertForMaskedLM", {"architectures": ["BertForMaskedLM"]}),
    "bert for classes": ("BertConfig", "BertForSequenceClassification", {"architectures": ["BertForSequenceClassification"], "num_labels": 7}),
    "roberta": ("RobertaConfig", "RobertaModel", {}),
    "distilbert": ("DistilBertConfig", "DistilBertModel", {"dim": 256, "n_layers": 3, "n_heads": 8, "hidden_dim": 512}),
    "vit": ("ViTConfig", "ViTModel", {}),
    "vit for classes": ("ViTConfig", "ViTForImageClassification", {"architectures": ["ViTForImageClassification"], "num_labels": 17}),
}
COMMON = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000}


@pytest.mark.parametrize("family", FAMILIES)
def test_config_counts_equal_transformers(family: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torch = pytest.importorskip("torch", reason="needs torch")
    config_name, model_name, more = FAMILIES[family]
    common = COMMON if family not in ("gpt2", "distilbert") else {"vocab_size": 1000}
    if family.split()[0] in ("bert", "roberta", "vit", "gpt_neox", "opt"):
        common = {k: v for k, v in common.items() if k != "num_key_value_heads"}
    config = getattr(transformers, config_name)(**(common | more))
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = getattr(transformers, model_name)(config)
    assert read_shape(tmp_path).parameters == sum(p.numel() for p in model.parameters())


def test_a_formula_s_peak_is_near_the_played_one() -> None:
    pytest.importorskip("torch", reason="needs torch")
    from gpudoctor.machine.plan.strategies import Option, single
    from gpudoctor.probes.model_cost import cost

    told = cost({"factory": "tests.machine.small_models:wide_gpt", "optimizers": ["adamw"], "precision": "fp32"})
    from gpudoctor.machine.plan.shapes import Shape

    shape = Shape("gpt", 256, 6, 8, 2000, 1024, gated=False, norm=2, qkv_bias=True, out_bias=True, mlp_bias=True, positions=256)
    assert shape.parameters == told["parameters"]
    formula = single(costs_of(shape, 4, 256, "fp32"), parse_gpus("16GB"), "adamw", Option()).memory[0]
    assert formula == pytest.approx(told["peak"]["adamw"], rel=0.15)


def test_plain_numbers_reach_the_parameters_asked_for() -> None:
    assert small().parameters == pytest.approx(1.1e9, rel=0.001)
    assert parse_count("1.1B", "--params") == 1_100_000_000
    with pytest.raises(UsageError, match="--params"):
        parse_count("many", "--params")


def test_a_model_too_large_for_ddp_is_sharded() -> None:
    plan = advise(small(), parse_gpus("2x16GB"), "adamw")
    by_name = {(c.name, c.option.words): c for c in plan.choices}
    assert not by_name["ddp", ""].fits
    assert plan.best is not None
    assert plan.best.name in ("fsdp2", "pipeline")
    assert all(need <= usable(node.memory) for need, node in zip(plan.best.load.memory, plan.topology.nodes, strict=True))
    assert any("plain DDP lacks" in reason for reason in plan.reasons)


def test_a_model_that_fits_takes_plain_ddp() -> None:
    plan = advise(small(batch=4, precision="bf16"), parse_gpus("2x80GB", "50GB/s"), "sgd")
    assert plan.best is not None
    assert plan.best.title == "data parallel (DDP)"
    assert plan.best.load.sent == pytest.approx(plan.costs.gradient_bytes)
    assert plan.batch_limit >= 4


def test_nothing_fits_is_said_with_the_nearest() -> None:
    plan = advise(small(batch=64), parse_gpus("1x4GB"), "adamw")
    assert plan.best is None
    assert "nothing fits" in plan.reasons[0]


def test_more_cards_take_less_each() -> None:
    def memory(name: str, gpus: str) -> int:
        return max(next(c for c in advise(small(), parse_gpus(gpus), "adamw").choices if c.name == name and not c.option.words).load.memory)

    for name in ("zero1", "zero2", "fsdp2", "pipeline"):
        assert memory(name, "4x16GB") < memory(name, "2x16GB")
    assert memory("ddp", "4x16GB") == memory("ddp", "2x16GB")


def test_communication_by_strategy() -> None:
    costs = small(precision="bf16")
    sent = {c.name: c.load.sent for c in advise(costs, parse_gpus("4x80GB"), "adamw").choices if not c.option.words}
    assert sent["ddp"] == pytest.approx(2 * 3 / 4 * costs.gradient_bytes)
    assert sent["fsdp2"] == pytest.approx(3 * 3 / 4 * costs.parameter_bytes)
    assert sent["pipeline"] < sent["ddp"]


def test_unlike_cards_get_batches_by_speed_within_memory() -> None:
    plan = advise(small(batch=1, precision="bf16"), parse_gpus("RTX 4090:24GB,RTX 3060:12GB"), "sgd")
    assert sum(plan.shares) == 2
    assert plan.shares[0] > plan.shares[1]
    assert share_batch(64, [3.0, 1.0]) == [48, 16]
    assert share_batch(64, [3.0, 1.0], [40, 64]) == [40, 24]
    assert share_batch(10, [1.0, 1.0, 1.0]) == [4, 3, 3]
    assert share_batch(10, [1.0, 1.0], [3, 3]) == [3, 3]


def test_balanced_split() -> None:
    assert balanced_split([1, 1, 1, 1], [1, 1]) == [2, 2]
    assert balanced_split([5, 1, 1, 1, 1, 1], [1, 1]) == [1, 5]
    assert balanced_split([1] * 9, [2, 1]) == [6, 3]
    assert balanced_split([1, 2, 3], [1, 1, 1]) == [1, 1, 1]
    assert sum(balanced_split([3, 1, 4, 1, 5, 9, 2, 6], [1, 1, 1])) == 8


@pytest.mark.parametrize("weights", [[3, 1, 4, 1, 5, 9, 2, 6], [1, 1, 8, 1, 1], [7, 7, 1, 1, 1, 1]])
def test_balanced_split_is_the_best_of_all(weights: list[int]) -> None:
    counts = balanced_split(weights, [1, 1, 1])
    ends = [sum(counts[:1]), sum(counts[:2])]
    heaviest = max(sum(weights[: ends[0]]), sum(weights[ends[0] : ends[1]]), sum(weights[ends[1] :]))
    all_cuts = [(a, b) for a in range(1, len(weights) - 1) for b in range(a + 1, len(weights))]
    assert heaviest == min(max(sum(weights[:a]), sum(weights[a:b]), sum(weights[b:])) for a, b in all_cuts)


def test_gpus_are_read() -> None:
    two = parse_gpus("2x16GB")
    assert len(two.nodes) == 2
    assert 15 << 30 < two.nodes[0].memory < 16 << 30
    mixed = parse_gpus("RTX 5070 Ti:16GB, 24GB", "7GB/s")
    assert [n.name for n in mixed.nodes] == ["RTX 5070 Ti", "24 GB card"]
    assert mixed.nodes[0].link == 7e9
    for bad in ("2y16GB", "", "0x8GB", "16"):
        with pytest.raises(UsageError, match="--gpus"):
            parse_gpus(bad)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["plan", *arguments])


def test_command_with_numbers() -> None:
    shown = run("--params", "1.1B", "--layers", "22", "--hidden", "2048", "--heads", "32", "--gpus", "2x16GB")
    assert shown.exit_code == 0
    assert "Recommended" in shown.output
    told = json.loads(run("--layers", "4", "--hidden", "64", "--heads", "4", "--gpus", "2x16GB", "--format", "json").stdout)
    assert told["schema"] == "gpudoctor.plan/1"
    assert told["times_are"] == "modelled, not measured"
    assert [s["cards"] for s in told["scaling"]] == [1, 2, 4, 8]


def test_command_with_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(COMMON | {"model_type": "llama"}))
    assert run(str(tmp_path), "--gpus", "1x8GB").exit_code == 0
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mystery"}))
    with pytest.raises(InputError, match="no formula for model_type 'mystery'"):
        read_shape(tmp_path)
    for broken in ("[1, 2]", "{", json.dumps({"model_type": "llama"}), json.dumps(COMMON | {"model_type": "llama", "hidden_size": "wide"})):
        (tmp_path / "config.json").write_text(broken)
        with pytest.raises(InputError, match=r"config\.json"):
            read_shape(tmp_path)


@pytest.mark.slow
def test_command_with_a_factory() -> None:
    pytest.importorskip("torch", reason="needs torch")
    told = json.loads(run("tests.machine.small_models:gpt", "--gpus", "2x16GB", "--precision", "bf16", "--format", "json").stdout)
    assert told["model"]["parameters"] == 218176
    assert told["model"]["counted"] is True
    assert told["model"]["batch_per_card"] == 2


def test_errors_are_one_line() -> None:
    for arguments, words in (
        (("nope",), "module:factory"), (("--gpus", "2x8GB"), "--layers"), (("--layers", "2", "--hidden", "65", "--heads", "4", "--gpus", "8GB"), "multiple"),
    ):
        result = run(*arguments)
        assert isinstance(result.exception, UsageError)
        assert words in str(result.exception)
