"""How an output ends.

What belongs here: damages of one theme, as a table for ``test_mutations``. Not here: judging them.
"""

from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.kimi import CAP, END_THINK, IM_END
from eagle3_assets_tests.tokens.mutations import (
    A,
    Damage,
    before_stop,
    changed,
    fresh,
    inserted,
    middle,
    outputs,
    sampled,
    start,
    with_output,
)

DAMAGES: dict[str, Damage] = {
    "unknown finish": Damage(
        "answer",
        changed(finish_type="abort", matched_stop=None),
        {"finish_known": "'abort' is neither stop nor length"},
    ),
    "finish not recorded": Damage("answer", changed(finish_type=None), {"finish_known": "is not recorded"}),
    "stop id stripped": Damage(
        "answer",
        lambda row: with_output(row, row["output_ids"][:-1]) | {"matched_stop": str(IM_END)},
        {"stop_token_last": "the engine stopped at <|im_end|> (163586), but the last id is id 1067"},
        index=4,
    ),
    "stop id not in the stop set": Damage(
        "answer",
        lambda row: with_output(row, [*row["output_ids"][:-1], 13]),
        {"stop_token_last": "the last id is id 13, not in the recorded stop set: [EOS] (163585), <|im_end|> (163586)"},
        index=5,
    ),
    "stop string": Damage(
        "answer",
        changed(matched_stop='"User:"'),
        {"stop_token_last": "ended on 'User:', which is no token id"},
        index=5,
    ),
    "bad logits": Damage("answer", changed(matched_stop='"NaN happened"'), {"stop_token_last": "bad logits"}, index=5),
    "matched stop not recorded": Damage("answer", changed(matched_stop=None), {"stop_token_last": "is not recorded"}),
    **{
        f"stop id early, {place.__name__}": Damage(
            "answer",
            inserted(place, kimi.EOS),
            {"nothing_after_stop": f"at index {place(6)} ends the output, yet {said}"},
            index=place(6),
        )
        for place, said in ((start, "6 ids follow"), (middle, "3 ids follow"), (before_stop, "1 id follows"))
    },
    "longer than the cap": Damage(
        "thinking-off",
        outputs(*[A] * CAP, IM_END),
        {"within_cap": "65 output ids, more than the request's max_new_tokens of 64"},
        index=64,
    ),
    "cut before the cap": Damage(
        "cut-in-reasoning",
        outputs(*[A] * (CAP - 10)),
        {"length_honest": "54 output ids and the cap is 64"},
        index=53,
    ),
    "nothing but a stop id": Damage("thinking-off", outputs(IM_END), {"not_stop_only": "<|im_end|> (163586)"}, index=0),
    "stop id exactly at the cap": Damage(
        "cut-in-reasoning",
        outputs(*[A] * (CAP - 2), END_THINK, IM_END),
        {"length_honest": "ends with <|im_end|> (163586) exactly at the cap of 64"},
        index=63,
        severity="warning",
    ),
    "capped by context": Damage(
        "cut-in-reasoning",
        lambda row: with_output(row, [A] * 50) | {"finish_length": 50},
        {"length_honest": "capped by context: 50 of the 64 tokens asked for"},
        index=49,
        severity="warning",
    ),
    "cut at a default that nobody asked for": Damage(
        "cut-in-reasoning",
        lambda row: sampled(max_new_tokens=512)(with_output(row, [A] * 90 + fresh(38))) | {"finish_length": 128},
        {"length_honest": "cut at 128 tokens, SGLang's default, of the 512 asked for: was the cap ever sent?"},
        index=127,
        severity="warning",
    ),
}
