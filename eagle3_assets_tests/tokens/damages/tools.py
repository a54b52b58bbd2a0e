"""Tool-call markup, what calls say and where they stand.

What belongs here: damages of one theme, as a table for ``test_mutations``. Not here: judging them.
"""

from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.kimi import (
    ARG_BEGIN,
    CALL_BEGIN,
    CALL_END,
    END_THINK,
    IM_END,
    SECTION_BEGIN,
    SECTION_END,
)
from eagle3_assets_tests.tokens.mutations import A, B, Damage, call_index, calls, one_of_three_calls, outputs

DAMAGES: dict[str, Damage] = {
    **{
        f"call id {head!r}, call {place}": Damage(
            "thinking-off",
            one_of_three_calls(place, head, "{}"),
            {"tool_call_id": f"call id {head!r} is not functions.NAME:INDEX"},
            index=call_index(place) + 1,
            severity="warning",
        )
        for place in range(3)
        for head in ("functionsexec5", "functions_get_weather_1", "f:0", "functions.f", "functions.:0", "functions.f:x")
    },
    "call id with a newline": Damage(
        "thinking-off",
        calls(("functions.f:0\n", "{}")),
        {"tool_call_id": "call id 'functions.f:0\\n' is not functions.NAME:INDEX"},
        index=2,
        severity="warning",
    ),
    **{
        f"arguments {arguments!r}, call {place}": Damage(
            "thinking-off",
            one_of_three_calls(place, f"functions.f:{place}", arguments),
            {"tool_arguments_json": said},
            index=call_index(place) + len(kimi.call()) - 3,
            severity="warning",
        )
        for place in range(3)
        for arguments, said in (
            ('"{}"', "the arguments are a string, not an object: encoded twice"),
            ("[]", "the arguments are a list"),
            ("null", "the arguments are null"),
            ("7", "the arguments are a number"),
            ("{", "the call's JSON is not JSON"),
            ('{"a":NaN}', "NaN is no JSON number"),
        )
    },
    **{
        f"undeclared tool, call {place}": Damage(
            "thinking-off",
            one_of_three_calls(place, f"functions.g:{place}", "{}"),
            {"tool_declared": "calls 'g', the prompt declares f"},
            index=call_index(place),
            severity="warning",
        )
        for place in range(3)
    },
    "text after the calls": Damage(
        "thinking-off",
        outputs(SECTION_BEGIN, *kimi.call(), SECTION_END, A, B, IM_END),
        {"tool_order": "id 1064 at index 20 follows the tool markup"},
        index=20,
        severity="warning",
    ),
    "reasoning ends after the calls": Damage(
        "answer",
        outputs(A, SECTION_BEGIN, *kimi.call(), SECTION_END, END_THINK, IM_END),
        {"tool_order": "</think> (163607) at index 21 follows the tool markup"},
        index=21,
        severity="warning",
    ),
    "two sections": Damage(
        "thinking-off",
        outputs(SECTION_BEGIN, *kimi.call(), SECTION_END, SECTION_BEGIN, *kimi.call(1), SECTION_END, IM_END),
        {"tool_order": "a second section of tool calls begins at index 20"},
        index=20,
        severity="warning",
    ),
    "calls counted in another order": Damage(
        "thinking-off",
        calls(("functions.f:0", "{}"), ("functions.f:2", "{}"), ("functions.f:1", "{}")),
        {"tool_order": "call number 2 follows number 0"},
        index=call_index(1),
        severity="warning",
    ),
    "one number for two calls": Damage(
        "thinking-off",
        calls(("functions.f:0", "{}"), ("functions.f:1", "{}"), ("functions.f:1", "{}")),
        {"tool_order": "call number 1 follows number 1"},
        index=call_index(2),
        severity="warning",
    ),
    "implicit end and two sections": Damage(
        "answer",
        outputs(A, *2 * [SECTION_BEGIN, *kimi.call(), SECTION_END], IM_END),
        {
            "reasoning_closed": "implicit end: reasoning ends with tool markup at index 1",
            "tool_order": "a second section of tool calls begins at index 21",
        },
        severity="warning",
    ),
    **{
        f"tool markup: {name}": Damage(
            "thinking-off", outputs(*ids), {"tool_grammar": f"cannot stand there, after {said}"}, index, "warning"
        )
        for name, ids, said, index in (
            ("call without section", (A, *kimi.call(), IM_END), "no markup", 1),
            ("empty section", (SECTION_BEGIN, SECTION_END, IM_END), "<|tool_calls_section_begin|>", 1),
            (
                "no call id",
                (SECTION_BEGIN, CALL_BEGIN, ARG_BEGIN, A, CALL_END, SECTION_END, IM_END),
                "<|tool_call_begin|>",
                2,
            ),
            (
                "no arguments",
                (SECTION_BEGIN, CALL_BEGIN, A, ARG_BEGIN, CALL_END, SECTION_END, IM_END),
                "<|tool_call_argument_begin|>",
                4,
            ),
            (
                "end missing",
                (SECTION_BEGIN, CALL_BEGIN, A, ARG_BEGIN, B, SECTION_END, IM_END),
                "<|tool_call_argument_begin|>",
                5,
            ),
            ("section never ended", (SECTION_BEGIN, *kimi.call(), IM_END), "<|tool_call_end|>", 1 + len(kimi.call())),
            (
                "ids between calls",
                (SECTION_BEGIN, *kimi.call(), A, *kimi.call(1), SECTION_END, IM_END),
                "<|tool_call_end|>",
                call_index(1),
            ),
            ("end alone", (A, SECTION_END, IM_END), "no markup", 1),
            (
                "section in section",
                (SECTION_BEGIN, SECTION_BEGIN, *kimi.call(), SECTION_END, IM_END),
                "<|tool_calls_section_begin|>",
                1,
            ),
        )
    },
}
