"""Figures as people read them.

What belongs here: numbers turned into words for any sentence, table or page. Not here: the sentences.
"""


def percent(share: float, decimals: int = 1) -> str:
    """A share in percent, such as ``51.2%``; ``0%`` is none at all and ``100%`` is all, exactly.

    What is nearly none or nearly all says so, as ``<0.1%`` and ``>99.9%``, however it would round.

    Args:
        share: 0 to 1.
        decimals: of the percentage, one at least; two where it stands beside a limit that is set as finely.
    """
    step = 10.0**-decimals
    text = f"{share:.{decimals}%}"
    if share == 0 or share == 1:
        return f"{share:.0%}"
    if text == f"{0:.{decimals}%}":
        return f"<{step:.{decimals}f}%"
    return f">{100 - step:.{decimals}f}%" if text == f"{1:.{decimals}%}" else text
