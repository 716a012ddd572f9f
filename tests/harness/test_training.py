"""The harness's model, text and strategies within one process."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")

from gpudoctor.harness.context import Context  # noqa: E402
from gpudoctor.harness.data import ALPHABET, Corpus, text  # noqa: E402
from gpudoctor.harness.model import MICRO_BATCHES, Size, cut, loss_of, make_model, size_for  # noqa: E402
from gpudoctor.harness.strategies import Unavailable, train  # noqa: E402

SIZE = Size(width=16, heads=2, depth=2, context=8, batch=4)


def alone(steps: int = 8, seed: int = 0) -> Context:
    return Context(0, 1, torch.device("cpu"), "gloo", 0, SIZE, steps, seed)


def test_text_is_seeded_and_of_the_alphabet() -> None:
    assert text(500, 1) == text(500, 1) != text(500, 2)
    assert set(text(5000, 1)) <= set(ALPHABET)


def test_batches_depend_on_step_alone() -> None:
    a, b = Corpus(8, 0), Corpus(8, 0)
    b.batch(3, 4)
    tokens, targets = a.batch(5, 4)
    assert torch.equal(tokens, b.batch(5, 4)[0])
    assert not torch.equal(tokens, a.batch(6, 4)[0])
    assert torch.equal(tokens[:, 1:], targets[:, :-1])


def test_attention_is_causal() -> None:
    model, tokens = make_model(SIZE, 0), torch.randint(len(ALPHABET), (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % len(ALPHABET)
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


def test_it_learns_and_repeats() -> None:
    first = train(alone(30), "single")
    assert first.losses[-1] < first.losses[0] - 0.5
    assert train(alone(30), "single").losses == first.losses
    assert train(alone(30, seed=1), "single").losses != first.losses


def test_model_strategy_is_the_single_one() -> None:
    assert train(alone(), "model").losses == pytest.approx(train(alone(), "single").losses, abs=1e-6)


def test_what_is_missing_is_named() -> None:
    for strategy, needs in (("dp", "two GPUs"), ("ddp", "two ranks"), ("pipeline", "two ranks")):
        with pytest.raises(Unavailable, match=needs):
            train(alone(), strategy)


def test_weights_do_not_disturb_the_generator() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    make_model(SIZE, 0)
    assert torch.equal(torch.rand(3), expected)


def test_cut_is_even() -> None:
    assert cut(7, 3) == [(0, 2), (2, 4), (4, 7)]
    assert cut(3, 1) == [(0, 3)]


def test_loss_of_uniform_logits() -> None:
    assert float(loss_of(torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.int64))) == pytest.approx(1.6094379)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 12, 16])
def test_sizes_divide_among_ranks_and_micro_batches(ranks: int) -> None:
    for cuda in (False, True):
        size = size_for(cuda, ranks)
        assert size.batch % ranks == size.batch % MICRO_BATCHES == 0
        assert size.batch >= 16
        assert size.depth >= ranks
