"""Ids, passages and loops that come again and again.

What belongs here: damages of one theme, as a table for ``test_mutations``. Not here: judging them.
"""

from eagle3_assets_tests.tokens.mutations import A, Damage, fresh, long_cut, long_output

DAMAGES: dict[str, Damage] = {
    **{
        f"one id too often, {name}": Damage(
            "thinking-off",
            long_output(*before, *[A] * 400, *after),
            {"repetition": f"id 1064 400 times in a row from index {len(before)} on"},
            index=len(before),
        )
        for name, before, after in (
            ("first", [], fresh(90)),
            ("middle", fresh(77), fresh(90, 30_000)),
            ("last", fresh(90), []),
        )
    },
    "one id 500 times and nothing else": Damage(
        "thinking-off", long_output(*[A] * 500), {"repetition": "id 1064 500 times in a row"}, index=0
    ),
    **{
        f"a loop to the {name}": Damage(
            sample,
            made(*fresh(50), *times * fresh(25, 30_000)),
            {"repetition": f"ends in a loop: the same 25 ids {times}.0 times from index 50 on"},
            index=50,
            severity=severity,
        )
        for name, sample, made, times, severity in (
            ("cap", "cut-in-reasoning", long_cut, 20, "error"),
            ("end", "thinking-off", long_output, 20, "warning"),
            ("end that took long to find", "thinking-off", long_output, 80, "error"),
        )
    },
    "a matrix of zeros and ones": Damage(
        "thinking-off",
        long_output(*(i for n in range(20) for m in range(20) for i in ([A + (n == m), 20_000]))),
        {"repetition": "ends in a loop: the same 42 ids "},
        severity="warning",
    ),
    **{
        f"the same passages again and again, {name}": Damage(
            "thinking-off",
            long_output(*before, *(i for n in range(40) for i in (*fresh(120, 30_000), 50_000 + n)), *after),
            {"repetition": "of its passages of 8 ids stood in it before"},
            index=len(before) + 121,
        )
        for name, before, after in (
            ("first", [], fresh(20)),
            ("middle", fresh(10), fresh(10, 40_000)),
            ("last", fresh(20), []),
        )
    },
    **{
        f"one id often, {name}": Damage(
            "thinking-off",
            long_output(*before, *[A] * 100, *after),
            {"repetition": "id 1064 100 times in a row"},
            index=len(before),
            severity="warning",
        )
        for name, before, after in (("first", [], fresh(40)), ("middle", fresh(33), fresh(40)), ("last", fresh(55), []))
    },
    "a short loop to the end": Damage(
        "thinking-off",
        long_output(*fresh(50), *3 * fresh(34, 30_000)),
        {"repetition": "ends in a loop: the same 34 ids 3.0 times from index 50 on"},
        index=50,
        severity="warning",
    ),
    "a text three times, and something else": Damage(
        "thinking-off",
        long_output(*3 * (*fresh(100), A), *fresh(20, 30_000)),
        {"repetition": "of its passages of 8 ids stood in it before, the first one again at index 101"},
        index=101,
        severity="warning",
    ),
    "a text three times": Damage(
        "thinking-off",
        long_output(*3 * (*fresh(100), A)),
        {"repetition": "ends in a loop: the same 101 ids 3.0 times from index 0 on"},
        index=0,
        severity="warning",
    ),
    **{
        f"a loop whose round ends in a run, {times} times": Damage(
            "cut-in-reasoning",
            long_cut(*times * (*fresh(20, 30_000), *20 * [A])),
            {"repetition": f"ends in a loop: the same 40 ids {times}.0 times from index 0 on"},
            index=0,
            severity="warning" if times < 10 else "error",
        )
        for times in (4, 12)
    },
    "a loop whose round ends in a long run": Damage(
        "cut-in-reasoning",
        long_cut(*10 * (*fresh(20, 30_000), *120 * [A])),
        {"repetition": "ends in a loop: the same 140 ids 10.0 times from index 0 on"},
        index=0,
    ),
    **{
        f"pieces of a stream joined, {' + '.join(map(str, sizes))}": Damage(
            "thinking-off",
            long_output(*(i for size in sizes for i in fresh(size, 30_000))),
            {"repetition": f"begins again at index {sizes[0]} with its own first {sizes[0]} id"},
            index=sizes[0],
            severity="warning" if len(sizes) == 2 else "error",
        )
        for sizes in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (8, 16, 24, 32, 40), (50, 100, 150), (20, 500, 900), (100, 200))
    },
}
