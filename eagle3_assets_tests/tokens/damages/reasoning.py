"""Where reasoning begins and ends.

What belongs here: damages of one theme, as a table for ``test_mutations``. Not here: judging them.
"""

from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.kimi import END_THINK, IM_END, SECTION_BEGIN, SECTION_END, THINK
from eagle3_assets_tests.tokens.mutations import A, B, Damage, before_stop, inserted, middle, outputs, start

DAMAGES: dict[str, Damage] = {
    "reasoning never closed": Damage(
        "answer", outputs(A, B, IM_END), {"reasoning_closed": "open and never closed"}, index=2
    ),
    **{
        f"reasoning closed twice, {place.__name__}": Damage(
            "answer", inserted(place, END_THINK), {"reasoning_closed": "2 times </think> (163607)"}, index=index
        )
        for place, index in ((start, 3), (middle, 3), (before_stop, 5))
    },
    **{
        f"reasoning opened again, {place.__name__}": Damage(
            "answer", inserted(place, THINK), {"reasoning_not_reopened": "<think> (163606)"}, index=place(6)
        )
        for place in (start, middle, before_stop)
    },
    "reasoning opened again twice": Damage(
        "answer",
        lambda row: inserted(middle, THINK)(inserted(before_stop, THINK)(row)),
        {"reasoning_not_reopened": "<think> (163606) at index 3"},
        index=3,
    ),
    "implicit end": Damage(
        "answer",
        outputs(A, SECTION_BEGIN, *kimi.call(), SECTION_END, IM_END),
        {"reasoning_closed": "implicit end: reasoning ends with tool markup at index 1"},
        index=1,
        severity="warning",
    ),
    "implicit end at once": Damage(
        "answer",
        outputs(SECTION_BEGIN, *kimi.call(), SECTION_END, IM_END),
        {"reasoning_closed": "implicit end: reasoning ends with tool markup at index 0"},
        index=0,
        severity="warning",
    ),
    **{
        f"reasoning though it is off, {place.__name__}": Damage(
            "thinking-off", inserted(place, *ids), {"reasoning_off": said}, index=place(3), severity="warning"
        )
        for place, ids, said in (
            (start, (THINK, A, END_THINK), "<think>"),  # opened by the first id, so it has to be closed too
            (middle, (THINK,), "<think>"),
            (before_stop, (END_THINK,), "</think>"),
        )
    },
}
