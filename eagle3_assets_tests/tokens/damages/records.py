"""What is recorded of an output: counts, log-probabilities, sampling, hashes.

What belongs here: damages of one theme, as a table for ``test_mutations``. Not here: judging them.
"""

from eagle3_assets_tests.tokens.mutations import Damage, changed, sampled, with_output

DAMAGES: dict[str, Damage] = {
    "count too low": Damage(
        "answer", changed(completion_tokens=4), {"completion_count": "counted 4 output ids, there are 6"}
    ),
    "count too high": Damage("answer", changed(completion_tokens=7), {"completion_count": "counted 7"}),
    "count not recorded": Damage(
        "answer",
        changed(completion_tokens=None),
        dict.fromkeys(("completion_count", "no_prompt_echo"), "is not recorded"),
    ),
    "prompt truncated by the server": Damage(
        "answer", changed(server_prompt_tokens=3), {"server_saw_prompt": "prompt truncated: 9 ids were sent"}
    ),
    "server saw more": Damage("answer", changed(server_prompt_tokens=10), {"server_saw_prompt": "prompt changed"}),
    "too few log-probabilities, one of them not a number": Damage(
        "answer",
        changed(output_logprobs=[float("nan"), -0.5]),
        {"logprobs_agree": "2 log-probabilities for 6 output ids"},
    ),
    "too few log-probabilities": Damage(
        "answer", changed(output_logprobs=[-0.5] * 5), {"logprobs_agree": "5 log-probabilities for 6 output ids"}
    ),
    **{
        f"log-probability {value} at {index}": Damage(
            "answer",
            changed(output_logprobs=[value if i == index else -0.5 for i in range(6)]),
            {"logprobs_agree": f"the log-probability at index {index} is {value}"},
            index=index,
        )
        for index, value in ((0, float("nan")), (3, float("-inf")), (5, None))
    },
    **{
        f"log-probability {value} above 0 at {index}": Damage(
            "answer",
            changed(output_logprobs=[value if i == index else -0.5 for i in range(6)]),
            {"logprobs_agree": f"the log-probability at index {index} is {value}, above 0"},
            index=index,
        )
        for index, value in ((0, 3.5), (3, 0.0625), (5, 0.015625))
    },
    "a sampling parameter left to the engine": Damage(
        "answer", sampled(top_k=None, seed=None), {"sampling_recorded": "not explicit: top_k, seed"}
    ),
    "sampling not JSON": Damage(
        "answer", changed(sampling="{"), {"sampling_recorded": "is not JSON", "within_cap": ""}
    ),
    "ids changed in storage": Damage(
        "answer", changed(ids_sha256="0" * 64), {"stored_as_captured": "not those whose hash was taken"}
    ),
    "hash not recorded": Damage("answer", changed(ids_sha256=None), {"stored_as_captured": "its hash is not recorded"}),
    "another prompt now": Damage(
        "answer",
        lambda row: row | {"prompt_ids": [13, *row["prompt_ids"]], "server_prompt_tokens": 10},
        {"prompt_as_generated": "is not the one in tokenized_prompts now"},
    ),
    "no output ids": Damage(
        "thinking-off",
        lambda row: with_output(row, []),
        {"completion_count": "no output ids", "stop_token_last": "there are no output ids"},
        index=None,
    ),
    "count below zero": Damage("answer", changed(cached_tokens=-1), {"usage_consistent": "cached_tokens is -1"}),
    **{
        f"count of the output {count}": Damage(
            "answer",
            changed(completion_tokens=count),
            {
                "completion_count": f"the engine counted {count} output ids, there are 6",
                "usage_consistent": f"completion_tokens is {count}",
            },
        )
        for count in (-1, -3)
    },
    "cap below zero": Damage(
        "cut-in-reasoning", changed(finish_length=-1), {"length_honest": "finish type length, but there are"}
    ),
    "cache larger than the prompt": Damage(
        "answer",
        changed(cached_tokens=10),
        {"usage_consistent": "10 prompt tokens taken from the cache of 9"},
        severity="warning",
    ),
}
