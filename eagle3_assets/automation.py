"""What Dagster does by itself, if somebody switches it on.

What belongs here: the condition and the sensor. Not here: what is made then (``assets``).
"""

import dagster as dg

SENSOR = "carry_good_partitions_on"

_TRIED = (dg.AutomationCondition.newly_requested() | dg.AutomationCondition.execution_failed().newly_true()).since(
    dg.AutomationCondition.any_deps_updated()
)
"""It was asked for, or failed, and what it is made of is still the same: trying again would give the same."""

GOOD = (
    dg.AutomationCondition.missing()
    & ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & dg.AutomationCondition.all_deps_blocking_checks_passed()
    & ~dg.AutomationCondition.in_progress()
    & ~_TRIED
).with_label("all that it is made of is there and good, and it is not")
"""For what follows ``raw_generations``. Laws about outputs block nothing in Dagster: what follows applies them itself
and refuses, once, what breaks them."""

carry_on = dg.AutomationConditionSensorDefinition(
    SENSOR,
    target=dg.AssetSelection.assets("training_samples"),
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Makes the training samples of every partition that has good generations and none yet, once; a"
    " partition that a law refuses is tried again when it is generated anew.",
    run_tags={"eagle3/work": "carry on"},
)
