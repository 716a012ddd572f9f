"""`gpudoctor plan`: which parallel strategy fits a model and the cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.errors import UsageError

if TYPE_CHECKING:
    from gpudoctor.machine.plan.costs import Costs
    from gpudoctor.machine.topology import Topology


@click.command()
@click.argument("model", required=False)
@click.option("--gpus", help="Cards: 2x16GB, 24GB,12GB or '2xRTX 5070 Ti:16GB'.  [default: those at hand]")
@click.option("--link", help="Rate of a pinned copy over each card's link, such as 12GB/s.")
@click.option("--batch", type=click.IntRange(1), help="Samples a card and step.  [default: the inputs' own, or 1]")
@click.option("--seq", type=click.IntRange(1), default=1024, show_default=True, help="Tokens a sample, for a config or numbers.")
@click.option("--optimizer", type=click.Choice(["sgd", "momentum", "rmsprop", "lion", "adam", "adamw", "adamw8bit", "adafactor"]), default="adamw", show_default=True)
@click.option("--precision", type=click.Choice(["fp32", "bf16", "mixed"]), default="mixed", show_default=True, help="bf16: everything in 16 bits; mixed: autocast over 32-bit parameters.")
@click.option("--input", "inputs", multiple=True, metavar="SHAPE:DTYPE", help="An input of a module:factory, such as 8x1024:int64; once for each.")
@click.option("--params", help="Parameters, such as 1.1B.")
@click.option("--layers", type=click.IntRange(1))
@click.option("--hidden", type=click.IntRange(1))
@click.option("--heads", type=click.IntRange(1))
@click.option("--kv-heads", type=click.IntRange(1))
@click.option("--ffn", type=click.IntRange(1))
@click.option("--vocab", type=click.IntRange(1), default=32000, show_default=True)
@click.option("--tied", is_flag=True, help="The head shares the embedding's weights.")
@click.option("--format", "format_", type=click.Choice(["terminal", "json"]), default="terminal", show_default=True)
@click.option("--debug", is_flag=True, hidden=True, expose_value=False)
@click.pass_context
def command(
    ctx: click.Context, model: str | None, gpus: str | None, link: str | None, batch: int | None, seq: int, optimizer: str, precision: str, inputs: tuple[str, ...],
    params: str | None, layers: int | None, hidden: int | None, heads: int | None, kv_heads: int | None, ffn: int | None, vocab: int, tied: bool, format_: str,
) -> None:
    """Say what training MODEL takes and which strategy fits the cards; exit 1 if none does.

    MODEL is module:factory (a function that returns a module, or a module and its inputs), a Hugging Face config.json or
    its folder; without it give --layers, --hidden and --heads. Times are modelled, memory of a module:factory is counted.
    """
    from gpudoctor.machine.plan.advise import advise

    if model:
        costs = _costs_of_model(model, inputs, optimizer, precision, batch, seq)
    else:
        costs = _costs_of_numbers(params, layers, hidden, heads, kv_heads, ffn, vocab, tied, precision, batch, seq)
    plan = advise(costs.at_batch(batch) if batch else costs, _topology(gpus, link), optimizer)
    if format_ == "json":
        click.echo(json.dumps({"schema": "gpudoctor.plan/1"} | plan.data(), indent=1))
    else:
        from rich.console import Console

        from gpudoctor.machine.plan.show import show

        show(plan, Console(highlight=False))
    ctx.exit(0 if plan.best else 1)


def _costs_of_model(model: str, inputs: tuple[str, ...], optimizer: str, precision: str, batch: int | None, seq: int) -> Costs:
    from gpudoctor.machine.plan.factory import costs_of_factory
    from gpudoctor.machine.plan.hf_config import read_shape
    from gpudoctor.machine.plan.shapes import costs_of

    if Path(model).exists():
        return costs_of(read_shape(Path(model)), batch or 1, seq, precision)
    module, _, name = model.partition(":")
    if not name or not all(part.isidentifier() for part in (*module.split("."), name)):
        raise UsageError(f"{model}: give module:factory, a config.json that is there, or --layers, --hidden and --heads")
    wanted = [optimizer] if optimizer not in ("adam", "adamw") else [optimizer, "adamw8bit"]
    return costs_of_factory(model, list(inputs), wanted, precision)


def _costs_of_numbers(
    params: str | None, layers: int | None, hidden: int | None, heads: int | None, kv_heads: int | None, ffn: int | None, vocab: int, tied: bool,
    precision: str, batch: int | None, seq: int,
) -> Costs:
    from gpudoctor.machine.plan.gpus import parse_count
    from gpudoctor.machine.plan.shapes import costs_of, shape_of_numbers

    if layers is None or hidden is None or heads is None:
        raise UsageError("give MODEL (module:factory or config.json), or --layers, --hidden and --heads")
    if hidden % heads or (kv_heads and heads % kv_heads):
        raise UsageError(f"--hidden {hidden} must be a multiple of --heads {heads}, and --heads one of --kv-heads")
    count = parse_count(params, "--params") if params else None
    return costs_of(shape_of_numbers(count, layers, hidden, heads, vocab, kv_heads or 0, ffn or 0, tied), batch or 1, seq, precision)


def _topology(gpus: str | None, link: str | None) -> Topology:
    from gpudoctor.machine.examine import examine
    from gpudoctor.machine.live import LiveMachine
    from gpudoctor.machine.plan.gpus import parse_gpus
    from gpudoctor.machine.topology import topology_of

    if gpus:
        return parse_gpus(gpus, link)
    examined = examine(LiveMachine(copy=False))
    if not examined.cards:
        raise UsageError("no card is at hand; name some with --gpus 2x16GB")
    return topology_of(examined.cards, examined.pairs)
