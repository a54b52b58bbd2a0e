"""The engine's text, broken characters, and ids that decoding and encoding would change.

What belongs here: damages of one theme, as a table for ``test_mutations``. Not here: judging them.
"""

from eagle3_assets_tests.tokens import kimi
from eagle3_assets_tests.tokens.kimi import END_THINK, IM_END, SECTION_BEGIN, SECTION_END
from eagle3_assets_tests.tokens.mutations import A, Damage, before_stop, changed, inserted, middle, outputs, start

DAMAGES: dict[str, Damage] = {
    **{
        f"text of the engine, {name}": Damage(
            "answer", changed(text=text), {"text_agrees": f"from character {place} on"}, index, "warning"
        )
        for name, text, place, index in (
            ("first", "b</think>cd<|im_end|>", 0, 0),
            ("middle doubled", "ab</think></think>cd<|im_end|>", 10, 3),
            ("last", "ab</think>cd<|im_end|>\n", 22, 5),
            ("cut short", "ab</think>c", 11, 4),
        )
    },
    **{
        f"bytes that are no character, {place.__name__}": Damage(
            "answer",
            inserted(place, *kimi.letters("😀")[:count]),
            dict.fromkeys(("no_replacement_character", "retokenization_drift"), f"index {place(6)}"),
            place(6),
            "warning",
        )
        for place, count in ((start, 1), (middle, 3), (before_stop, 2))
    },
    **{
        f"{kind} in other pieces, {place.__name__}": Damage(
            "answer",
            inserted(place, *kimi.letters(text)),
            {"retokenization_drift": f"differs from index {place(6)} on, at {kind} text"},
            place(6),
            "warning",
        )
        for kind, text, place in (
            ("structural", "</think>", start),
            ("structural", "<|im_end|>", middle),
            ("structural", "[PAD]", before_stop),
            ("digits", "12", start),
            ("digits", "12", middle),
            ("digits", "12", before_stop),
            ("whitespace", "\n\n", before_stop),
        )
    },
    **{
        f"{kind} in other pieces, {name}": Damage(
            "empty-reasoning", outputs(*ids), {"retokenization_drift": f"at {kind} text: {said}"}, index, "warning"
        )
        for kind, text, said in (
            ("other", "hello", f"id {kimi.BYTES['h']} 'h' would become id 22931 'hello'"),
            ("multi-byte", "世", f"id {kimi.BYTES['ä']} '\ufffd' would become id 4812 '世'"),
        )
        for name, index, ids in (
            ("first", 0, [*kimi.letters(text), END_THINK, A, IM_END]),
            ("middle", 2, [A, END_THINK, *kimi.letters(text), SECTION_BEGIN, *kimi.call(), SECTION_END, IM_END]),
            ("last", 1, [END_THINK, *kimi.letters(text), IM_END]),
        )
    },
}
