"""The embedded engine on a real, tiny model: exact batches, seeds, stops, caps, log-probabilities, refusals."""

import asyncio
import builtins
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eagle3_assets.config import Dataset, Sampling, TransformersEngineSettings
from eagle3_assets.engines.base import (
    Description,
    EngineError,
    EngineUnavailableError,
    Generation,
    Request,
    RequestRefusedError,
)
from eagle3_assets.engines.transformers import TransformersEngine
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.prompts.render import tokenize_rows
from eagle3_assets.prompts.rows import read_partition
from eagle3_assets.tokens.builtin_profiles import KIMI
from eagle3_assets_tests.conftest import DEMO
from eagle3_assets_tests.engines.conftest import CONFIG_EOS, CONTEXT, GENERATION_EOS, VOCAB, make_checkpoint

GREEDY = Sampling(temperature=0.0, max_new_tokens=20)
SAMPLED = Sampling(temperature=1.3, top_p=0.95, top_k=40, min_p=0.01, repetition_penalty=1.1, max_new_tokens=20)


def settings(batch_size: int = 32) -> TransformersEngineSettings:
    return TransformersEngineSettings(batch_size=batch_size, device="cpu", threads=1)


def request(name: int, ids: list[int], sampling: Sampling = GREEDY, *, logprobs: bool = False) -> Request:
    return Request(f"{name:032x}", f"s{name}", ids, sampling, seed=1000 + name, want_logprobs=logprobs)


def prompts(count: int) -> list[list[int]]:
    numbers = random.Random(0)  # noqa: S311 - test data
    return [[numbers.randrange(10, VOCAB) for _ in range(numbers.randrange(1, 30))] for _ in range(count)]


def answers(path: Path, requests: Sequence[Request], batch_size: int = 32) -> list[Generation | BaseException]:
    async def ask() -> list[Generation | BaseException]:
        engine = TransformersEngine(path, settings(batch_size))
        await engine.start()
        try:
            return await asyncio.gather(*map(engine.generate, requests), return_exceptions=True)
        finally:
            await engine.close()

    return asyncio.run(ask())


def generations(path: Path, requests: Sequence[Request], batch_size: int = 32) -> list[Generation]:
    replies = answers(path, requests, batch_size)
    assert all(isinstance(reply, Generation) for reply in replies), replies
    return [reply for reply in replies if isinstance(reply, Generation)]


def described(path: Path, **others: Any) -> Description:
    async def ask() -> Description:
        engine = TransformersEngine(path, settings(), **others)
        try:
            return await engine.start()
        finally:
            await engine.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("sampling", [GREEDY, GREEDY.model_copy(update={"repetition_penalty": 1.3}), SAMPLED])
def test_a_row_does_not_depend_on_its_batch(checkpoint: Path, sampling: Sampling) -> None:
    requests = [request(i, ids, sampling) for i, ids in enumerate(prompts(40))]
    alone = [reply.output_ids for reply in generations(checkpoint, requests, batch_size=1)]
    assert len({tuple(ids) for ids in alone}) > 10
    # 40 rows in batches of 8 with caps of different length also go through batches that end early and are formed anew.
    for batch_size in (8, 32):
        assert [reply.output_ids for reply in generations(checkpoint, requests, batch_size)] == alone
    backwards = generations(checkpoint, requests[::-1], batch_size=16)[::-1]
    assert [reply.output_ids for reply in backwards] == alone


def demo_prompts() -> list[list[int]]:
    """All prompts of the packaged demo, rendered by its own chat template."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(DEMO / "model")
    found: list[list[int]] = []
    for source in sorted((DEMO / "prompts").glob("*.jsonl")):
        (whole, _) = dataset_partitions(Dataset(name="d", source=str(source)))
        rows = tokenize_rows(tokenizer, read_partition(whole, 0).rows, thinking=True, call_id=KIMI.tool_call_id)
        assert set(rows["status"]) == {"ready"}
        found += rows["prompt_ids"].to_list()
    return found


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_no_demo_prompt_depends_on_its_batch() -> None:
    """Greedy, token for token: alone, and with 31 others of other lengths."""
    greedy = Sampling(temperature=0.0, max_new_tokens=160)
    requests = [request(i, ids, greedy) for i, ids in enumerate(demo_prompts())]
    assert len(requests) == 120
    alone = [reply.output_ids for reply in generations(DEMO / "model", requests, batch_size=1)]
    assert [reply.output_ids for reply in generations(DEMO / "model", requests, batch_size=32)] == alone
    assert len({tuple(ids) for ids in alone}) > 100


def test_greedy_is_the_argmax_of_a_plain_forward_pass(checkpoint: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint)
    for ids in prompts(4):
        reply = generations(checkpoint, [request(0, ids)])[0]
        expected: list[int] = []
        while len(expected) < 20 and not {CONFIG_EOS, GENERATION_EOS} & set(expected):
            with torch.inference_mode():
                expected.append(int(model(torch.tensor([ids + expected])).logits[0, -1].argmax()))
        assert reply.output_ids == expected


def test_seeds_decide_what_is_sampled(checkpoint: Path) -> None:
    ids = prompts(1)[0]
    replies = generations(checkpoint, [request(i, ids, SAMPLED) for i in (1, 2, 3, 1)])
    assert replies[0].output_ids == replies[3].output_ids
    assert len({tuple(reply.output_ids) for reply in replies}) == 3


def test_a_draw_of_exactly_zero_is_no_fault(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def zero(noise: torch.Tensor, **_: Any) -> torch.Tensor:
        return noise.zero_()

    ids = prompts(1)[0]
    greedy = generations(checkpoint, [request(0, ids)])[0]
    monkeypatch.setattr(torch.Tensor, "exponential_", zero)
    sampled = GREEDY.model_copy(update={"temperature": 1.0})
    # Where every token has the same luck, the likeliest wins.
    assert generations(checkpoint, [request(0, ids, sampled)])[0].output_ids == greedy.output_ids


def test_samples_follow_the_models_distribution(checkpoint: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    one = Sampling(temperature=4.0, top_k=6, max_new_tokens=1)
    ids, count = prompts(1)[0], 4000
    replies = generations(checkpoint, [request(i, ids, one) for i in range(count)], batch_size=1000)
    with torch.inference_mode():
        logits = AutoModelForCausalLM.from_pretrained(checkpoint)(torch.tensor([ids])).logits[0, -1] / 4.0
    top = logits.topk(6)
    for token, share in zip(top.indices.tolist(), top.values.softmax(0).tolist(), strict=True):
        seen = sum(reply.output_ids == [token] for reply in replies) / count
        assert abs(seen - share) < 4.5 * (share * (1 - share) / count) ** 0.5, token
    assert {reply.output_ids[0] for reply in replies} <= set(top.indices.tolist())


def test_the_checkpoints_sampling_defaults_have_no_effect(checkpoint: Path, tmp_path: Path) -> None:
    plain = shutil.copytree(checkpoint, tmp_path / "plain")
    (plain / "generation_config.json").write_text(f'{{"eos_token_id": {GENERATION_EOS}}}')
    requests = [request(i, ids) for i, ids in enumerate(prompts(6))]
    ours, theirs = generations(checkpoint, requests), generations(plain, requests)
    assert [reply.output_ids for reply in ours] == [reply.output_ids for reply in theirs]


def test_the_cap_ends_an_output(checkpoint: Path) -> None:
    long = next(
        reply
        for reply in generations(checkpoint, [request(i, ids) for i, ids in enumerate(prompts(9))])
        if reply.finish_type == "length"
    )
    assert (len(long.output_ids), long.completion_tokens, long.finish_length, long.matched_stop) == (20, 20, 20, None)


def test_a_stop_id_ends_an_output_and_is_its_last_id(checkpoint: Path) -> None:
    ids = prompts(1)[0]
    whole = generations(checkpoint, [request(0, ids)])[0].output_ids
    stop = whole[5]
    first = whole.index(stop)
    sampling = GREEDY.model_copy(update={"stop_token_ids": (stop,)})
    reply = generations(checkpoint, [request(0, ids, sampling)])[0]
    assert reply.output_ids == whole[: first + 1]
    assert (reply.finish_type, reply.matched_stop, reply.finish_length) == ("stop", stop, None)
    at_the_cap = sampling.model_copy(update={"max_new_tokens": first + 1})
    assert generations(checkpoint, [request(0, ids, at_the_cap)])[0].finish_type == "stop"
    one_less = sampling.model_copy(update={"max_new_tokens": max(first, 1)})
    assert generations(checkpoint, [request(0, ids, one_less)])[0].finish_type == ("length" if first else "stop")


def test_stop_ids_come_from_every_source(checkpoint: Path, tmp_path: Path) -> None:
    assert described(checkpoint).stop_token_ids == (CONFIG_EOS, GENERATION_EOS)
    with_tokenizer = shutil.copytree(checkpoint, tmp_path / "with")
    _save_tokenizer(with_tokenizer, eos=9)
    assert described(with_tokenizer).stop_token_ids == (CONFIG_EOS, GENERATION_EOS, 9)
    elsewhere = tmp_path / "tokenizer"
    _save_tokenizer(elsewhere, eos=11)
    assert described(checkpoint, tokenizer_path=elsewhere).stop_token_ids == (CONFIG_EOS, GENERATION_EOS, 11)


@pytest.mark.parametrize("source", ["config", "generation_config", "tokenizer", "request"])
def test_a_stop_id_of_each_source_ends_an_output(checkpoint: Path, tmp_path: Path, source: str) -> None:
    import json

    ids = prompts(3)[2]
    whole = generations(checkpoint, [request(0, ids)])[0].output_ids
    stop = whole[4]
    path = shutil.copytree(checkpoint, tmp_path / "model")
    sampling = GREEDY
    if source == "config":
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"eos_token_id": stop}))
    elif source == "generation_config":
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, stop]}))
    elif source == "tokenizer":
        _save_tokenizer(path, eos=stop)
    else:
        sampling = GREEDY.model_copy(update={"stop_token_ids": (stop,)})
    reply = generations(path, [request(0, ids, sampling)])[0]
    assert reply.output_ids == whole[: whole.index(stop) + 1]
    assert reply.matched_stop == stop


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_logprobs_agree_with_a_separate_forward_pass(checkpoint: Path, sampling: Sampling) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint)
    requests = [request(i, ids, sampling, logprobs=i % 2 == 0) for i, ids in enumerate(prompts(12))]
    for asked, reply in zip(requests, generations(checkpoint, requests, batch_size=4), strict=True):
        if not asked.want_logprobs:
            assert reply.output_logprobs is None and reply.logprob_kind is None
            continue
        with torch.inference_mode():
            logits = model(torch.tensor([asked.prompt_ids + reply.output_ids])).logits[0]
        start = len(asked.prompt_ids) - 1
        expected = logits[start:-1].log_softmax(-1).gather(-1, torch.tensor(reply.output_ids)[:, None])[:, 0]
        assert reply.logprob_kind == "model" and reply.output_logprobs is not None
        assert torch.allclose(torch.tensor(reply.output_logprobs), expected, atol=1e-4)


def test_what_can_never_work_is_refused_and_harms_nobody(checkpoint: Path) -> None:
    good = request(0, prompts(1)[0])
    bad = [request(1, []), request(2, [5, VOCAB]), request(3, [-1]), request(4, [11] * CONTEXT)]
    replies = answers(checkpoint, [good, *bad])
    assert isinstance(replies[0], Generation)
    for reply, text in zip(replies[1:], ("empty", f"id {VOCAB} ", "id -1 ", "no room"), strict=True):
        assert isinstance(reply, RequestRefusedError) and text in str(reply)


def test_the_context_caps_an_output_and_the_reply_says_so(checkpoint: Path) -> None:
    sampling = GREEDY.model_copy(update={"max_new_tokens": 1000})
    lengths = (CONTEXT - 1, CONTEXT - 5, 3)
    replies = generations(checkpoint, [request(i, [20 + i] * n, sampling) for i, n in enumerate(lengths)])
    for length, reply in zip(lengths, replies, strict=True):
        room = CONTEXT - length
        assert len(reply.output_ids) == room if reply.finish_type == "length" else len(reply.output_ids) <= room
        assert reply.finish_length == (room if reply.finish_type == "length" else None)
    assert replies[0].finish_length == 1 or replies[0].finish_type == "stop"


def test_damaged_weights_fail_the_request_instead_of_making_a_token(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    path = make_checkpoint(tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():  # the embedding of one id is not a number: only prompts with that id are spoiled
        model.get_input_embeddings().weight[50] = float("nan")
    model.save_pretrained(path)
    replies = answers(path, [request(0, [20, 21]), request(1, [20, 50]), request(2, [20, 50], SAMPLED)])
    assert isinstance(replies[0], Generation)
    for reply in replies[1:]:
        assert isinstance(reply, RequestRefusedError) and "NaN" in str(reply)


class _Runs:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_weights_that_are_a_program_do_not_run(checkpoint: Path, tmp_path: Path) -> None:
    import torch

    path, mark = tmp_path / "checkpoint", tmp_path / "ran"
    shutil.copytree(checkpoint, path, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save({"lm_head.weight": _Runs(mark)}, path / "pytorch_model.bin")
    with pytest.raises(EngineUnavailableError, match="cannot be loaded"):
        answers(path, [request(0, [20, 21])])
    assert not mark.exists()
    torch.load(path / "pytorch_model.bin", weights_only=False)
    assert mark.exists(), "it would have run"


def test_requests_of_different_sampling_are_answered_together(checkpoint: Path) -> None:
    requests = [request(i, ids, (GREEDY, SAMPLED)[i % 2]) for i, ids in enumerate(prompts(20))]
    together = generations(checkpoint, requests, batch_size=8)
    for kind in (0, 1):
        apart = generations(checkpoint, requests[kind::2], batch_size=8)
        assert [reply.output_ids for reply in apart] == [reply.output_ids for reply in together[kind::2]]


def test_short_rows_are_answered_before_the_batch_ends_and_the_loop_stays_responsive(checkpoint: Path) -> None:
    async def ask() -> tuple[list[str], int]:
        engine = TransformersEngine(checkpoint, settings(batch_size=2))
        await engine.start()
        order: list[str] = []
        ids = prompts(1)[0][:3]
        no_stop = Sampling(temperature=2.0, max_new_tokens=55)

        async def one(name: str, asked: Request) -> None:
            await engine.generate(asked)
            order.append(name)

        turns = 0
        tasks = asyncio.gather(one("long", request(0, ids, no_stop)), one("short", request(1, ids * 15, no_stop)))
        while not tasks.done():
            await asyncio.sleep(0.001)
            turns += 1
        await engine.close()
        return order, turns

    order, turns = asyncio.run(ask())
    assert order == ["short", "long"]  # the short one's cap is what is left of the context
    assert turns >= 10


def test_an_engine_serves_one_loop_after_another_and_can_be_closed_and_started_again(checkpoint: Path) -> None:
    engine = TransformersEngine(str(checkpoint), settings())
    description = asyncio.run(engine.start())
    ids = prompts(1)[0]
    first = asyncio.run(engine.generate(request(0, ids))).output_ids
    assert asyncio.run(engine.generate(request(0, ids))).output_ids == first
    asyncio.run(engine.close())
    asyncio.run(engine.close())
    assert not asyncio.run(engine.healthy())
    with pytest.raises(EngineUnavailableError, match="start"):
        asyncio.run(engine.generate(request(0, ids)))
    assert asyncio.run(engine.start()) == description
    assert asyncio.run(engine.healthy())
    asyncio.run(engine.close())


def test_a_cancelled_request_frees_its_place_and_closing_answers_all(checkpoint: Path) -> None:
    async def ask() -> list[Any]:
        engine = TransformersEngine(checkpoint, settings(batch_size=2))
        await engine.start()
        ids = prompts(4)
        tasks = [asyncio.create_task(engine.generate(request(i, ids[i]))) for i in range(4)]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        assert isinstance(await tasks[1], Generation)
        late = asyncio.create_task(engine.generate(request(9, ids[0])))
        await asyncio.sleep(0)
        await engine.close()
        return await asyncio.gather(*tasks[2:], late, return_exceptions=True)

    replies = asyncio.run(asyncio.wait_for(ask(), 20))
    assert all(isinstance(reply, Generation | EngineError) for reply in replies)


def test_a_batch_that_fails_as_a_whole_fails_its_requests_with_words(checkpoint: Path) -> None:
    async def ask() -> list[Any]:
        engine = TransformersEngine(checkpoint, settings())
        await engine.start()
        assert engine._loaded is not None

        def broken(**_: object) -> None:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

        engine._loaded.model.generate = broken
        try:
            return await asyncio.gather(*(engine.generate(request(i, [20])) for i in range(3)), return_exceptions=True)
        finally:
            await engine.close()

    for reply in asyncio.run(ask()):
        assert isinstance(reply, EngineError) and "lower engine.batch_size" in str(reply)


def test_the_description_says_what_decides_the_tokens(checkpoint: Path, tmp_path: Path) -> None:
    description = described(checkpoint)
    assert (description.vocab_size, description.context_length) == (VOCAB, CONTEXT)
    assert {"torch", "transformers", "device", "dtype", "threads"} <= description.environment.keys()
    assert description.weights.startswith("sha256:") and len(description.weights) == 71
    assert described(shutil.copytree(checkpoint, tmp_path / "copy")).weights == description.weights
    assert described(make_checkpoint(tmp_path / "other", seed=1)).weights != description.weights


def test_large_weights_are_hashed_by_their_ends(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eagle3_assets.engines import checkpoint as module

    whole = module.weights_hash(checkpoint, module.weight_files(checkpoint))
    monkeypatch.setattr(module, "WHOLE_HASH_BYTES", 10)
    ends = module.weights_hash(checkpoint, module.weight_files(checkpoint))
    assert ends == module.weights_hash(checkpoint, module.weight_files(checkpoint)) != whole


def test_a_checkpoint_that_cannot_be_used_is_named_in_one_message(checkpoint: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    with pytest.raises(EngineUnavailableError, match=r"config\.json is missing"):
        described(tmp_path / "nowhere")
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(checkpoint / "config.json", bare)
    with pytest.raises(EngineUnavailableError, match="no weights"):
        described(bare)
    (bare / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(EngineUnavailableError, match="cannot be loaded"):
        described(bare)
    tensors = load_file(checkpoint / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, bare / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EngineUnavailableError, match=r"lack 1 tensors, model\.norm\.weight"):
        described(bare)
    broken = shutil.copytree(checkpoint, tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(EngineUnavailableError, match="tokenizer here cannot be loaded"):
        described(broken)


def test_without_torch_the_message_says_what_to_install(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_torch(name: str, *others: Any, **named: Any) -> ModuleType:
        if name == "torch":
            raise ImportError("No module named 'torch'")
        return real(name, *others, **named)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(EngineUnavailableError, match=r"pip install 'eagle3-assets\[local\]'"):
        described(checkpoint)


def test_a_device_that_is_not_there_is_named(checkpoint: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    engine = TransformersEngine(checkpoint, TransformersEngineSettings(device="cuda"))
    with pytest.raises(EngineUnavailableError, match=r"engine\.device 'cuda'"):
        asyncio.run(engine.start())


def _save_tokenizer(path: Path, eos: int) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(VOCAB)}
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call] # transformers' own
        tokenizer_object=Tokenizer(models.WordLevel(words, "w0")), eos_token=f"w{eos}"
    )
    tokenizer.save_pretrained(path)


def test_the_packaged_model_gives_the_same_tokens_alone_and_in_a_batch() -> None:
    from importlib.resources import files

    path = Path(str(files("eagle3_assets.demo") / "model"))
    if not (path / "config.json").is_file():
        pytest.skip("the packaged model has not been made")
    vocabulary = described(path).vocab_size
    numbers = random.Random(1)  # noqa: S311 - test data
    sampling = Sampling(temperature=0.0, max_new_tokens=24)
    requests = [
        request(i, [numbers.randrange(vocabulary) for _ in range(numbers.randrange(1, 40))], sampling)
        for i in range(32)
    ]
    alone = generations(path, requests, batch_size=1)
    together = generations(path, requests, batch_size=32)
    assert [reply.output_ids for reply in alone] == [reply.output_ids for reply in together]
