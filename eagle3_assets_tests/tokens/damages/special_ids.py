"""Ids outside the vocabulary, and structural ones that have no place in an output.

What belongs here: damages of one theme, as a table for ``test_mutations``. Not here: judging them.
"""

from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.kimi import END_THINK, IM_END
from eagle3_assets_tests.tokens.mutations import A, Damage, before_stop, inserted, middle, start, with_output

DAMAGES: dict[str, Damage] = {
    **{
        f"{name} id, {place.__name__}": Damage(
            "answer", inserted(place, token), {"ids_in_vocabulary": said}, index=place(6)
        )
        for name, token, said in (("too large", kimi.VOCAB_SIZE, "id 163840"), ("negative", -5, "id -5"))
        for place in (start, middle, before_stop)
    },
    "two ids outside the vocabulary": Damage(
        "answer",
        lambda row: with_output(row, [A, kimi.VOCAB_SIZE + 1, END_THINK, -1, IM_END]),
        {"ids_in_vocabulary": "id 163841 at index 1 and 1 more outside the model's vocabulary of 163840"},
        index=1,
    ),
    **{
        f"{name} id in the output, {place.__name__}": Damage(
            "answer", inserted(place, token), {"no_reserved_ids": f"({token}) at index {place(6)} has"}, index=place(6)
        )
        for name, token in (
            ("reserved", kimi.RESERVED),
            ("BOS", kimi.BOS),
            ("PAD", kimi.PAD),
            ("UNK", kimi.UNK),
            ("media", kimi.MEDIA),
        )
        for place in (start, middle, before_stop)
    },
    "two reserved ids": Damage(
        "answer",
        lambda row: inserted(middle, kimi.PAD)(inserted(before_stop, kimi.RESERVED)(row)),
        {"no_reserved_ids": "[PAD] (163839) at index 3 has no use in an output, 1 more such id follows"},
        index=3,
    ),
    **{
        f"role id {token}, {place.__name__}": Damage(
            "answer", inserted(place, token), {"no_role_ids": f"({token}) at index {place(6)} stands"}, index=place(6)
        )
        for token in (kimi.IM_USER, kimi.IM_ASSISTANT, kimi.IM_SYSTEM, kimi.IM_MIDDLE)
        for place in (start, middle, before_stop)
    },
}
