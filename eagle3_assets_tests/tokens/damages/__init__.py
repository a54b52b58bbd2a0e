"""Every way in which a genuine output is damaged, by what the damage says.

What belongs here: the tables put together. To add a damage, add it to the table of its theme.
"""

from eagle3_assets_tests.tokens.damages import endings, reasoning, records, repetition, special_ids, texts, tools
from eagle3_assets_tests.tokens.mutations import Damage

TABLES = (
    endings.DAMAGES,
    reasoning.DAMAGES,
    records.DAMAGES,
    repetition.DAMAGES,
    special_ids.DAMAGES,
    texts.DAMAGES,
    tools.DAMAGES,
)

DAMAGES: dict[str, Damage] = {name: damage for table in TABLES for name, damage in table.items()}
